"""Packages of as many steps as are asked for: what compiling costs by their number."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tools.fixtures.document import (
    Document,
    application,
    branch,
    emit,
    invoke,
    literal,
    output,
    package,
    sequence,
    tensor,
    write_document,
)
from tools.fixtures.document import onnx as component

FLOW = ("workflow_ssa", "linear_effects", "nested_control_flow", "typed_emit", "streaming_emit")
EVERY = 10
"""Of so many steps one is a branch, the others are invokes of two small graphs in turn."""


def write_steps(folder: Path, count: int) -> None:
    """A package of `count` steps (invokes and branches) over one float32 [batch, width] value."""
    folder.mkdir(parents=True, exist_ok=True)
    wide = tensor("float32", "batch", "width", rows=True)
    components = {}
    for name, operator, number in (("scale", "Mul", 2.0), ("shift", "Add", 1.0)):
        write_graph(folder / f"{name}.onnx", operator, number)
        components[name] = component(f"{name}.onnx", {"x": wide}, {"y": wide})
    inputs = {"x": application(wide, "x"), "flag": literal(tensor("bool"), True)}
    steps, value = list[Document](), "x"
    for number in range(count):
        made = f"v{number}"
        steps.append(choice(value, made) if number % EVERY == EVERY - 1 else plain(number, value, made))
        value = made
    steps.append(emit(value, "result"))
    write_document(folder, package(FLOW, inputs, {"result": output(wide)}, components, steps))


def plain(number: int, value: str, made: str) -> Document:
    """One invoke."""
    return invoke("scale" if number % 2 else "shift", {"x": value}, {"y": made})


def choice(value: str, made: str) -> Document:
    """One branch with an invoke in each case."""
    cases = {
        "true": sequence(invoke("scale", {"x": value}, {"y": f"{made}.yes"})),
        "false": sequence(invoke("shift", {"x": value}, {"y": f"{made}.no"})),
    }
    joined = {made: {"cases": {"true": f"{made}.yes", "false": f"{made}.no"}}}
    return branch("flag", cases, outputs=joined)


def write_graph(path: Path, operator: str, number: float) -> None:
    """y = x * number, or x + number."""
    shape = ["batch", "width"]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    constant = helper.make_tensor("number", TensorProto.FLOAT, [], [number])
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "number"], ["y"])], path.stem, ports[:1], ports[1:], [constant]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
