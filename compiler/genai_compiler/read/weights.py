"""How large a graph's weights are."""

from math import prod

from onnx import ModelProto, TensorProto

from genai_compiler.read.external_data import bits_of


def weight_bytes(model: ModelProto) -> int:
    """Bytes of the initializers of the outermost graph, external ones included."""
    return sum(weight_size(each) for each in model.graph.initializer)


def weight_size(tensor: TensorProto) -> int:
    """Bytes of one weight."""
    return (prod(int(dim) for dim in tensor.dims) * bits_of(tensor) + 7) // 8
