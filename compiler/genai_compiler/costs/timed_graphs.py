"""The small graphs that are timed: calls with more and fewer ports, chains of operators, searches."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, save_model

OPSET, IR_VERSION = 21, 10
PORTS = 8
SHORT, LONG = 8, 40
"""Operators of the two chains."""

INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def write_graphs(folder: Path) -> dict[str, Path]:
    """Write every graph into a folder; its file by name."""
    made: dict[str, ModelProto] = {
        "one": _wide(1, 1),
        "taking": _wide(PORTS, 1),
        "giving": _wide(PORTS, PORTS),
        "short": _chain(SHORT),
        "long": _chain(LONG),
        "ArgMax": _search("ArgMax"),
        "ArgMin": _search("ArgMin"),
    }
    for name, model in made.items():
        save_model(model, folder / f"{name}.onnx")
    return {name: folder / f"{name}.onnx" for name in made}


def _wide(inputs: int, outputs: int) -> ModelProto:
    """x0.. int64 [1] -> z0.. int64 [1]: an operator an output, the first inputs' (the others are read by none)."""
    ins = [_value(f"x{index}", INT, ["rows"]) for index in range(inputs)]
    outs = [_value(f"z{index}", INT, ["rows"]) for index in range(outputs)]
    return _model([_node("Neg", [f"x{index}"], f"z{index}") for index in range(outputs)], ins, outs)


def _chain(length: int) -> ModelProto:
    """x, y int64 [1] -> z: x + y + y + ..."""
    names = ["x", *(f"t{index}" for index in range(length - 1)), "z"]
    nodes = [_node("Add", [one, "y"], other) for one, other in pairwise(names)]
    return _model(nodes, [_value("x", INT, ["rows"]), _value("y", INT, ["rows"])], [_value("z", INT, ["rows"])])


def _search(operator: str) -> ModelProto:
    node = helper.make_node(operator, ["x"], ["z"], axis=-1, keepdims=0)
    return _model([node], [_value("x", FLOAT, ["rows", "extent"])], [_value("z", INT, ["rows"])])


def _node(operator: str, takes: list[str], gives: str) -> NodeProto:
    node: NodeProto = helper.make_node(operator, takes, [gives])
    return node


def _value(name: str, kind: int, shape: Sequence[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _model(nodes: list[NodeProto], inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> ModelProto:
    graph = helper.make_graph(nodes, "timed", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
