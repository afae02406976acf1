"""The flat keys of a Hugging Face feature extractor whose frames are stated in samples -> `htk` features.

{"feature_extractor": {"feature_size": 128, "frame_length": 320, "hop_length": 160, "fft_length": 512, ...}}
"""

from collections.abc import Iterator, Mapping
from typing import Any

from genai_compiler.read.audio_features import AudioFeatures, Refuse, htk
from genai_compiler.read.audio_operations import AUDIO_OPERATIONS, MOST_FRAME, MOST_RATE, RATE, audio_fault
from genai_compiler.read.config_json import Json
from genai_compiler.read.flat_keys import members_of
from genai_compiler.read.places import DocPath, as_written

_KEYS = ("feature_size", "frame_length", "fft_length", "hop_length", "mel_floor")
_FORM = next(form for form in AUDIO_OPERATIONS.values() if form.does == "htk")
_WITHOUT_EFFECT: Mapping[str, tuple[Json, ...]] = {
    "dither": (0, None),
    "input_scale_factor": (1, None),
    "padding_value": (0, None),
    "padding_side": ("right",),
}
"""Keys whose effect is not offered -> the values that have none."""
_LENGTHS = {"frame_length": MOST_FRAME, "hop_length": MOST_FRAME, "sampling_rate": MOST_RATE}


def hf_sound(root: Json) -> tuple[Mapping[str, Json], DocPath] | None:
    """(the members of such an extractor, where they stand), None where neither a file nor a part of it is one."""
    return members_of(root, lambda members: set(_KEYS) <= {*members})


def framed_features(root: Mapping[str, Json], refuse: Refuse) -> Iterator[AudioFeatures]:
    """The features of an extractor's members. refuse: told a key, and what is wrong with it."""
    faults = list(_faults(root))
    for key, what in faults:
        refuse(key, what)
    if faults:
        return
    lengths = {key: int(str(root.get(key, RATE))) for key in _LENGTHS}
    rate = lengths["sampling_rate"]
    stated: dict[str, Any] = {key: root[key] for key in _FORM.defaults if root.get(key) is not None}
    stated |= {f"{key}_ms": lengths[key] * 1000 / rate for key in ("frame_length", "hop_length")}
    for made in htk({**_FORM.defaults, **stated}, (rate,), refuse):
        if root["fft_length"] != made.fft:
            refuse(
                "fft_length", f"it is {as_written(root['fft_length'])}, and frames of that length go with {made.fft}"
            )
        yield made


def _faults(root: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for key, most in _LENGTHS.items():
        value = root.get(key, RATE)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            yield key, f"it is {as_written(value)}: a whole number from 1 to {most}"
    for key, plain in _WITHOUT_EFFECT.items():
        if key in root and root[key] not in plain:
            yield key, f"it is {as_written(root[key])}; {as_written(plain[0])} is offered"
    for key in (each for each in _FORM.defaults if root.get(each) is not None and each not in _LENGTHS):
        value = root[key]
        fault = audio_fault(_FORM, key, int(value) if isinstance(value, bool) else value)
        if fault:
            yield key, f"it {fault}"
