"""How wide the weights want an input, where the graph multiplies it by them as it is."""

from collections.abc import Mapping

from onnx import GraphProto, NodeProto

from genai_compiler.read.nodes import CONTRIB, input_at, integer, operator_of, output_at

_SAME = frozenset({"Identity", "Cast", "Dropout"})


def weight_width(graph: GraphProto, name: str) -> tuple[str, int] | None:
    """(weight, the last extent that it can be multiplied with) of the input `name`; None where no product tells."""
    held = {each.name: (each.name, tuple(each.dims)) for each in graph.initializer}
    alike = {name}
    for node in graph.node:
        domain, operator = operator_of(node)
        if domain == "" and operator in _SAME and input_at(node, 0) in alike:
            alike.add(output_at(node, 0))
        weight = held.get(input_at(node, 0))
        if weight is not None and domain == "" and operator in (*_SAME, "Transpose") and len(weight[1]) == 2:
            turned = operator == "Transpose" and _swaps(node)
            held[output_at(node, 0)] = (weight[0], weight[1][::-1] if turned else weight[1])
        if input_at(node, 0) in alike and (found := _taken(node, held)) is not None:
            return found
    return None


def _taken(node: NodeProto, held: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[str, int] | None:
    """The weight that a product multiplies its first input with, and how wide that has to be."""
    operator, weight = operator_of(node), held.get(input_at(node, 1))
    if weight is None:
        return None
    if operator == (CONTRIB, "MatMulNBits"):
        return weight[0], integer(node, "K", 0)
    if len(weight[1]) != 2 or operator not in (("", "MatMul"), ("", "Gemm")):
        return None
    across = operator == ("", "Gemm") and integer(node, "transB", 0) == 1
    return weight[0], weight[1][1 if across else 0]


def _swaps(node: NodeProto) -> bool:
    order = next((list(each.ints) for each in node.attribute if each.name == "perm"), [1, 0])
    return order == [1, 0]
