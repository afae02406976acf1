"""Whether a mask input goes into an attention operator as it is.

ai.onnx Attention takes its mask as [new tokens, positions], broadcast over rows and heads; an input [rows, positions]
means something else, and only agrees with it by chance where there is one row and one new token.
"""

from onnx import ModelProto

from genai_compiler.read.nodes import input_at, is_onnx

_SAME_AXES = frozenset({"Cast", "Identity", "Not"})
_MASK = 3
"""The operator's input for the mask (ONNX operator Attention, since opset 23)."""


def taken_as_a_matrix(model: ModelProto, mask: str) -> bool:
    """Whether the rank-2 input `mask` reaches an operator's mask with its two axes as they are."""
    port = next((each for each in model.graph.input if each.name == mask), None)
    if port is None or len(port.type.tensor_type.shape.dim) != 2:
        return False
    same = {mask}
    for node in model.graph.node:  # in topological order
        if is_onnx(node):
            if node.op_type in _SAME_AXES and input_at(node, 0) in same:
                same.update(node.output)
            elif node.op_type == "Attention" and input_at(node, _MASK) in same:
                return True
    return False
