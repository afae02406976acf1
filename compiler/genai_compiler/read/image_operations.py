"""The image operations of onnxruntime-extensions: what each does, its attributes and their defaults.

The table is image_operations.json: operation -> `does`, our word for it; `attributes` with their defaults; `swapping`,
flags that make it exchange the first and third channel first; `any_attributes`, where it takes no notice of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_compiler.read.config_json import Json
from genai_compiler.read.places import as_written

Attributes = Mapping[str, Any]
FILTERS = {"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic", "LANCZOS": "lanczos3"}
"""Interpolation of the format -> ours."""


@dataclass(frozen=True)
class Form:
    """One operation of the format. does: our word for it."""

    does: str
    defaults: Attributes
    swapping: tuple[str, ...] = ()
    any_attributes: bool = False


def _table() -> dict[str, Form]:
    entries = json.loads((Path(__file__).parent / "image_operations.json").read_text("utf-8"))
    return {name: _form(entry) for name, entry in entries.items()}


def _form(entry: Mapping[str, Any]) -> Form:
    defaults = {
        name: tuple(value) if isinstance(value, list) else value for name, value in entry.get("attributes", {}).items()
    }
    return Form(entry["does"], defaults, tuple(entry.get("swapping", ())), entry.get("any_attributes", False))


OPERATIONS: Mapping[str, Form] = _table()
"""The format's own names."""
CLIP_MEAN, CLIP_STD = OPERATIONS["Normalize"].defaults["mean"], OPERATIONS["Normalize"].defaults["std"]

_WORDS = {"color_space": ("RGB", "BGR"), "interpolation": tuple(FILTERS)}
_FLAGS = frozenset({"keep_aspect_ratio", "smart_resize"})
_LARGEST = 1 << 28
_LEAST_DEVIATION = 1e-6
"""What levels are divided by at least: less makes them infinite."""
_LIMITS = {
    **dict.fromkeys(("patch_size", "height", "width", "dyhd_base_resolution"), 1 << 14),
    **dict.fromkeys(("merge_size", "pooling_kernel_size", "temporal_patch_size"), 64),
    "max_soft_tokens": 1 << 16,
    "dynamic_hd": 256,
    "max_image_tiles": 64,
}
"""Attribute -> the largest value that is followed: what is beyond makes nothing, or more than a run may hold."""


def attribute_fault(form: Form, name: str, value: Json) -> str:
    """What is wrong with an attribute's value, "" for nothing. The format is strict: flags are 0 and 1."""
    default, key = form.defaults[name], name.rpartition("/")[2]
    if name in _WORDS:
        return "" if value in _WORDS[name] else f"is {as_written(value)}: one of {', '.join(_WORDS[name])}"
    if name == "size":
        return _size_fault(value)
    if isinstance(default, tuple):
        return numbers_fault(key, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {as_written(value)}: a number" + (", not a boolean" if isinstance(value, bool) else "")
    if isinstance(default, float):
        return "" if 0 < value < 1e6 else f"is {as_written(value)}: above 0"
    if not isinstance(value, int):
        return f"is {as_written(value)}: a whole number"
    if name in _FLAGS or name in form.swapping:
        return "" if value in (0, 1) else f"is {as_written(value)}: 0 or 1"
    largest = _LIMITS.get(name, _LARGEST)
    return "" if 0 < value <= largest else f"is {as_written(value)}: from 1 to {largest}"


def _size_fault(value: Json) -> str:
    """Height and width of a tile, which is square."""
    most = _LIMITS["height"]
    edges = [each for each in value if isinstance(each, int)] if isinstance(value, list) else []
    fits = edges == value and len(edges) == 2 and edges[0] == edges[1] and 0 < edges[0] <= most
    return "" if fits else f"is {as_written(value)}: twice one whole number from 1 to {most}"


def numbers_fault(name: str, value: Json) -> str:
    """What is wrong with `mean`, `std` or `dims`, one number a channel, "" for nothing."""
    numbers = value if isinstance(value, list) else []
    plain = [each for each in numbers if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(plain) != 3 or len(numbers) != 3:
        return f"is {as_written(value)}: three numbers"
    if name == "dims":
        return "" if sorted(plain) == [0, 1, 2] else f"is {as_written(value)}: 0, 1 and 2 in some order"
    if name == "std" and not min(plain) >= _LEAST_DEVIATION:
        return f"is {as_written(value)}: above 0, at least {_LEAST_DEVIATION}"
    return "" if all(abs(each) < 1e6 for each in plain) else f"is {as_written(value)}: too large"
