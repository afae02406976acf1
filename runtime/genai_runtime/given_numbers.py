"""Numbers of Python as arrays of the element type that an input declares."""

from typing import Any, cast

import numpy as np

from genai_runtime.values import NUMPY, ONNX_TYPE, Array

_DEEP = 64  # axes that numpy has at most


def numbers_as(value: Any, dtype: str) -> Array:
    """Python's own ints and floats, alone or in lists, as `dtype`; anything else as numpy makes an array of it.

    dtype: "" where none is declared. Floats do not become whole numbers. bfloat16 comes as float32, which stands for
    it; float8 has no numbers. Raises OverflowError for what the type can't hold, ValueError for ragged lists.
    """
    kinds = _kinds(value)
    target = np.dtype(np.float32 if dtype == "bfloat16" else NUMPY.get(dtype, np.float64))
    bits = dtype in ONNX_TYPE and dtype != "bfloat16"
    if not dtype or bits or not kinds <= {int, float} or target.kind not in ("f" if float in kinds else "iuf"):
        return np.asarray(value)
    with np.errstate(over="ignore"):  # told below
        array = np.array(value, dtype=target)
    wide = np.asarray(value)
    lost = ~np.isfinite(array) & np.isfinite(wide) if target.kind == "f" and wide.dtype.kind != "O" else array != wide
    if target.kind == "f" and wide.dtype.kind == "O":  # whole numbers beyond 64 bits
        lost = ~np.isfinite(array)
    if np.any(lost):
        raise OverflowError(f"{wide.reshape(-1)[np.flatnonzero(lost)[0]]} is no {dtype}")
    return array


def _kinds(value: Any) -> set[type]:
    """The types of the numbers in nested lists and tuples; a list in itself, or one too deep, is of no number."""
    found, level = set[type](), [value]
    for _ in range(_DEEP + 1):
        lists = [each for each in level if type(each) in (list, tuple)]
        found |= {cast(type, type(each)) for each in level if type(each) not in (list, tuple)}
        if not lists or not found <= {int, float}:
            return found
        level = [each for one in lists for each in one]
    return {list}
