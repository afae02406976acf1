"""Steps before a draw, on the host and as graphs: the most likely token, a penalty, a mask of allowed tokens.

The graphs are written for this comparison alone: it is why the compiler writes none of them (docs/decisions/0015).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from genai_runtime import binding
from genai_runtime.policy_graphs import SETTINGS
from genai_runtime.values import Array, view
from onnx import NodeProto, TensorProto, helper

PENALTY, SEEN = 1.1, 200
"""Of a repetition penalty over so many distinct tokens."""
Row = npt.NDArray[np.float32]
_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def step_pairs(row: Row) -> dict[str, dict[str, Callable[[], Any]]]:
    """By step, what the host and what a graph does for it, each twice."""
    generator = np.random.default_rng(1)
    seen = generator.choice(row.size, SEEN, replace=False).astype(np.int64)
    allowed = generator.random(row.size) < 0.02
    made, penalty = np.empty_like(row), np.float32(PENALTY)

    def penalised() -> None:
        made[:] = row
        values = made[seen]
        made[seen] = np.where(values < 0, values * penalty, values / penalty)

    def masked() -> None:
        made[:] = row
        np.copyto(made, -np.inf, where=~allowed)

    argmax = _graph([helper.make_node("ArgMax", ["row"], ["out"], axis=0, keepdims=1)], {"row": row}, np.int64, 1)
    return {
        "the most likely token": _twice(row.argmax, argmax),
        "repetition penalty": _twice(penalised, _penalty(row, seen)),
        "mask": _twice(masked, _mask(row, allowed)),
    }


def _twice(host: Callable[[], Any], graph: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    return {"host": host, "graph": graph, "host again": host, "graph again": graph}


def _penalty(row: Row, seen: Array) -> Callable[[], Any]:
    nodes = [
        helper.make_node("Gather", ["row", "seen"], ["values"]),
        helper.make_node("Less", ["values", "zero"], ["below"]),
        helper.make_node("Mul", ["values", "penalty"], ["more"]),
        helper.make_node("Div", ["values", "penalty"], ["less"]),
        helper.make_node("Where", ["below", "more", "less"], ["changed"]),
        helper.make_node("ScatterElements", ["row", "seen", "changed"], ["out"]),
    ]
    constants = {"zero": np.zeros(1, np.float32), "penalty": np.full(1, PENALTY, np.float32)}
    return _graph(nodes, {"row": row, "seen": seen, **constants}, np.float32, row.size)


def _mask(row: Row, allowed: Array) -> Callable[[], Any]:
    nodes = [helper.make_node("Where", ["allowed", "row", "never"], ["out"])]
    return _graph(
        nodes, {"row": row, "allowed": allowed, "never": np.full(1, -np.inf, np.float32)}, np.float32, row.size
    )


def _graph(nodes: Sequence[NodeProto], inputs: Mapping[str, Array], kind: Any, size: int) -> Callable[[], Any]:
    """A bound run of a graph with one output, `out`."""
    ports = [helper.make_tensor_value_info(name, _TYPES[each.dtype.name], each.shape) for name, each in inputs.items()]
    out = np.empty(size, kind)
    made = helper.make_tensor_value_info("out", _TYPES[out.dtype.name], out.shape)
    model = helper.make_model(
        helper.make_graph(nodes, "step", ports, [made]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    session = binding.ort.InferenceSession(model.SerializeToString(), _settings(), providers=["CPUExecutionProvider"])
    bound, run = binding.new_bindings(session), binding.run_bound(session)
    for name, each in inputs.items():
        bound.bind_ortvalue_input(name, view(each))
    bound.bind_ortvalue_output("out", view(out))
    kept = (inputs, out)  # the io-binding keeps no array alive
    return lambda kept=kept: run(bound, None)  # type: ignore[misc]


def _settings() -> Any:
    settings = binding.ort.SessionOptions()
    for name, value in SETTINGS.items():
        setattr(settings, name, value)
    return settings
