"""Whether a decoder graph takes one token a row and call.

Told by the declared length of its token ids, or by a `Squeeze` (ONNX operator) of the axis that holds the tokens: it
fails for any other extent than 1.
"""

from onnx import ModelProto, NodeProto

from genai_compiler.read.nodes import Constants, axes_of, input_at, is_onnx
from genai_compiler.read.signature import Port


def takes_one_token(model: ModelProto, tokens: Port) -> bool:
    """Whether a call with two tokens a row must fail. tokens: the graph's input, integer [batch, sequence].

    A graph without the shapes of its inner values is taken to accept any number.
    """
    sequence = tokens.shape[1] if tokens.shape is not None and len(tokens.shape) == 2 else None
    if isinstance(sequence, int):
        return sequence == 1
    if not sequence:
        return False
    shapes, constants = _inner_shapes(model), Constants(model.graph)
    return any(
        _squeezed_axis(node, constants, shapes.get(input_at(node, 0), ()), sequence)
        for node in model.graph.node
        if node.op_type == "Squeeze" and is_onnx(node)
    )


def _squeezed_axis(node: NodeProto, constants: Constants, shape: tuple[str, ...], sequence: str) -> bool:
    """Whether the node drops an axis whose extent is the number of tokens."""
    axes = axes_of(node, constants)
    return any(-len(shape) <= axis < len(shape) and shape[axis] == sequence for axis in axes or ())


def _inner_shapes(model: ModelProto) -> dict[str, tuple[str, ...]]:
    """Symbols of every inner value's axes, "" where there is none."""
    return {
        each.name: tuple(str(dim.dim_param) for dim in each.type.tensor_type.shape.dim)
        for each in model.graph.value_info
    }
