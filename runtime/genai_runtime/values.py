"""Tensors as ONNX Runtime holds them, and the two ways across: from a numpy array, and back as a view."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Value(Protocol):
    """An OrtValue. `numpy()` is a view of the tensor's own memory where it lies on the CPU."""

    def shape(self) -> list[int]: ...
    def numpy(self) -> Array: ...
    def data_type(self) -> str: ...


NUMPY: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e5m2": np.uint8,
}
"""The numpy type that holds an element; types numpy lacks travel as their bits."""

ONNX_TYPE: dict[str, int] = {"bfloat16": 16, "float8_e4m3fn": 17, "float8_e5m2": 19}
"""ONNX TensorProto.DataType numbers of the types that numpy has no name for."""


def to_value(array: Array, dtype: str = "") -> Value:
    """A tensor that owns a copy of `array`. dtype: given where numpy's type does not tell it (bfloat16, float8)."""
    from genai_runtime import binding

    array = np.ascontiguousarray(array) if array.ndim else array
    if dtype in ONNX_TYPE:
        value = binding.allocate(array.shape, dtype)
        binding.as_bits(value, dtype)[...] = array
        return value
    value = binding.allocate_like(array)
    binding.write(value, array)
    return value


def view(array: Array, dtype: str = "") -> Value:
    """A tensor over the memory of `array` itself. The caller keeps `array` alive as long as the tensor is used."""
    from genai_runtime import binding

    return binding.over(array, dtype)


def to_array(value: Value) -> Array:
    """The tensor's elements; on the CPU a view of its memory, valid while the value lives."""
    return value.numpy()


def extents(value: Value) -> Sequence[int]:
    """The tensor's shape."""
    return value.shape()
