"""Memory that an operator takes for itself while it runs, on the CPU: a table of rules, in bytes.

Sources: ONNX Runtime's kernels. group_query_attention.cc: the projections once transposed, a position a token, and the
projections once rotated. From 1.32 on attention over a prompt goes by tiles and has no scores as a whole (requests of
1 x 1,024 and 4 x 256 tokens take the same memory); a step has, as wide as the cache's buffer, and variants with a cap,
a sink or a window are taken to have. matmul_nbits.cc: the other operand in integers, with a scale and a sum a
block, in memory of its own beside the arena.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from onnx import AttributeProto, NodeProto
from onnx.helper import make_attribute

from genai_compiler.read.nodes import CONTRIB, input_at, integer, operator_of
from genai_compiler.read.packing import QUANTISED_PRODUCTS

Shapes = Mapping[str, tuple[int | None, ...]]
FLOAT, POSITION = 4, 8


@dataclass(frozen=True)
class Scratch:
    """Bytes. arena: what is taken of the session's arena, in order; outside: what is taken elsewhere."""

    arena: tuple[int, ...] = ()
    outside: int = 0


def scratch(node: NodeProto, shapes: Shapes) -> Scratch:
    """What the node's kernel takes beside its inputs and outputs; nothing where no rule knows, or extents are open."""
    rule = _RULES.get(operator_of(node))
    return rule(node, shapes) if rule is not None else Scratch()


def _known(shapes: Shapes, name: str) -> tuple[int, ...]:
    shape = shapes.get(name, ())
    return tuple(each for each in shape if each is not None) if None not in shape else ()


def _grouped(node: NodeProto, shapes: Shapes) -> Scratch:
    """GroupQueryAttention: query [rows, new, width], past [rows, heads, room, size] of the buffer that is written."""
    query, past = _known(shapes, input_at(node, 0)), _known(shapes, input_at(node, 3))
    present = _known(shapes, node.output[1]) if len(node.output) > 1 else ()
    if len(query) != 3:
        return Scratch()
    width = max((each[2] for each in (past, present) if len(each) == 4), default=0)
    rows, new, features = query
    projected = FLOAT * rows * new * features
    tiled = new > 1 and not any(each.name in _WHOLE and each != _plain_value(each) for each in node.attribute)
    scores = 0 if tiled else FLOAT * rows * integer(node, "num_heads", 0) * new * max(width, new)
    return Scratch((projected, POSITION * rows * new, projected, scores))


def _plain_value(attribute: AttributeProto) -> AttributeProto:
    """The attribute as it is where nothing is asked for."""
    return make_attribute(attribute.name, _WHOLE[attribute.name])


def _plain(node: NodeProto, shapes: Shapes) -> Scratch:
    """Attention with a head a query: the three operands transposed, and scores over past and new entries."""
    query = _known(shapes, input_at(node, 0))
    if len(query) != 3:
        return Scratch()
    rows, new, features = query
    key = _known(shapes, input_at(node, 1))
    behind = max((shape[2] for name in node.input if len(shape := _known(shapes, name)) == 4), default=0)
    total = behind + (key[1] if len(key) == 3 else new)
    operand = FLOAT * rows * new * features
    return Scratch((operand, operand, operand, FLOAT * rows * integer(node, "num_heads", 0) * new * total))


def _integer_operand(node: NodeProto, shapes: Shapes) -> Scratch:
    """MatMulNBits with integer products: a byte a number, a scale and a sum a block."""
    taken = _known(shapes, input_at(node, 0))
    if integer(node, "accuracy_level", 0) < QUANTISED_PRODUCTS or not taken:
        return Scratch()
    return Scratch(outside=prod(taken) + 2 * FLOAT * prod(taken) // max(integer(node, "block_size", 32), 1))


_WHOLE: Mapping[str, float | int] = {"softcap": 0.0, "smooth_softmax": 0, "local_window_size": -1}
"""Attributes of GroupQueryAttention that change scores, with the values that change none."""
_RULES: dict[tuple[str, str], Callable[[NodeProto, Shapes], Scratch]] = {
    (CONTRIB, "GroupQueryAttention"): _grouped,
    (CONTRIB, "MultiHeadAttention"): _plain,
    (CONTRIB, "Attention"): _plain,
    (CONTRIB, "MatMulNBits"): _integer_operand,
}
