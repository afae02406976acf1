"""Run ONNX artifacts with plain sessions: numpy in, numpy out, no graph optimisation."""

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from google.protobuf import text_format

from tests.reference.values import Array, ReferenceError

EXTENDED = {
    "tensor(bfloat16)": "bfloat16",
    "tensor(float8e4m3fn)": "float8_e4m3fn",
    "tensor(float8e5m2)": "float8_e5m2",
}
"""Element types that numpy lacks, by ONNX Runtime's names."""
BITS = {"bfloat16": (16, np.uint16), "float8_e4m3fn": (17, np.uint8), "float8_e5m2": (19, np.uint8)}
"""Their ONNX numbers, and what holds their bits."""


def load_model(path: Path) -> onnx.ModelProto:
    """The model of a binary or `.textproto` artifact, with its external data read in."""
    if not path.is_file():
        raise ReferenceError("artifact", f"artifact {path.name!r} is absent")
    if path.suffix == ".textproto":
        model = onnx.ModelProto()
        text_format.Parse(path.read_text("utf-8"), model)
        onnx.load_external_data_for_model(model, str(path.parent))
        return model
    return onnx.load(path)


@cache
def _session(path: Path, stamp: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        load_model(path).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def session(path: Path) -> Any:
    """The one session of an artifact; a rewritten file gets a new one."""
    if not path.is_file():
        raise ReferenceError("artifact", f"artifact {path.name!r} is absent")
    try:
        return _session(path, path.stat().st_mtime_ns)
    except ReferenceError:
        raise
    except Exception as failure:
        raise ReferenceError("artifact", f"{path.name}: {failure}") from failure


def run_graph(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs of one run, by name. Raises ReferenceError of kind execution."""
    loaded = session(path)
    names = [output.name for output in loaded.get_outputs()]
    extended = any(port.type in EXTENDED for port in (*loaded.get_inputs(), *loaded.get_outputs()))
    try:
        if extended:
            given = {name: _tensor(array) for name, array in feeds.items()}
            return dict(zip(names, map(_array, loaded.run_with_ort_values(names, given)), strict=True))
        return dict(zip(names, loaded.run(names, dict(feeds)), strict=True))
    except Exception as failure:
        raise ReferenceError("execution", f"{path.name}: {failure}") from failure


def _tensor(array: Array) -> Any:
    """An OrtValue of any type; those that numpy lacks go by their bits and their ONNX number."""
    if array.dtype.name not in BITS:
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.array(array, order="C"))
    number, bits = BITS[array.dtype.name]
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array(array, order="C").view(bits), number)


def _array(value: Any) -> Array:
    """An OrtValue as an array that owns its memory."""
    if value.data_type() not in EXTENDED:
        return np.array(value.numpy())
    dtype = np.dtype(getattr(ml_dtypes, EXTENDED[value.data_type()]))
    count = int(np.prod(value.shape(), dtype=np.int64))
    memory = ctypes.string_at(value.data_ptr(), count * dtype.itemsize) if count else b""
    return np.frombuffer(memory, dtype).reshape(value.shape()).copy()
