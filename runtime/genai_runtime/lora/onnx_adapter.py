"""Parameters of an ONNX Runtime adapter file (`.onnx_adapter`), read within bounds.

A flatbuffer with the identifier TORT (onnxruntime, lora/adapter_format/adapter_schema.fbs): a table of format_version,
adapter_version, model_version, parameters; a parameter is a table of name, dims (int64), data_type (as in TensorProto),
raw_data. ONNX Runtime's own reader takes a parameter's extents on trust, so it is not asked.
"""

import math
import struct
from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from genai_runtime.lora.fault import AdapterFault
from genai_runtime.values import from_bfloat16

MAX_BYTES = (2 << 30) - 1
FORMAT = 1
FLOATS: dict[int, tuple[str, str]] = {1: ("float32", "<f4"), 10: ("float16", "<f2"), 16: ("bfloat16", "<u2")}
Tensor = tuple[str, npt.NDArray[np.float32]]
_NAME, _DIMS, _TYPE, _DATA = range(4)


def read_onnx_adapter(file: Path, wanted: Collection[str]) -> dict[str, Tensor]:
    """Name -> type and numbers of those `wanted` parameters that are there and hold floats.

    Raises AdapterFault `adapter-file`.
    """
    size = file.stat().st_size
    try:
        if not 12 <= size <= MAX_BYTES:
            raise ValueError(f"it has {size} bytes")
        return _Buffer(file.read_bytes()).parameters(wanted)
    except (struct.error, ValueError) as fault:
        raise AdapterFault("adapter-file", f"{file.name} is no ONNX Runtime adapter: {fault}") from fault


class _Buffer:
    """A flatbuffer. Every read is checked against its end; raises struct.error or ValueError."""

    def __init__(self, content: bytes) -> None:
        self._content, self._left = content, len(content)
        if content[4:8] != b"TORT":
            raise ValueError("its mark is missing")

    def parameters(self, wanted: Collection[str]) -> dict[str, Tensor]:
        root = self._at(0)
        version = self._number(root, 0, "<i", 0)
        if version != FORMAT:
            raise ValueError(f"it has format {version}, known is {FORMAT}")
        found: dict[str, Tensor | None] = {}
        start, count = self._vector(root, 3, 4)
        for at in range(count):
            table = self._at(start + 4 * at)
            name = self._name(table)
            if name in found:
                raise ValueError(f"it has two parameters '{name}'")
            found[name] = self._parameter(table, name) if name in wanted else None
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def _name(self, table: int) -> str:
        start, length = self._vector(table, _NAME, 1)
        self._take(length)
        return self._content[start : start + length].decode("utf-8")

    def _parameter(self, table: int, name: str) -> Tensor | None:
        kind = FLOATS.get(self._number(table, _TYPE, "<i", 0))
        if kind is None:
            return None
        start, rank = self._vector(table, _DIMS, 8)
        shape = struct.unpack_from(f"<{rank}q", self._content, start)
        start, length = self._vector(table, _DATA, 1)
        self._take(length)
        dtype, numpy_type = kind
        if rank > 8 or min(shape, default=0) < 0 or math.prod(shape) * np.dtype(numpy_type).itemsize != length:
            raise ValueError(f"'{name}' has {length} bytes for the shape {list(shape)}")
        array = np.frombuffer(self._content, numpy_type, math.prod(shape), start).reshape(shape)
        return dtype, from_bfloat16(array) if dtype == "bfloat16" else array.astype(np.float32)

    def _take(self, length: int) -> None:
        """Names and data lie beside one another: shared by many parameters, a small file would fill the memory."""
        self._left -= length
        if self._left < 0:
            raise ValueError("its names or data overlap")

    def _at(self, place: int) -> int:
        """Where the offset at a place leads."""
        return place + int(self._read("<I", place))

    def _read(self, form: str, place: int) -> int:
        if place < 0:
            raise ValueError("an offset leads out of it")
        return int(struct.unpack_from(form, self._content, place)[0])

    def _field(self, table: int, field: int) -> int:
        """Where a field of a table lies, 0 when it is absent."""
        known = table - self._read("<i", table)
        if 4 + 2 * field + 2 > self._read("<H", known):
            return 0
        offset = self._read("<H", known + 4 + 2 * field)
        return table + offset if offset else 0

    def _number(self, table: int, field: int, form: str, absent: int) -> int:
        place = self._field(table, field)
        return self._read(form, place) if place else absent

    def _vector(self, table: int, field: int, width: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many it has."""
        place = self._field(table, field)
        if not place:
            return 0, 0
        start = self._at(place)
        count = self._read("<I", start)
        if start + 4 + count * width > len(self._content):
            raise ValueError("a list runs over its end")
        return start + 4, count
