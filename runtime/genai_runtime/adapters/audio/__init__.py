"""onnx-genai.audio-preprocess@1: an audio file's bytes -> the tensors that a program makes of them (standard, 5.7).

`program` drives; everything it does is a plain function over numpy arrays: `wav` (files), `resample`, `waveform`
(samples to samples), `log_mel` (samples to features).
"""

from genai_runtime.adapters.audio.program import audio_preprocess

__all__ = ["audio_preprocess"]
