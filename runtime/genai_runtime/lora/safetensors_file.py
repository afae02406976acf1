"""Tensors of a safetensors file, read within bounds.

Format: 8 bytes, the header's length in little endian; the header, a JSON object of name -> {dtype, shape,
data_offsets}; the data, which these offsets tile without holes (https://github.com/huggingface/safetensors).
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.lora.fault import AdapterFault
from genai_runtime.lora.json_text import parse_json
from genai_runtime.values import from_bfloat16

MAX_HEADER = 16 << 20
FLOATS: dict[str, tuple[str, str]] = {"F32": ("float32", "<f4"), "F16": ("float16", "<f2"), "BF16": ("bfloat16", "<u2")}
"""Names of the types that factors can have: ours, and numpy's."""
_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4,
    "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """The header of a safetensors file; tensors are read when asked for. Raises AdapterFault `adapter-file`."""

    def __init__(self, file: Path) -> None:
        self._file, size = file, file.stat().st_size
        with file.open("rb") as stream:
            head = stream.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise self._bad(f"its header has {length} bytes, the file {size}")
            text = stream.read(length)
        self._data = 8 + length
        header = parse_json(text, file.name)
        header.pop("__metadata__", None)
        self._entries = {name: self._entry(name, each) for name, each in header.items()}
        self._tile(size - self._data)

    @property
    def names(self) -> frozenset[str]:
        """Names of the tensors."""
        return frozenset(self._entries)

    def described(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Type and shape of a tensor; a type that factors can't have by the format's own name."""
        entry = self._entries[name]
        return FLOATS.get(entry.dtype, (entry.dtype,))[0], entry.shape

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """The numbers of a tensor of floats, which is not empty."""
        entry = self._entries[name]
        dtype, kind = FLOATS[entry.dtype]
        with self._file.open("rb") as stream:
            stream.seek(self._data + entry.start)
            content = stream.read(entry.end - entry.start)
        if len(content) != entry.end - entry.start:
            raise self._bad("it ends too early")
        array = np.frombuffer(content, kind).reshape(entry.shape)
        return from_bfloat16(array) if dtype == "bfloat16" else array.astype(np.float32)

    def _entry(self, name: str, value: Any) -> _Entry:
        if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
            raise self._bad(f"its entry '{name}' is no tensor")
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _SIZES or not _counts(shape) or not _counts(offsets):
            raise self._bad(f"its entry '{name}' is no tensor")
        if len(offsets) != 2 or len(shape) > 8 or offsets[1] - offsets[0] != math.prod(shape) * _SIZES[dtype]:
            raise self._bad(f"the place of '{name}' is not as long as its shape {shape} says")
        return _Entry(dtype, tuple(shape), offsets[0], offsets[1])

    def _tile(self, size: int) -> None:
        end = 0
        for entry in sorted(self._entries.values(), key=lambda each: (each.start, each.end)):
            if entry.start != end:
                raise self._bad("its tensors overlap, or leave holes")
            end = entry.end
        if end != size:
            raise self._bad(f"its tensors take {end} bytes, there are {size}")

    def _bad(self, what: str) -> AdapterFault:
        return AdapterFault("adapter-file", f"{self._file.name} is no safetensors file: {what}")


def _counts(value: object) -> bool:
    """Whether a value is a list of whole numbers, 0 or more."""
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)
