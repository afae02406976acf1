"""Where in-place attention operators take the total length from: widths and row sums of graph inputs.

GroupQueryAttention's output `present` is as long as the larger of its past and its total length (onnxruntime
ContribOperators.md), so whoever owns the buffer must know that length before the run.
"""

from typing import Literal

from onnx import GraphProto, ModelProto, NodeProto

from genai_compiler.read.graph_facts import constant_ints
from genai_compiler.read.signature import nested_graphs

LengthSource = tuple[Literal["width", "sum"], str]
"""(`width`: the last extent; `sum`: the largest row sum) of a rank-2 graph input."""

_TOTAL_LENGTH = 6
_PASS_ON = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})
_DEPTH = 32


def total_length_sources(model: ModelProto) -> tuple[LengthSource, ...]:
    """The sources whose maximum every GroupQueryAttention takes as total length, sorted; () when not provable."""
    graph = model.graph
    every = [node for inner in nested_graphs(graph) for node in inner.node if node.op_type == "GroupQueryAttention"]
    outer = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
    if not every or len(every) != len(outer) or any(len(node.input) <= _TOTAL_LENGTH for node in outer):
        return ()
    writers = {name: node for node in graph.node for name in node.output}
    found = {_sources(name, writers, graph, _DEPTH) for name in {str(node.input[_TOTAL_LENGTH]) for node in outer}}
    return tuple(sorted(found.pop() or ())) if len(found) == 1 else ()


def _sources(name: str, writers: dict[str, NodeProto], graph: GraphProto, depth: int) -> frozenset[LengthSource] | None:
    node = writers.get(name)
    if node is None or not depth:
        return None
    if node.op_type in _PASS_ON:
        return _sources(node.input[0], writers, graph, depth - 1)
    if node.op_type == "Max":
        parts = [_sources(each, writers, graph, depth - 1) for each in node.input]
        return None if None in parts else frozenset(each for part in parts if part for each in part)
    if node.op_type == "ReduceMax":
        summed = writers.get(node.input[0])
        if summed is None or not _sums_rows(summed, graph):
            return None
        return _of("sum", summed.input[0], writers, graph)
    shape = writers.get(node.input[0]) if node.op_type == "Gather" else node
    if shape is None or shape.op_type != "Shape" or not _picks_width(node, graph):
        return None
    return _of("width", shape.input[0], writers, graph)


def _picks_width(node: NodeProto, graph: GraphProto) -> bool:
    """Gather of entry 1 of a shape, or Shape from 1 to 2."""
    if node.op_type == "Gather":
        return constant_ints(graph, node.input[1]) in ([1], [-1])
    ends = {each.name: int(each.i) for each in node.attribute}
    return ends.get("start") in (1, -1) and ends.get("end", 2) == 2


def _sums_rows(node: NodeProto, graph: GraphProto) -> bool:
    if node.op_type != "ReduceSum":
        return False
    axes = [list(each.ints) for each in node.attribute if each.name == "axes"]
    if not axes and len(node.input) > 1:
        axes = [constant_ints(graph, node.input[1]) or []]
    return bool(axes) and axes[0] in ([1], [-1])


def _of(
    kind: Literal["width", "sum"], name: str, writers: dict[str, NodeProto], graph: GraphProto
) -> frozenset[LengthSource] | None:
    """The source, when `name` is a rank-2 graph input or a Cast of one."""
    while (node := writers.get(name)) is not None and node.op_type in ("Cast", "Identity"):
        name = node.input[0]
    port = next((each for each in graph.input if each.name == name), None)
    return frozenset({(kind, name)}) if port is not None and len(port.type.tensor_type.shape.dim) == 2 else None
