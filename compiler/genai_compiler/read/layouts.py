"""What operators do to axis 1 of [rows, positions, ...]: whether each position is treated for itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto

from genai_compiler.read.nodes import CONTRIB, Constants, axes_of, input_at, integer, is_onnx, operator_of

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


class Held:
    """What a graph fixes, by name: constants and extents of what is no result of its inputs."""

    def __init__(self, graph: GraphProto) -> None:
        self.graph, self.constants = graph, Constants(graph)
        self.writers = {name: node for node in graph.node for name in node.output if name}
        self._extents: dict[str, list[int] | None] = {
            each.name: [int(dim) for dim in each.dims] for each in reversed(graph.initializer)
        }
        self._extents |= {port.name: _declared(port) for port in graph.input}

    def shape(self, name: str) -> list[int] | None:
        """The extents of an initializer or constant; a transposed or dequantized initializer's rank, as ones.

        Of an input with a default only what the graph declares is certain: -1 stands for what a caller may choose.
        """
        turns = 0
        while name not in self._extents:
            writer = self.writers.get(name)
            if writer is None or not is_onnx(writer):
                return None
            if writer.op_type == "Constant":
                self._extents[name] = next((_constant_shape(each) for each in writer.attribute), None)
            elif writer.op_type in ("Transpose", "Cast", "Identity", "DequantizeLinear"):
                turns += writer.op_type == "Transpose"
                name = input_at(writer, 0)
            else:
                return None
        extents = self._extents[name]
        if turns and (extents is None or len(extents) != 2):
            return None
        return extents[::-1] if extents is not None and turns % 2 else extents


def layout_of(node: NodeProto, layouts: Mapping[str, Layout], held: Held) -> Layout | None:
    """What a node makes of its operands' layouts, None when it might touch positions."""
    rule = _RULES.get(operator_of(node))
    given = [layouts[name] for name in node.input if name in layouts]
    leads = rule in (_alone, _packed_product, _normalized, _product, _reduced, _reshaped, _split)
    if rule is None or not given or (leads and node.input[0] not in layouts):
        return None
    return rule(node, given, held)


Rule = Callable[[NodeProto, list[Layout], Held], Layout | None]


def _alone(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """Element for element of one operand."""
    return given[0] if len(given) == 1 else None


def _packed_product(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """By a packed constant matrix, where the last axis is not that of positions."""
    return given[0] if len(given) == 1 and given[0].rank > POSITIONS + 1 else None


def _normalized(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """Along axes behind positions, by factors that are the same for all positions."""
    rank = given[0].rank
    shapes = [held.shape(name) for name in node.input[1:] if name]
    alike = all(shape is not None and _without_positions(shape, rank) for shape in shapes)
    return given[0] if len(given) == 1 and alike and integer(node, "axis", -1) % rank > POSITIONS else None


def _broadcast(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """Element for element of operands of one rank; constants have no axis of positions."""
    rank = given[0].rank
    positioned = sum(1 for name in node.input if name) - len(given)
    if any((each.rank, each.times) != (rank, given[0].times) for each in given):
        return None
    shapes = [held.shape(name) for name in node.input]
    fixed = [shape for shape in shapes if shape is not None]
    if len(fixed) != positioned or any(not _without_positions(shape, rank) for shape in fixed):
        return None
    return Layout(rank, all(each.kept for each in given), given[0].times)


def _product(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """By a constant matrix: rows of the left operand stay rows, where the last axis is not that of positions."""
    fits = len(given) == 1 and given[0].rank > POSITIONS + 1
    return given[0] if fits and len(held.shape(input_at(node, 1)) or ()) == 2 else None


def _concatenated(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """Along any axis but that of positions. Operands have one rank."""
    axis, rank = integer(node, "axis", 0) % given[0].rank, given[0].rank
    if len(given) != len(node.input) or axis == POSITIONS:
        return None
    if axis and any(each.times != given[0].times for each in given):
        return None
    times = given[0].times if axis else sum(each.times for each in given)
    return Layout(rank, any(each.kept for each in given), times)


def _split(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """Along any axis but that of positions; along the first into equal parts of whole rows."""
    axis, (layout,) = integer(node, "axis", 0) % given[0].rank, given
    if axis == POSITIONS:
        return None
    if axis:
        return layout
    parts = len(node.output)
    equal = len(node.input) == 1 and not any(each.name == "split" for each in node.attribute)
    return replace(layout, times=layout.times // parts) if equal and layout.times % parts == 0 else None


def _reduced(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """Over axes behind positions."""
    rank = given[0].rank
    axes = {axis % rank for axis in axes_of(node, held.constants) or ()}
    if not axes or any(axis <= POSITIONS for axis in axes):
        return None
    return given[0] if integer(node, "keepdims", 1) else Layout(rank - len(axes), False, given[0].times)


def _reshaped(node: NodeProto, given: list[Layout], held: Held) -> Layout | None:
    """To a constant shape that begins with 0, 0: the first two extents stay."""
    shape = held.constants.ints(input_at(node, 1))
    if len(given) != 1 or shape is None or shape[:2] != [0, 0] or integer(node, "allowzero", 0):
        return None
    return Layout(len(shape), False, given[0].times)


_PACKED = ((CONTRIB, "MatMulNBits"), (CONTRIB, "MatMulBnb4"))
"""Products by a constant matrix that lies packed in the operator's own form."""
PRODUCTS = frozenset({("", "MatMul"), *_PACKED})
"""What it pays to thin out for: less is not worth an edited graph."""

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


def _without_positions(shape: list[int], rank: int) -> bool:
    """Whether a constant of this shape, broadcast against `rank` axes, is the same for all positions."""
    aligned = [1] * (rank - len(shape)) + shape
    return len(shape) <= rank and aligned[POSITIONS] == 1


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
