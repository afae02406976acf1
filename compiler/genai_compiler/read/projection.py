"""Where a decoder's positions can be thinned out before its logits: the narrowest value that all logits come from.

Behind that value every operator treats each position for itself. Found from dominators and from what operators do to
axis 1 of [rows, positions, ...]; nothing is guessed from names.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

import networkx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from genai_compiler.read.graph_facts import random_ops
from genai_compiler.read.nodes import (
    CONTRIB,
    Constants,
    axes_of,
    constant_ints,
    graphs_of,
    input_at,
    integer,
    is_onnx,
    nested_graphs,
    operator_of,
)

_INPUTS = ""
"""Stands for all graph inputs; no value has this name."""
_FAR = 256
"""Values behind a hidden state, at most; a whole layer has more operators that mix positions than this."""
POSITIONS = 1
"""The axis of positions."""


@dataclass(frozen=True)
class Layout:
    """What is known of a value behind the hidden state.

    kept: its rank is the hidden state's own, not one that a reshape gave it. times: its first extent in rows.
    """

    rank: int
    kept: bool
    times: int = 1


@dataclass(frozen=True)
class Projection:
    """hidden: [rows, positions, features], what all logits come from. behind: values that have positions, from it on.

    label: the name or the operator of the node that gives `hidden`.
    """

    hidden: str
    behind: tuple[str, ...]
    label: str


def logits_projection(model: ModelProto, logits: str, given: Set[str] = frozenset()) -> Projection | str:
    """How a rank-3 output [rows, positions, vocabulary] comes from the hidden state, or why that is not clear.

    given: ports that get a value although an initializer could stand in.
    """
    graph = model.graph
    if random_ops(model):
        return "the graph draws random numbers"
    writers = {name: node for node in graph.node for name in node.output if name}
    flow = _flow(graph, given)
    if logits not in flow:
        return "the logits do not depend on the inputs"
    above = networkx.immediate_dominators(flow, _INPUTS)
    found: Projection | None = None
    hidden = above[logits]
    while hidden in writers and len(networkx.descendants(flow, hidden)) <= _FAR:
        behind = _behind(flow, hidden, logits, writers, graph)
        if behind is not None and any(operator_of(writers[name]) in _PRODUCTS for name in behind):
            found = Projection(hidden, behind, writers[hidden].name or writers[hidden].op_type)
        hidden = above[hidden]
    return found or "the operators before the logits may mix positions, or others read what they make"


def _flow(graph: GraphProto, given: Set[str]) -> networkx.DiGraph:
    """An edge from each value to what is made from it, only what depends on the inputs and what else is `given`."""
    held = {each.name for each in graph.initializer} - given
    flow = networkx.DiGraph()
    flow.add_edges_from((_INPUTS, each.name) for each in graph.input if each.name not in held)
    for node in graph.node:
        for name in (*node.input, *_captured(node)):
            if name in flow:
                flow.add_edges_from((name, made) for made in node.output if made)
    return flow


def _captured(node: NodeProto) -> set[str]:
    """Every name that graphs nested in a node read."""
    inner = (each for attribute in node.attribute for graph in graphs_of(attribute) for each in nested_graphs(graph))
    return {name for graph in inner for each in graph.node for name in each.input}


def _behind(
    flow: networkx.DiGraph, hidden: str, logits: str, writers: Mapping[str, NodeProto], graph: GraphProto
) -> tuple[str, ...] | None:
    """The values on the way from `hidden` to the logits, when each operator there leaves positions alone."""
    between = (networkx.descendants(flow, hidden) & networkx.ancestors(flow, logits)) | {logits}
    published = {each.name for each in graph.output} - {logits}
    order = [name for node in graph.node for name in node.output if name in between]
    layouts = {hidden: Layout(3, True)}
    for name in order:
        node = writers[name]
        if (set(node.input) & set(flow)) - set(layouts) or name in published:
            return None
        layout = _layout(node, layouts, graph)
        if layout is None:
            return None
        layouts[name] = layout
    readers = {made for name in between for made in flow.successors(name)}
    alone = readers <= between and layouts[logits] == Layout(3, True)
    return tuple(order) if alone else None


def _layout(node: NodeProto, layouts: Mapping[str, Layout], graph: GraphProto) -> Layout | None:
    """What a node makes of its operands' layouts, None when it might touch positions."""
    rule = _RULES.get(operator_of(node))
    given = [layouts[name] for name in node.input if name in layouts]
    leads = rule in (_alone, _packed_product, _normalized, _product, _reduced, _reshaped, _split)
    if rule is None or not given or (leads and node.input[0] not in layouts):
        return None
    return rule(node, given, graph)


Rule = Callable[[NodeProto, list[Layout], GraphProto], Layout | None]


def _alone(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """Element for element of one operand."""
    return given[0] if len(given) == 1 else None


def _packed_product(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """By a packed constant matrix, where the last axis is not that of positions."""
    return given[0] if len(given) == 1 and given[0].rank > POSITIONS + 1 else None


def _normalized(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """Along axes behind positions, by factors that are the same for all positions."""
    rank = given[0].rank
    shapes = [_shape(name, graph) for name in node.input[1:] if name]
    alike = all(shape is not None and _without_positions(shape, rank) for shape in shapes)
    return given[0] if len(given) == 1 and alike and integer(node, "axis", -1) % rank > POSITIONS else None


def _broadcast(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """Element for element of operands of one rank; constants have no axis of positions."""
    rank = given[0].rank
    positioned = sum(1 for name in node.input if name) - len(given)
    if any((each.rank, each.times) != (rank, given[0].times) for each in given):
        return None
    shapes = [_shape(name, graph) for name in node.input]
    fixed = [shape for shape in shapes if shape is not None]
    if len(fixed) != positioned or any(not _without_positions(shape, rank) for shape in fixed):
        return None
    return Layout(rank, all(each.kept for each in given), given[0].times)


def _product(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """By a constant matrix: rows of the left operand stay rows, where the last axis is not that of positions."""
    fits = len(given) == 1 and given[0].rank > POSITIONS + 1
    return given[0] if fits and len(_shape(input_at(node, 1), graph) or ()) == 2 else None


def _concatenated(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """Along any axis but that of positions. Operands have one rank."""
    axis, rank = integer(node, "axis", 0) % given[0].rank, given[0].rank
    if len(given) != len(node.input) or axis == POSITIONS:
        return None
    if axis and any(each.times != given[0].times for each in given):
        return None
    times = given[0].times if axis else sum(each.times for each in given)
    return Layout(rank, any(each.kept for each in given), times)


def _split(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """Along any axis but that of positions; along the first into equal parts of whole rows."""
    axis, (layout,) = integer(node, "axis", 0) % given[0].rank, given
    if axis == POSITIONS:
        return None
    if axis:
        return layout
    parts = len(node.output)
    equal = len(node.input) == 1 and not any(each.name == "split" for each in node.attribute)
    return replace(layout, times=layout.times // parts) if equal and layout.times % parts == 0 else None


def _reduced(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """Over axes behind positions."""
    axes, rank = axes_of(node, Constants(graph)), given[0].rank
    if not axes or any(axis % rank <= POSITIONS for axis in axes):
        return None
    return given[0] if integer(node, "keepdims", 1) else Layout(rank - len(axes), False, given[0].times)


def _reshaped(node: NodeProto, given: list[Layout], graph: GraphProto) -> Layout | None:
    """To a constant shape that begins with 0, 0: the first two extents stay."""
    shape = constant_ints(graph, input_at(node, 1))
    if len(given) != 1 or shape is None or shape[:2] != [0, 0] or integer(node, "allowzero", 0):
        return None
    return Layout(len(shape), False, given[0].times)


_PACKED = ((CONTRIB, "MatMulNBits"), (CONTRIB, "MatMulBnb4"))
"""Products by a constant matrix that lies packed in the operator's own form."""

_RULES: dict[tuple[str, str], Rule] = {
    **{("", each): _alone for each in ("Cast", "Identity", "Tanh", "Neg", "Sigmoid", "Relu", "Gelu", "Erf", "Clip")},
    **{("", each): _normalized for each in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")},
    **{("", each): _broadcast for each in ("Add", "Sub", "Mul", "Div")},
    **{("", each): _reduced for each in ("ReduceSum", "ReduceMean", "ReduceMax")},
    ("", "MatMul"): _product,
    **dict.fromkeys(_PACKED, _packed_product),
    ("", "Concat"): _concatenated,
    ("", "Split"): _split,
    ("", "Reshape"): _reshaped,
}  # fmt: skip
"""Operator -> what it makes of layouts."""


_PRODUCTS = frozenset({("", "MatMul"), *_PACKED})
"""What it pays to thin out for: less is not worth an edited graph."""


def _without_positions(shape: list[int], rank: int) -> bool:
    """Whether a constant of this shape, broadcast against `rank` axes, is the same for all positions."""
    aligned = [1] * (rank - len(shape)) + shape
    return len(shape) <= rank and aligned[POSITIONS] == 1


def _shape(name: str, graph: GraphProto) -> list[int] | None:
    """The extents of an initializer or constant; a transposed or dequantized initializer's rank, as ones.

    Of an input with a default only what the graph declares is certain: -1 stands for what a caller may choose.
    """
    stated: dict[str, list[int] | None] = {
        each.name: [int(dim) for dim in each.dims] for each in reversed(graph.initializer)
    }
    stated |= {port.name: _declared(port) for port in graph.input}
    writers = {made: node for node in graph.node for made in node.output if made}
    turns = 0
    while name not in stated:
        writer = writers.get(name)
        if writer is None or not is_onnx(writer):
            return None
        if writer.op_type == "Constant":
            stated[name] = next((_constant_shape(each) for each in writer.attribute), None)
        elif writer.op_type in ("Transpose", "Cast", "Identity", "DequantizeLinear"):
            turns += writer.op_type == "Transpose"
            name = input_at(writer, 0)
        else:
            return None
    shape = stated[name]
    if turns and (shape is None or len(shape) != 2):
        return None
    return shape[::-1] if shape is not None and turns % 2 else shape


def _declared(port: ValueInfoProto) -> list[int] | None:
    tensor = port.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [int(dim.dim_value) if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]


def _constant_shape(attribute: AttributeProto) -> list[int] | None:
    """The extents of a constant that this attribute of a `Constant` gives."""
    if attribute.name == "value":
        return [int(dim) for dim in attribute.t.dims]
    if attribute.name in ("value_float", "value_int", "value_string"):
        return []
    lists = {"value_floats": attribute.floats, "value_ints": attribute.ints, "value_strings": attribute.strings}
    return [len(lists[attribute.name])] if attribute.name in lists else None
