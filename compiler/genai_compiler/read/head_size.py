"""How wide the heads of an attention operator's keys and values are, from the weights that make them.

A projection's columns, over the heads that the operator's attributes count. Weights themselves are not read, only their
extents.
"""

from collections.abc import Mapping

from onnx import GraphProto, NodeProto

from genai_compiler.read.nodes import constant_ints, input_at, integer, is_onnx

Sizes = tuple[int | None, int | None]
_STEPS = frozenset(
    {"Cast", "Identity", "Add", "RotaryEmbedding", "MRotaryEmbedding", "Reshape", "Transpose"}
    | {"SimplifiedLayerNormalization", "LayerNormalization", "RMSNormalization", "LpNormalization"}
)
"""Operators that leave the number of elements a token has as it is."""
_HEADS = {"GroupQueryAttention": ("num_heads", "kv_num_heads"), "Attention": ("q_num_heads", "kv_num_heads")}
_LONGEST_WAY = 12


class Projections:
    """The matrices of one graph: how many columns each has."""

    def __init__(self, graph: GraphProto, writer: Mapping[str, NodeProto]) -> None:
        self.columns = {each.name: int(each.dims[1]) for each in graph.initializer if len(each.dims) == 2}
        self.held = {each.name for each in graph.initializer}
        self.graph = graph
        self.writer = writer

    def head_sizes(self, node: NodeProto) -> Sizes:
        """(of the keys, of the values) of an operator that takes both as [batch, sequence, heads * size]."""
        names = _HEADS.get(node.op_type)
        if names is None or (node.op_type == "Attention" and not is_onnx(node)):
            return None, None
        heads, kv_heads = (integer(node, each, 0) for each in names)
        if kv_heads <= 0:
            return None, None
        key, value = (node.input[at] if at < len(node.input) else "" for at in (1, 2))
        if not key and not value:  # one projection makes all three
            packed = _over(self._width(input_at(node, 0)), heads + 2 * kv_heads)
            return packed, packed
        return _over(self._width(key), kv_heads), _over(self._width(value), kv_heads)

    def _width(self, name: str) -> int | None:
        """The last extent of a value that a matrix makes, None where that is not seen."""
        for _ in range(_LONGEST_WAY):
            node = self.writer.get(name)
            if node is None:
                return None
            if node.op_type == "MatMul" and not node.domain:
                return self.columns.get(input_at(node, 1))
            if node.op_type == "MatMulNBits":
                return integer(node, "N", 0) or None
            if node.op_type == "Split" and len(node.input) > 1:
                parts, at = constant_ints(self.graph, node.input[1]) or [], list(node.output).index(name)
                return parts[at] if integer(node, "axis", 0) in (-1, 2) and at < len(parts) else None
            if node.op_type not in _STEPS:
                return None
            name = next((each for each in node.input if each not in self.held), "")
        return None


def _over(width: int | None, heads: int) -> int | None:
    return width // heads if width is not None and heads > 0 and width % heads == 0 else None
