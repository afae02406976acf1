"""The package's external data file: tensors appended one after another, each at an aligned offset.

Source: ONNX external data (location, offset, length); several initializers may name one region.
"""

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

ALIGNMENT = 4096  # bytes; ONNX Runtime maps a region without copying it when it starts on a page


class WeightFile:
    """An open external data file. Use as a context manager; graphs refer to `path.name` beside them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")

    def __enter__(self) -> "WeightFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, name: str, values: NDArray[Any]) -> ir.ExternalTensor:
        """Write `values` in row-major little-endian order and return the tensor that points at it."""
        self._file.write(b"\0" * (-self._file.tell() % ALIGNMENT))
        offset = self._file.tell()
        self._file.write(np.ascontiguousarray(values).data)
        return self._tensor(name, offset, values.nbytes, ir.DataType.from_numpy(values.dtype), values.shape)

    def alias(self, name: str, tensor: ir.ExternalTensor, shape: tuple[int, ...]) -> ir.ExternalTensor:
        """A second tensor of another name and shape over the bytes of `tensor`."""
        assert tensor.offset is not None
        assert tensor.length is not None
        return self._tensor(name, tensor.offset, tensor.length, tensor.dtype, shape)

    def _tensor(
        self, name: str, offset: int, length: int, dtype: ir.DataType, shape: tuple[int, ...]
    ) -> ir.ExternalTensor:
        return ir.ExternalTensor(
            self.path.name, offset, length, dtype, shape=ir.Shape(shape), name=name, base_dir=self.path.parent
        )
