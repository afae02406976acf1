"""How large a graph's weights are."""

from math import prod

from onnx import ModelProto

from genai_compiler.read.external_data import bits_of


def weight_bytes(model: ModelProto) -> int:
    """Bytes of the initializers of the outermost graph, external ones included."""
    return sum((prod(int(dim) for dim in each.dims) * bits_of(each) + 7) // 8 for each in model.graph.initializer)
