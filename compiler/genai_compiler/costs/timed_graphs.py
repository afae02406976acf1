"""The small graphs that are timed: calls with more and fewer ports, chains of operators, searches, samplers."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, save_model

OPSET, IR_VERSION = 21, 10
PORTS = 8
SHORT, LONG = 8, 40
"""Operators of the two chains."""
TEMPERATURE, TOP_K, TOP_P = 0.8, 50, 0.9

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
        "top_k+top_p": _sampler(_by_rank),
        "top_p": _sampler(_by_mass),
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


def _sampler(cut: "Callable[[], tuple[list[NodeProto], list[TensorProto]]]") -> ModelProto:
    """x float32 [1, V], u float32 [1, 1] -> z int64 [1, 1]: cut, softmax at a temperature, top-p, inverse CDF at u."""
    cutting, held = cut()
    nodes = [
        *cutting,
        _node("Div", ["values", "temperature"], "scaled"),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=-1),
        helper.make_node("CumSum", ["shares", "axis"], ["before"], exclusive=1),
        _node("Less", ["before", "mass"], "kept"),
        helper.make_node("Cast", ["kept"], ["weight"], to=FLOAT),
        _node("Mul", ["shares", "weight"], "cut"),
        _node("CumSum", ["cut", "axis"], "sums"),
        helper.make_node("ReduceSum", ["cut", "last"], ["total"], keepdims=1),
        _node("Mul", ["u", "total"], "drawn"),
        _node("LessOrEqual", ["sums", "drawn"], "below"),
        helper.make_node("Cast", ["below"], ["ones"], to=INT),
        helper.make_node("ReduceSum", ["ones", "last"], ["place"], keepdims=1),
        helper.make_node("GatherElements", ["tokens", "place"], ["z"], axis=1),
    ]
    held += [
        helper.make_tensor("temperature", FLOAT, [], [TEMPERATURE]),
        helper.make_tensor("mass", FLOAT, [], [TOP_P]),
        helper.make_tensor("axis", INT, [], [1]),
        helper.make_tensor("last", INT, [1], [1]),
    ]
    ins = [_value("x", FLOAT, [1, "extent"]), _value("u", FLOAT, [1, 1])]
    return _model(nodes, ins, [_value("z", INT, [1, 1])], held)


def _by_rank() -> tuple[list[NodeProto], list[TensorProto]]:
    """The TOP_K largest scores in order."""
    nodes = [helper.make_node("TopK", ["x", "count"], ["values", "tokens"], axis=-1)]
    return nodes, [helper.make_tensor("count", INT, [1], [TOP_K])]


def _by_mass() -> tuple[list[NodeProto], list[TensorProto]]:
    """All scores in order: a cut by mass alone bounds no count."""
    nodes = [
        helper.make_node("Shape", ["x"], ["count"], start=1, end=2),
        helper.make_node("TopK", ["x", "count"], ["values", "tokens"], axis=-1),
    ]
    return nodes, []


def _node(operator: str, takes: list[str], gives: str) -> NodeProto:
    node: NodeProto = helper.make_node(operator, takes, [gives])
    return node


def _value(name: str, kind: int, shape: Sequence[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _model(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    held: Sequence[TensorProto] = (),
) -> ModelProto:
    graph = helper.make_graph(nodes, "timed", inputs, outputs, list(held))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
