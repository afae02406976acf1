"""The driver of audio programs: what the compiler decided, carried out on the bytes of files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.adapters.audio.log_mel import HOP, fitted_frames, log_mel
from genai_runtime.adapters.audio.resample import resample
from genai_runtime.adapters.audio.wav import MAX_SAMPLES, read_wav
from genai_runtime.adapters.audio.waveform import Samples, downmix, fit, rescale, zero_mean_unit_variance
from genai_runtime.adapters.files import split_files
from genai_runtime.problem import ExecutionError, RequestError

Array = npt.NDArray[Any]
Sound = tuple[Samples, int]
"""Samples [n] and their rate in Hz."""


@dataclass(frozen=True)
class AudioProgram:
    """steps: (op, its number), in order, on the samples. window: their fixed number, 0: as many as there are.

    mels: bands of the features, 0: none are made. outputs: (port, content). most: samples of a file that count, 0: all;
    frames: of the features of each file, 0: as many as its samples make; zeros: see `log_mel`.
    """

    steps: tuple[tuple[str, float], ...]
    window: int
    mels: int
    outputs: tuple[tuple[str, str], ...]
    most: int = 0
    frames: int = 0
    zeros: bool = False

    def run(self, files: Sequence[bytes]) -> dict[str, Array]:
        """Every output by port, one row a file.

        Raises RequestError, for files are a caller's: `bad-audio`, `audio-too-long`, `audio-window` (several files of
        no fixed length).
        """
        try:
            return self._rows(files)
        except ExecutionError as fault:
            raise RequestError(fault.code, fault.what, help=fault.help) from fault

    def _rows(self, files: Sequence[bytes]) -> dict[str, Array]:
        clips = [self._samples(content) for content in files]
        clips = [clip[: self.most] for clip in clips] if self.most else clips
        lengths = [len(clip) for clip in clips]
        if self.frames:
            features = [fitted_frames(log_mel(clip, self.mels, self.zeros), self.frames) for clip in clips]
            return {port: np.stack(features) for port, _ in self.outputs}
        if self.window:
            clips = [fit(clip, self.window) for clip in clips]
        elif len(clips) != 1:
            what = f"{len(clips)} audio files can't be rows of one tensor: the program fixes no length (V068)"
            raise ExecutionError("audio-window", what, help="give the program a pad with target_length")
        made = _Made(np.stack(clips), np.array(lengths, np.int64), self.mels, self.zeros)
        return {port: _CONTENTS[content](made) for port, content in self.outputs}

    def _samples(self, content: bytes) -> Samples:
        samples, rate = read_wav(content)
        sound = downmix(samples), rate
        for op, number in self.steps:
            sound = _STEPS[op](sound, number)
        return sound[0]


@dataclass(frozen=True)
class _Made:
    """The windowed samples [B, n], how many of each row came from its file, and the number of bands."""

    samples: Samples
    lengths: npt.NDArray[np.int64]
    mels: int
    zeros: bool = False

    def features(self) -> Array:
        """float32 [B, mels, frames]."""
        rows, count = self.samples.shape
        if rows * self.mels * (count // HOP) > MAX_SAMPLES:
            raise ExecutionError("audio-too-long", f"features of {count} samples are more than {MAX_SAMPLES} numbers")
        return np.stack([log_mel(row, self.mels, self.zeros) for row in self.samples])

    def frames(self) -> Array:
        """int64 [B]: hops begun within the file's own samples, at most as many as there are frames."""
        begun: Array = np.minimum(-(-self.lengths // HOP), self.samples.shape[1] // HOP)
        return begun


_STEPS: Mapping[str, Callable[[Sound, float], Sound]] = {
    "resample": lambda sound, rate: (resample(sound[0], sound[1], int(rate), "lanczos"), int(rate)),
    "rescale": lambda sound, scale: (rescale(sound[0], scale), sound[1]),
    "zero_mean_unit_variance": lambda sound, epsilon: (zero_mean_unit_variance(sound[0], epsilon), sound[1]),
}
_CONTENTS: Mapping[str, Callable[[_Made], Array]] = {
    "waveform": lambda made: made.samples,
    "audio_features": _Made.features,
    "valid_frames": _Made.frames,
    "valid_samples": lambda made: made.lengths,
}


def audio_preprocess(
    parameters: Mapping[str, Any], program: AudioProgram | None = None
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call of a program. In: `encoded` uint8 [bytes] (adapters.files). Out: the program's outputs by port.

    parameters: none are known. Raises ValueError without a program, or for one with operations of a newer compiler.
    """
    if program is None:
        raise ValueError("it needs the document's audio program")
    unknown = {op for op, _ in program.steps} - set(_STEPS) or {name for _, name in program.outputs} - set(_CONTENTS)
    if unknown:
        raise ValueError(f"the program has {', '.join(sorted(unknown))}, which this runtime has not")
    return lambda inputs: program.run(split_files(inputs["encoded"].tobytes()))
