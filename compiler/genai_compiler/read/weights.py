"""How large a graph's weights are."""

from math import prod

from onnx import ModelProto, TensorProto

from genai_compiler.read.external_data import bits_of


def weight_bytes(model: ModelProto) -> int:
    """Bytes of the initializers of the outermost graph, external ones included."""
    return sum(weight_size(each) for each in model.graph.initializer)


def held_bytes(model: ModelProto) -> int:
    """The same where weights of one place in a data file count once, whatever shapes they are given there."""
    places = dict[object, int]()
    for each in model.graph.initializer:
        entries = {entry.key: entry.value for entry in each.external_data}
        place = (entries["location"], entries.get("offset", "0")) if "location" in entries else each.name
        places[place] = max(places.get(place, 0), weight_size(each))
    return sum(places.values())


def weight_size(tensor: TensorProto) -> int:
    """Bytes of one weight."""
    return (prod(int(dim) for dim in tensor.dims) * bits_of(tensor) + 7) // 8
