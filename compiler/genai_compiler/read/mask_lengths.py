"""What becomes of a mask that attention asks for two numbers only: how many ones a row has, and how wide it is.

Exporters write it as operators of their own: the mask's rows are summed, one is subtracted, and its width is taken from
its shape, all for the inputs `seqlens_k` and `total_sequence_length` of GroupQueryAttention (onnxruntime
ContribOperators.md). Whoever makes the mask knows both numbers.
"""

from dataclasses import dataclass
from typing import Literal

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from genai_compiler.read.attention import is_grouped_attention
from genai_compiler.read.nodes import Constants, axes_of, input_at, integer, is_onnx, nested_graphs, sums_rows

LAST, WIDTH = 5, 6
"""Inputs of GroupQueryAttention: the last position that counts in each row, and the width of the whole."""
_EXACT = (TensorProto.INT32, TensorProto.INT64)
_Kind = Literal["mask", "sum", "last", "shape", "width"]


@dataclass(frozen=True)
class MaskLengths:
    """Values that attention reads, by what they are: each row's sum less one, and the mask's width.

    made: everything that is computed from the mask; nothing but attention reads it.
    """

    last: tuple[str, ...]
    width: tuple[str, ...]
    made: tuple[str, ...]


def mask_lengths(model: ModelProto, mask: str) -> MaskLengths | str:
    """The two numbers behind a mask [rows, total] of whole numbers or truth values, or why it is more than these."""
    graph = model.graph
    port = next((each for each in graph.input if each.name == mask), None)
    if port is None or port.type.tensor_type.elem_type not in (*_EXACT, TensorProto.BOOL):
        return f"'{mask}' is no input of whole numbers"
    kinds: dict[str, _Kind] = {mask: "mask"}
    constants, read, readers = Constants(graph), set[str](), 0
    for node in graph.node:
        taken = kinds.keys() & set(node.input)
        readers += bool(taken)
        if taken and is_grouped_attention(node):
            if not _asks_lengths(node, kinds):
                return f"attention takes more of '{mask}' than its lengths"
            read |= taken
        elif taken:
            kind = _made(node, kinds, constants)
            if kind is None or len(node.output) != 1:
                return f"{node.op_type} takes more of '{mask}' than its lengths"
            kinds[str(node.output[0])] = kind
    if readers != sum(not kinds.keys().isdisjoint(node.input) for node in graph.node):
        return f"what is computed of '{mask}' is read by operators that stand before it"  # ONNX Runtime sorts them
    if _shown(graph, set(kinds)):
        return f"what is computed of '{mask}' is read outside the graph, or in one nested in it"
    last, width = (tuple(sorted(each for each in read if kinds[each] == kind)) for kind in ("last", "width"))
    if not last or not width:
        return f"no attention takes its lengths from '{mask}'"
    return MaskLengths(last, width, tuple(name for name in kinds if name != mask))


def _asks_lengths(node: NodeProto, kinds: dict[str, _Kind]) -> bool:
    """Whether attention reads what comes from the mask as lengths, and at no other input."""
    wanted: dict[int, _Kind] = {LAST: "last", WIDTH: "width"}
    return all(kinds[name] == wanted.get(at) for at, name in enumerate(node.input) if name in kinds)


def _made(node: NodeProto, kinds: dict[str, _Kind], constants: Constants) -> _Kind | None:
    """What a node makes of the one value of these kinds that it reads; None where that is nothing of the kind."""
    kind = kinds.get(input_at(node, 0))
    if kind is None or not is_onnx(node) or any(name in kinds for name in node.input[1:]):
        return None
    match node.op_type, kind:
        case "Identity", _:
            return kind
        case "Cast", _:
            return kind if integer(node, "to", 0) in _EXACT else None
        case "ReduceSum", "mask":
            return "sum" if sums_rows(node, constants) else None
        case "Sub", "sum":
            return "last" if constants.ints(input_at(node, 1)) == [1] else None
        case "Shape", "mask":
            return _extents(integer(node, "start", 0), integer(node, "end", 2))
        case "Gather", "shape":
            return "width" if constants.ints(input_at(node, 1)) in ([1], [-1]) else None
        case "Squeeze", "width":
            return "width"
        case "Squeeze", "last":
            return "last" if axes_of(node, constants) in ([1], [-1]) else None
        case _:
            return None


def _extents(start: int, end: int) -> _Kind | None:
    """What `Shape` gives of two axes: all of them, or the last one alone."""
    asked = list(range(2))[start:end]
    return "shape" if asked == [0, 1] else "width" if asked == [1] else None


def _shown(graph: GraphProto, names: set[str]) -> bool:
    inner = [each for each in nested_graphs(graph) if each is not graph]
    captured = (name for each in inner for node in each.node for name in node.input)
    published = (each.name for one in (graph, *inner) for each in one.output)
    return not names.isdisjoint({*captured, *published})
