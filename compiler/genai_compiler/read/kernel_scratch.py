"""Memory that an operator takes for itself while it runs, on the CPU: a table of rules, in bytes.

Sources: ONNX Runtime's kernels (gqa_attention_base.h: scores of float32 as wide as the cache's buffer, and the
projections once rotated and once transposed; matmul_nbits.cc: the other operand in integers, with a scale a block).
"""

from collections.abc import Callable, Mapping
from math import prod

from onnx import NodeProto

from genai_compiler.read.nodes import CONTRIB, input_at, integer, operator_of
from genai_compiler.read.packing import QUANTISED_PRODUCTS

Shapes = Mapping[str, tuple[int | None, ...]]
FLOAT = 4


def scratch(node: NodeProto, shapes: Shapes) -> int:
    """Bytes that the node's kernel takes beside its inputs and outputs; 0 where no rule knows, or extents are open."""
    rule = _RULES.get(operator_of(node))
    return rule(node, shapes) if rule is not None else 0


def _known(shapes: Shapes, name: str) -> tuple[int, ...]:
    shape = shapes.get(name, ())
    return tuple(each for each in shape if each is not None) if None not in shape else ()


def _grouped(node: NodeProto, shapes: Shapes) -> int:
    """GroupQueryAttention: query [rows, new, width], past [rows, heads, room, size] of the buffer that is written."""
    query, past = _known(shapes, input_at(node, 0)), _known(shapes, input_at(node, 3))
    present = _known(shapes, node.output[1]) if len(node.output) > 1 else ()
    if len(query) != 3:
        return 0
    width = max((each[2] for each in (past, present) if len(each) == 4), default=0)
    rows, new, features = query
    scores = rows * integer(node, "num_heads", 0) * new * max(width, new)
    return FLOAT * (scores + 2 * rows * new * features)


def _plain(node: NodeProto, shapes: Shapes) -> int:
    """Attention with a head a query: scores over past and new entries, and the three operands transposed."""
    query = _known(shapes, input_at(node, 0))
    if len(query) != 3:
        return 0
    rows, new, features = query
    key = _known(shapes, input_at(node, 1))
    behind = max((shape[2] for name in node.input if len(shape := _known(shapes, name)) == 4), default=0)
    total = behind + (key[1] if len(key) == 3 else new)
    return FLOAT * (rows * integer(node, "num_heads", 0) * new * total + 3 * rows * new * features)


def _integer_operand(node: NodeProto, shapes: Shapes) -> int:
    """MatMulNBits with integer products: a byte a number, a scale and a sum a block."""
    taken = _known(shapes, input_at(node, 0))
    if integer(node, "accuracy_level", 0) < QUANTISED_PRODUCTS or not taken:
        return 0
    return prod(taken) + 2 * FLOAT * prod(taken) // max(integer(node, "block_size", 32), 1)


_RULES: dict[tuple[str, str], Callable[[NodeProto, Shapes], int]] = {
    (CONTRIB, "GroupQueryAttention"): _grouped,
    (CONTRIB, "MultiHeadAttention"): _plain,
    (CONTRIB, "Attention"): _plain,
    (CONTRIB, "MatMulNBits"): _integer_operand,
}
