"""Run ONNX artifacts with plain sessions: numpy in, numpy out, no graph optimisation."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from google.protobuf import text_format

from tests.reference.values import Array, ReferenceError


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
    try:
        return dict(zip(names, loaded.run(names, dict(feeds)), strict=True))
    except Exception as failure:
        raise ReferenceError("execution", f"{path.name}: {failure}") from failure
