"""Where in-place attention operators take their lengths from: widths and row sums of graph inputs.

GroupQueryAttention's output `present` is as long as the larger of its past and its total length, and a row of it is
valid up to `seqlens_k + 1` (onnxruntime ContribOperators.md), so who owns the buffer must know both before the run.
"""

from typing import Literal

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from genai_compiler.read.attention import is_grouped_attention
from genai_compiler.read.nodes import constant_ints, is_onnx, nested_graphs, sums_rows

LengthSource = tuple[Literal["width", "sum"], str]
"""(`width`: the last extent; `sum`: the largest row sum) of a rank-2 graph input."""

_SEQLENS, _TOTAL_LENGTH = 5, 6
_PASS_ON = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})
_WHOLE = frozenset[int]({TensorProto.INT32, TensorProto.INT64})
_DEPTH = 32


def total_length_sources(model: ModelProto) -> tuple[LengthSource, ...]:
    """The sources whose maximum all GroupQueryAttention take as total length, sorted; () when that is not provable."""
    graph, writers = model.graph, _writers(model.graph)
    found = {_sources(name, writers, graph, _DEPTH) for name in _given(model, _TOTAL_LENGTH)}
    return tuple(sorted(found.pop() or ())) if len(found) == 1 else ()


def valid_length_source(model: ModelProto) -> str:
    """The graph input whose row sums every GroupQueryAttention takes as valid lengths; "" when that is not provable."""
    graph, writers = model.graph, _writers(model.graph)
    found = {_one_more(name, writers, graph) for name in _given(model, _SEQLENS)}
    return found.pop() if len(found) == 1 else ""


def _given(model: ModelProto, slot: int) -> set[str]:
    """Values that the operators take there; {""} when one lies in a nested graph or takes none."""
    every = [node for inner in nested_graphs(model.graph) for node in inner.node if is_grouped_attention(node)]
    outer = [node for node in model.graph.node if is_grouped_attention(node)]
    if len(every) != len(outer) or any(len(node.input) <= slot for node in outer):
        return {""}
    return {str(node.input[slot]) for node in outer}


def _writers(graph: GraphProto) -> dict[str, NodeProto]:
    """Who makes each value, of ONNX's own operators."""
    return {name: node for node in graph.node if is_onnx(node) for name in node.output}


def _passes_on(node: NodeProto) -> bool:
    """Whether the one element that matters stays what it is: no cast to a type that rounds or wraps early."""
    types = {int(each.i) for each in node.attribute if each.name == "to"}
    return node.op_type in _PASS_ON and types <= _WHOLE


def _one_more(name: str, writers: dict[str, NodeProto], graph: GraphProto) -> str:
    """The input of which `name` is row sums less one (`seqlens_k`), or ""."""
    node = writers.get(name)
    while node is not None and _passes_on(node):
        node = writers.get(node.input[0])
    off = {"Sub": [1], "Add": [-1]}.get(node.op_type if node is not None else "")
    if node is None or off is None or constant_ints(graph, node.input[1]) != off:
        return ""
    summed = writers.get(node.input[0])
    if summed is None or not sums_rows(summed, graph):
        return ""
    return next((port for _, port in _of("sum", summed.input[0], writers, graph) or ()), "")


def _sources(name: str, writers: dict[str, NodeProto], graph: GraphProto, depth: int) -> frozenset[LengthSource] | None:
    node = writers.get(name)
    if node is None or not depth:
        return None
    if _passes_on(node):
        return _sources(node.input[0], writers, graph, depth - 1)
    if node.op_type == "Max":
        parts = [_sources(each, writers, graph, depth - 1) for each in node.input]
        return None if None in parts else frozenset(each for part in parts if part for each in part)
    if node.op_type == "ReduceMax":
        summed = writers.get(node.input[0])
        if summed is None or not sums_rows(summed, graph):
            return None
        return _of("sum", summed.input[0], writers, graph)
    shape = writers.get(node.input[0]) if node.op_type == "Gather" else node
    if shape is None or shape.op_type != "Shape" or not _picks_width(node, shape, graph):
        return None
    return _of("width", shape.input[0], writers, graph)


def _picks_width(node: NodeProto, shape: NodeProto, graph: GraphProto) -> bool:
    """Gather of entry 1 of a whole shape, or Shape from 1 to 2."""
    ends = {each.name: int(each.i) for each in shape.attribute}
    if node.op_type == "Gather":
        return not ends and constant_ints(graph, node.input[1]) in ([1], [-1])
    return ends.get("start") in (1, -1) and ends.get("end", 2) == 2


def _of(
    kind: Literal["width", "sum"], name: str, writers: dict[str, NodeProto], graph: GraphProto
) -> frozenset[LengthSource] | None:
    """The source, when `name` is a rank-2 graph input of whole numbers, as it is or cast to another such type."""
    while (node := writers.get(name)) is not None and node.op_type in ("Cast", "Identity") and _passes_on(node):
        name = node.input[0]
    port = next((each for each in graph.input if each.name == name), None)
    if port is None or len(port.type.tensor_type.shape.dim) != 2:
        return None
    whole = port.type.tensor_type.elem_type in _WHOLE
    return frozenset({(kind, name)}) if kind == "width" or whole else None
