"""The two graphs of a component that opens in two sessions (pass split_opening)."""

from onnx import ModelProto, ValueInfoProto, helper

from genai_compiler.plan.edits import Parts
from genai_compiler.read.cuts import halves


def cut_graph(model: ModelProto, parts: Parts) -> tuple[ModelProto, ModelProto]:
    """The first and the second graph; what crosses has the names of extents that the whole graph's inputs give them."""
    kinds, symbols = dict(parts.cut.crossing), _symbols(model)
    crossing = [_port(name, kinds[name], extents, symbols) for name, extents in parts.extents]
    return halves(model, parts.cut.before, crossing)


def _port(name: str, kind: int, extents: tuple[int | str, ...], symbols: dict[str, str]) -> ValueInfoProto:
    dims = [each if isinstance(each, int) else symbols.get(each) for each in extents]
    return helper.make_tensor_value_info(name, kind, dims)


def _symbols(model: ModelProto) -> dict[str, str]:
    """What the graph calls an extent of a port ("port axis")."""
    dims = ((each.name, each.type.tensor_type.shape.dim) for each in model.graph.input)
    return {f"{name} {axis}": dim.dim_param for name, own in dims for axis, dim in enumerate(own) if dim.dim_param}
