"""The audio operations of onnxruntime-extensions: what each does, its attributes, and what their values may be.

The table is audio_operations.json: operation -> `does`, our word for it, and `attributes` with their defaults; null is
an attribute that has to be stated.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import pi, sin
from pathlib import Path
from typing import Any

from genai_compiler.read.config_json import Json
from genai_compiler.read.places import as_written

RATE, FFT, HOP = 16_000, 400, 160
MOST_BANDS, MOST_FRAME = 512, 1 << 16
MOST_RATE = 768_000


@dataclass(frozen=True)
class AudioForm:
    """One operation of the format. does: our word for it."""

    does: str
    defaults: Mapping[str, Any]


def _table() -> dict[str, AudioForm]:
    entries = json.loads((Path(__file__).parent / "audio_operations.json").read_text("utf-8"))
    return {name: AudioForm(entry["does"], entry["attributes"]) for name, entry in entries.items()}


AUDIO_OPERATIONS: Mapping[str, AudioForm] = _table()
"""The format's own names."""

_FREE = frozenset({"max_samples", "chunk_size", "n_mel", "no_padding"})
"""Attributes of `spectrum` and `bands` that need not have their default: these are carried out one way only."""
_FLAGS = frozenset({"stereo_to_mono", "no_padding", "feature_first", "preemphasis_htk_flavor", "fft_overdrive"})
_WINDOWS = ("hann", "hamming")
_LARGEST = {
    **dict.fromkeys(("n_mel", "feature_size", "num_mels"), MOST_BANDS),
    **dict.fromkeys(("target_sample_rate", "sampling_rate", "sample_rate"), MOST_RATE),
    "max_samples": 64 << 20,
    "chunk_size": 3600,
}


def audio_fault(form: AudioForm, name: str, value: Json) -> str:
    """What is wrong with an attribute's value, "" for nothing. The format is strict: flags are 0 and 1."""
    key, default = name.rpartition("/")[2], form.defaults[name]
    if key == "_comment":
        return ""
    if key == "hann_win":
        return "" if _is_hann(value) else f"is another window than the periodic Hann window of {FFT}"
    if form.does == "spectrum" and key == "win_fn":
        return "" if value == default else f"is {as_written(value)}; {as_written(default)} is offered"
    if key == "win_fn":
        return "" if value in _WINDOWS else f"is {as_written(value)}: one of {', '.join(_WINDOWS)}"
    if key == "type":
        return "" if value == default else f"is {as_written(value)}; {as_written(default)} is offered"
    if key == "target_sample_rates":
        return "" if _are_rates(value) else f"is {as_written(value)}: whole numbers above 0, each once"
    if isinstance(default, list):
        return "" if _are_numbers(value) else f"is {as_written(value)}: numbers"
    if isinstance(default, float):
        return "" if _is_number(value) and 0 <= float(str(value)) < 1e6 else f"is {as_written(value)}: a number from 0"
    return _whole_fault(form, key, value, default)


def _whole_fault(form: AudioForm, key: str, value: Json, default: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"is {as_written(value)}: a whole number"
    if form.does in ("spectrum", "bands") and key not in _FREE:
        return "" if value == default else f"is {as_written(value)}; {default} is offered"
    if key in _FLAGS:
        if key == "stereo_to_mono":
            return "" if value == 1 else f"is {as_written(value)}; 1 is offered"
        return "" if value in (0, 1) else f"is {as_written(value)}: from 0 to 1"
    least, most = int(key != "max_samples"), _LARGEST.get(key, MOST_FRAME)
    return "" if least <= value <= most else f"is {as_written(value)}: from {least} to {most}"


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_numbers(value: Json) -> bool:
    return isinstance(value, list) and all(_is_number(each) and abs(float(str(each))) < 1e6 for each in value)


def _are_rates(value: Json) -> bool:
    numbers = value if isinstance(value, list) else [None]
    whole = all(isinstance(each, int) and not isinstance(each, bool) and 0 < each <= MOST_RATE for each in numbers)
    return whole and len(set(map(str, numbers))) == len(numbers)


def _is_hann(value: Json) -> bool:
    """Whether the numbers of a window are those that are used without them."""
    if not isinstance(value, list) or not all(isinstance(each, int | float) for each in value):
        return False
    return not value or (
        len(value) == FFT
        and all(abs(float(str(each)) - sin(pi * at / FFT) ** 2) < 1e-4 for at, each in enumerate(value))
    )
