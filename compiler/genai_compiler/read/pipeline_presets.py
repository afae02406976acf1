"""The presets that a pipeline may extend, as data in the form of the document itself.

Files: those that one dialect lets a session leave out. Phases: `init` runs once before the first token, `step` at every
token.
"""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "autoregressive-decoder": {
        "sessions": {"decoder": {"file": "model.onnx", "role": "decoder"}},
        "flow": [{"run": "decoder", "when": "step"}],
    },
    "vision-language": {
        "sessions": {
            "vision": {"file": "vision_encoder.onnx"},
            "embedding": {"file": "embedding.onnx"},
            "decoder": {"file": "decoder.onnx", "role": "decoder"},
        },
        "flow": [
            {"run": "vision", "when": "init"},
            {"run": "embedding", "when": "init"},
            {"run": "decoder", "when": "step"},
        ],
        "dataflow": [
            {"from": "vision.image_features", "to": "embedding.image_features"},
            {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"},
        ],
    },
    "encoder-decoder": {
        "sessions": {"encoder": {"file": "encoder.onnx"}, "decoder": {"file": "decoder.onnx", "role": "decoder"}},
        "flow": [
            {"run": "encoder", "when": "init"},
            {"run": "decoder", "when": "step", "cross_attention_from": "encoder"},
        ],
        "state": {"cross_cache": {"source": "encoder", "frozen": True}},
    },
    "speech-language": {
        "sessions": {"speech": {}, "embedding": {}, "decoder": {"role": "decoder"}},
        "flow": [
            {"run": "speech", "when": "init"},
            {"run": "embedding", "when": "init"},
            {"run": "decoder", "when": "step"},
        ],
        "dataflow": [
            {"from": "speech.audio_features", "to": "embedding.audio_features"},
            {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"},
        ],
    },
}
