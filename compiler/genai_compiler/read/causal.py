"""Whether a decoder graph keeps new tokens from seeing those behind them, where it takes several.

A graph that was traced with one token may lack what does that, whatever its ports declare. It is shown by an operator
that is causal, or by what meets the scores: an order of positions (a comparison of two computed values), `Trilu`, or a
part cut out of a constant square.
"""

from onnx import GraphProto, NodeProto

from genai_compiler.read.attention import attention_slots
from genai_compiler.read.nodes import CONTRIB, Constants, input_at, integer, operator_of

_ALWAYS = frozenset({(CONTRIB, "GroupQueryAttention"), (CONTRIB, "PagedAttention")})
_BY_ATTRIBUTE = {
    ("", "Attention"): "is_causal",
    (CONTRIB, "MultiHeadAttention"): "unidirectional",
    (CONTRIB, "Attention"): "unidirectional",
}
_COMPARED = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_STEPS = frozenset(
    {"Add", "Sub", "Mul", "Div", "Where", "Cast", "Identity", "Unsqueeze", "Squeeze", "Expand", "Reshape", "Transpose"}
    | {"Slice", "And", "Or", "Not", "Concat", "Max", "Min", "Clip", "Equal", "ScatterND", "Trilu", "Tanh"}
)
_MOST = 400


def shows_order(graph: GraphProto) -> bool:
    """Whether every attention of the outermost graph lets no token see a later one."""
    order = _Order(graph)
    found = [order.of(node) for node in graph.node if node.op_type == "Softmax" or attention_slots(node) is not None]
    return bool(found) and all(found)


class _Order:
    """One graph, followed against its edges."""

    def __init__(self, graph: GraphProto) -> None:
        self._writer: dict[str, NodeProto] = {name: node for node in graph.node for name in node.output if name}
        self._squares = {
            each.name for each in graph.initializer if len(each.dims) > 1 and each.dims[-1] == each.dims[-2] > 1
        }
        self._held = {each.name for each in graph.initializer}
        self._constants = Constants(graph)

    def of(self, node: NodeProto) -> bool:
        """Whether one attention keeps order. node: its operator, or its Softmax."""
        operator = operator_of(node)
        if operator in _ALWAYS or integer(node, _BY_ATTRIBUTE.get(operator, ""), 0) == 1:
            return True
        if node.op_type == "Softmax":
            return self._ordered(input_at(node, 0))
        return any(self._ordered(name) for name in node.input[3:] if name)  # a mask that the operator is given

    def _ordered(self, name: str) -> bool:
        pending, seen = [name], set[str]()
        while pending and len(seen) < _MOST:
            value = pending.pop()
            node = self._writer.get(value)
            if value in seen or node is None:
                continue
            seen.add(value)
            if node.op_type == "Trilu" or (node.op_type in _COMPARED and not any(map(self._fixed, node.input))):
                return True
            if node.op_type == "Slice" and self._cut_of_square(node):
                return True
            if node.op_type in _STEPS:
                pending.extend(node.input)
        return False

    def _fixed(self, name: str) -> bool:
        return name in self._held or self._constants.ints(name) is not None

    def _cut_of_square(self, node: NodeProto) -> bool:
        value = input_at(node, 0)
        for _ in range(4):
            if value in self._squares:
                return True
            writer = self._writer.get(value)
            if writer is None or writer.op_type not in ("Slice", "Cast", "Unsqueeze", "Identity"):
                return False
            value = input_at(writer, 0)
        return False
