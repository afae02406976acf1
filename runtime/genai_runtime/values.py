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

_NAMES = {f"tensor({name})": name for name in NUMPY} | {"tensor(float)": "float32", "tensor(double)": "float64"}
_BITS_ONLY = {
    "tensor(bfloat16)": "bfloat16",
    "tensor(float8e4m3fn)": "float8_e4m3fn",
    "tensor(float8e5m2)": "float8_e5m2",
}
"""ONNX Runtime's names of these types."""


def to_value(array: Array, dtype: str = "") -> Value:
    """A tensor that owns a copy of `array`.

    dtype: given where numpy's type does not tell it (bfloat16, float8); `array` then holds the bits.
    """
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
    """The tensor's elements; on the CPU a view of its memory, valid while the value lives.

    bfloat16 comes as float32, which holds each of its numbers; float8 comes as its bits, uint8.
    """
    try:
        return value.numpy()
    except RuntimeError:
        dtype = bits_dtype(value)
        if not dtype:
            raise
    bits = to_bits(value)
    return from_bfloat16(bits) if dtype == "bfloat16" else bits


def dtype_of(value: Value) -> str:
    """The tensor's type; one that the workflow knows no name for, as ONNX Runtime calls it."""
    return bits_dtype(value) or _NAMES.get(value.data_type(), value.data_type())


def bits_dtype(value: Value) -> str:
    """The tensor's type where numpy lacks it, else ""."""
    return _BITS_ONLY.get(value.data_type(), "")


def to_bits(value: Value) -> Array:
    """The tensor as it lies in memory, a view: numbers, or the bits of a type that numpy lacks."""
    from genai_runtime import binding

    dtype = bits_dtype(value)
    return binding.as_bits(value, dtype) if dtype else value.numpy()


def merge_axes(value: Value) -> Value:
    """The tensor with its first two axes taken together, in order: [a, b, ...] -> [a * b, ...]."""
    bits, (first, second, *rest) = to_bits(value), value.shape()
    return to_value(np.ascontiguousarray(bits).reshape(first * second, *rest), bits_dtype(value) or bits.dtype.name)


def encode(numbers: object, dtype: str) -> Array:
    """Numbers as the array that stands for them in a tensor of `dtype`.

    Raises TypeError for float8, OverflowError or ValueError for what the type can't hold.
    """
    if dtype == "bfloat16":
        return to_bfloat16(np.asarray(numbers, dtype=np.float32))
    if dtype in ONNX_TYPE:
        raise TypeError(f"numbers can't be turned into {dtype} here; give the bits, as a uint8 tensor")
    array = np.asarray(numbers)
    if array.dtype.kind != "f":
        return np.asarray(numbers, dtype=NUMPY[dtype])
    with np.errstate(invalid="ignore", over="ignore"):
        made = array.astype(NUMPY[dtype])
    if made.dtype.kind != "f" and not np.array_equal(made, array):
        raise ValueError("no whole number that it can hold")
    return made


def to_bfloat16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Bits of the nearest bfloat16, ties to even (IEEE 754); a NaN stays one."""
    bits = np.asarray(array, dtype=np.float32).view(np.uint32)
    nearest = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(array), (bits >> np.uint32(16)) | np.uint32(0x40), nearest).astype(np.uint16)


def from_bfloat16(bits: Array) -> npt.NDArray[np.float32]:
    """The numbers that bfloat16 bits stand for."""
    wide = np.asarray(bits.astype(np.uint32) << np.uint32(16))  # numpy makes a scalar of what has rank 0
    return wide.view(np.float32)


def extents(value: Value) -> Sequence[int]:
    """The tensor's shape."""
    return value.shape()
