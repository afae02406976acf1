"""Graphs that compute or say what is wrong, whatever the values that they are given, and for zeros compute."""

from collections.abc import Mapping

from onnx import ModelProto

from genai_compiler.read.nodes import all_nodes, input_at, operator_of

TOTAL = frozenset(
    """
    Abs Add And ArgMax ArgMin BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Concat Constant ConstantOfShape
    Equal Exp Flatten Floor Gather GatherElements Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min
    Mul Neg Not Or ReduceMax ReduceMin ReduceSum ScatterElements Shape Sigmoid Sign Size Softmax Squeeze Sub Tanh
    Unsqueeze Where Xor
    """.split()  # noqa: SIM905
)
"""Operators for which no value ends the process: no whole number is divided. An index of 0 suits them."""
_EXTENTS: Mapping[str, int] = {
    "ConstantOfShape": 0,
    "Squeeze": 1,
    "Unsqueeze": 1,
    "ReduceMax": 1,
    "ReduceMin": 1,
    "ReduceSum": 1,
}
"""Of these the input whose values decide how long the result is, or how many axes it has."""


def partial_operator(model: ModelProto) -> str:
    """The first operator that may be wrong for values, with the value that decides extents; "" where there is none.

    Extents may come from weights, constants and the extents of other values, which are the same for zeros.
    """
    fixed = {each.name for each in model.graph.initializer} - {each.name for each in model.graph.input}
    for node in all_nodes(model):
        domain, op = operator_of(node)
        if domain or op not in TOTAL:
            return f"{domain}::{op}" if domain else op
        decides = input_at(node, _EXTENTS[op]) if op in _EXTENTS else ""
        if decides and decides not in fixed:
            return f"{op} of extents by '{decides}'"
        if op in ("Shape", "Size") or fixed.issuperset(filter(None, node.input)):
            fixed.update(node.output)
    return ""
