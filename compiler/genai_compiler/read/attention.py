"""Which graph inputs and outputs are the past and present of an attention operator.

Found by following the graph's edges, never by names. Operators: com.microsoft GroupQueryAttention, PagedAttention,
MultiHeadAttention, DecoderMaskedMultiHeadAttention and Attention (onnxruntime ContribOperators.md); ai.onnx Attention
(opset 23) and TensorScatter (opset 24).
"""

from collections import Counter
from dataclasses import dataclass

from onnx import GraphProto, NodeProto

from genai_compiler.read.head_size import Projections, Sizes
from genai_compiler.read.nodes import CONTRIB, input_at, integer, is_onnx, operator_of, output_at


@dataclass(frozen=True)
class CacheOp:
    """An attention operator whose past inputs are graph inputs and whose present outputs are graph outputs, directly.

    past_value and present_value are "" where one tensor holds keys and values (com.microsoft Attention).
    local_window: positions a query sees, None for all. bounded: the operator itself drops what left its window, so
    that its cache is a ring and not a history. head_sizes: of keys and of values, where the weights tell.
    """

    op_type: str
    domain: str
    past_key: str
    past_value: str
    present_key: str
    present_value: str
    local_window: int | None
    bounded: bool = False
    head_sizes: Sizes = (None, None)


@dataclass(frozen=True)
class Slots:
    """Where an operator takes its past and gives its present: input and output indices, -1 for none."""

    past: tuple[int, int]
    present: tuple[int, int]


_SLOTS: dict[tuple[str, str], Slots] = {
    (CONTRIB, "GroupQueryAttention"): Slots((3, 4), (1, 2)),
    (CONTRIB, "PagedAttention"): Slots((3, 4), (1, 2)),
    (CONTRIB, "MultiHeadAttention"): Slots((6, 7), (1, 2)),
    (CONTRIB, "DecoderMaskedMultiHeadAttention"): Slots((5, 6), (1, 2)),
    (CONTRIB, "Attention"): Slots((4, -1), (1, -1)),
    ("", "Attention"): Slots((4, 5), (1, 2)),
}
ATTENTION_OPS = frozenset(op for _, op in _SLOTS)


def attention_slots(node: NodeProto) -> Slots | None:
    """Where an attention operator takes its past and gives its present, None for any other node."""
    return _SLOTS.get(operator_of(node))


def cache_ops(graph: GraphProto) -> tuple[CacheOp, ...]:
    """The cache operators of `graph`, in node order.

    A past tensor that anything else reads too, or a present tensor that is no graph output, disqualifies its operator.
    """
    edges = _Edges(graph)
    found = (_attention_cache(node, edges) or _scatter_cache(node, edges) for node in graph.node)
    return tuple(each for each in found if each is not None)


def writes_in_place(op: CacheOp) -> bool:
    """Whether the operator may be given one buffer as past and present, longer than what is valid in it.

    GroupQueryAttention takes the valid length from its own inputs; TensorScatter writes at given positions. The others
    append: their past must be exactly as long as what is valid.
    """
    key = (op.domain, op.op_type)
    return key in {(CONTRIB, "GroupQueryAttention"), (CONTRIB, "PagedAttention"), ("", "TensorScatter")}


def is_grouped_attention(node: NodeProto) -> bool:
    """Whether it is GroupQueryAttention, the operator that takes its lengths from inputs of its own."""
    return operator_of(node) == (CONTRIB, "GroupQueryAttention")


class _Edges:
    """The edges of one graph: what is an input, an output, who writes and how often each value is read."""

    def __init__(self, graph: GraphProto) -> None:
        held = {each.name for each in graph.initializer}
        self.inputs = {each.name for each in graph.input} - held
        self.outputs = {each.name for each in graph.output}
        self.reads = read_counts(graph)
        self.writer: dict[str, NodeProto] = {name: node for node in graph.node for name in node.output if name}
        self.projections = Projections(graph, self.writer)

    def past(self, name: str) -> bool:
        return name in self.inputs and self.reads[name] == 1

    def present(self, name: str) -> bool:
        return name in self.outputs


def read_counts(graph: GraphProto) -> Counter[str]:
    """How often each value is read: by nodes, by nested graphs, and as a graph output."""
    counts: Counter[str] = Counter()
    pending = [graph]
    while pending:
        each = pending.pop()
        counts.update(output.name for output in each.output)
        for node in each.node:
            counts.update(name for name in node.input if name)
            pending.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
            pending.extend(nested for attribute in node.attribute for nested in attribute.graphs)
    return counts


def _attention_cache(node: NodeProto, edges: _Edges) -> CacheOp | None:
    domain, op_type = operator_of(node)
    slots = attention_slots(node)
    if slots is None:
        return None
    past_key, past_value = (input_at(node, index) for index in slots.past)
    present_key, present_value = (output_at(node, index) for index in slots.present)
    wanted = 1 if slots.past[1] < 0 else 2
    if not all(edges.past(name) for name in (past_key, past_value)[:wanted]):
        return None
    if not all(edges.present(name) for name in (present_key, present_value)[:wanted]):
        return None
    window = integer(node, "local_window_size", -1)
    bounded = integer(node, "sliding_window_cache", 0) != 0
    return CacheOp(
        op_type,
        domain,
        past_key,
        past_value,
        present_key,
        present_value,
        window if window > 0 else None,
        bounded,
        edges.projections.head_sizes(node),
    )


def _scatter_cache(node: NodeProto, edges: _Edges) -> CacheOp | None:
    """ai.onnx Attention that reads keys and values which two TensorScatter nodes have just updated."""
    if not is_onnx(node) or node.op_type != "Attention":
        return None
    key, value = (edges.writer.get(input_at(node, index)) for index in (1, 2))
    if key is None or value is None or not (_is_cache_scatter(key, edges) and _is_cache_scatter(value, edges)):
        return None
    return CacheOp("TensorScatter", "", key.input[0], value.input[0], key.output[0], value.output[0], None)


def _is_cache_scatter(node: NodeProto, edges: _Edges) -> bool:
    scatter = is_onnx(node) and node.op_type == "TensorScatter"
    return scatter and edges.past(input_at(node, 0)) and edges.present(output_at(node, 0))
