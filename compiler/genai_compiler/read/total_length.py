"""Where in-place attention operators take their lengths from: widths and row sums of graph inputs.

GroupQueryAttention's output `present` is as long as the larger of its past and its total length, and a row of it is
valid up to `seqlens_k + 1` (onnxruntime ContribOperators.md), so who owns the buffer must know both before the run.
"""

from typing import Literal

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from genai_compiler.read.attention import is_grouped_attention
from genai_compiler.read.nodes import Constants, input_at, is_onnx, nested_graphs, sums_rows

LengthSource = tuple[Literal["width", "sum"], str]
"""(`width`: the last extent; `sum`: the largest row sum) of a rank-2 graph input."""

_SEQLENS, _TOTAL_LENGTH = 5, 6
_PASS_ON = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})
_WHOLE = frozenset[int]({TensorProto.INT32, TensorProto.INT64})


def total_length_sources(model: ModelProto) -> tuple[LengthSource, ...]:
    """The sources whose maximum all GroupQueryAttention take as total length, sorted; () when that is not provable."""
    lengths = _Lengths(model.graph)
    found = {lengths.sources(name) for name in _given(model, _TOTAL_LENGTH)}
    return tuple(sorted(found.pop() or ())) if len(found) == 1 else ()


def valid_length_source(model: ModelProto) -> str:
    """The graph input whose row sums every GroupQueryAttention takes as valid lengths; "" when that is not provable."""
    lengths = _Lengths(model.graph)
    found = {lengths.one_more(name) for name in _given(model, _SEQLENS)}
    return found.pop() if len(found) == 1 else ""


def _given(model: ModelProto, slot: int) -> set[str]:
    """Values that the operators take there; {""} when one lies in a nested graph or takes none."""
    every = [node for inner in nested_graphs(model.graph) for node in inner.node if is_grouped_attention(node)]
    outer = [node for node in model.graph.node if is_grouped_attention(node)]
    if len(every) != len(outer) or any(len(node.input) <= slot for node in outer):
        return {""}
    return {str(node.input[slot]) for node in outer}


def _passes_on(node: NodeProto) -> bool:
    """Whether the one element that matters stays what it is: no cast to a type that rounds or wraps early."""
    types = {int(each.i) for each in node.attribute if each.name == "to"}
    return node.op_type in _PASS_ON and types <= _WHOLE


class _Lengths:
    """One graph, of which only ONNX's own operators are followed. A trail ends where no node of them makes a value."""

    def __init__(self, graph: GraphProto) -> None:
        self._writers = {name: node for node in graph.node if is_onnx(node) for name in node.output if name}
        self._ports, self._constants = {each.name: each for each in graph.input}, Constants(graph)

    def one_more(self, name: str) -> str:
        """The input of which `name` is row sums less one (`seqlens_k`), or ""."""
        node = self._writers.get(name)
        while node is not None and _passes_on(node):
            node = self._writers.get(input_at(node, 0))
        off = {"Sub": [1], "Add": [-1]}.get(node.op_type if node is not None else "")
        if node is None or off is None or self._constants.ints(input_at(node, 1)) != off:
            return ""
        summed = self._writers.get(input_at(node, 0))
        if summed is None or not sums_rows(summed, self._constants):
            return ""
        found = self._input("sum", input_at(summed, 0))
        return found[1] if found is not None else ""

    def sources(self, name: str) -> frozenset[LengthSource] | None:
        """The sources of which `name` is the maximum, None where that is not provable. Each value is looked at once."""
        pending, seen, found = [name], set[str](), set[LengthSource]()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            node = self._writers.get(value)
            if node is None:
                return None
            if _passes_on(node):
                pending.append(input_at(node, 0))
            elif node.op_type == "Max":
                pending.extend(node.input)
            elif (source := self._source(node)) is not None:
                found.add(source)
            else:
                return None
        return frozenset(found)

    def _source(self, node: NodeProto) -> LengthSource | None:
        """The source that a node makes a length of."""
        maker = self._writers.get(input_at(node, 0))
        if node.op_type == "ReduceMax":
            summed = maker is not None and sums_rows(maker, self._constants)
            return self._input("sum", input_at(maker, 0)) if maker is not None and summed else None
        shape = maker if node.op_type == "Gather" else node
        if shape is None or shape.op_type != "Shape" or not self._picks_width(node, shape):
            return None
        return self._input("width", input_at(shape, 0))

    def _picks_width(self, node: NodeProto, shape: NodeProto) -> bool:
        """Gather of entry 1 of a whole shape, or Shape from 1 to 2."""
        ends = {each.name: int(each.i) for each in shape.attribute}
        if node.op_type == "Gather":
            return not ends and self._constants.ints(input_at(node, 1)) in ([1], [-1])
        return ends.get("start") in (1, -1) and ends.get("end", 2) == 2

    def _input(self, kind: Literal["width", "sum"], name: str) -> LengthSource | None:
        """The source, when `name` is a rank-2 graph input of whole numbers, as it is or cast to another such type."""
        node = self._writers.get(name)
        while node is not None and node.op_type in ("Cast", "Identity") and _passes_on(node):
            name = input_at(node, 0)
            node = self._writers.get(name)
        port = self._ports.get(name)
        if port is None or len(port.type.tensor_type.shape.dim) != 2:
            return None
        return (kind, name) if kind == "width" or port.type.tensor_type.elem_type in _WHOLE else None
