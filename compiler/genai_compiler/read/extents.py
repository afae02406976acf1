"""Extents of a graph's outputs in terms of its inputs' extents, by ONNX shape inference.

What the file itself claims about shapes behind its inputs is set aside, in nested graphs and local functions too: a
claim is no proof. So is the content of an initializer in whose place something is given. Symbols stand for unknown
extents; an output's extent that inference gives as one of them has that extent in every run.
"""

from collections.abc import Mapping, Sequence

from onnx import AttributeProto, ModelProto, TensorShapeProto, shape_inference

from genai_compiler.read.like_extents import in_onnx_terms
from genai_compiler.read.nodes import all_graphs, all_nodes

Extent = int | str
"""A number, or a symbol: equal symbols, equal extents."""

Extents = tuple[Extent, ...]
MAX_NODES, MAX_BYTES = 2000, 1 << 20
"""What takes longer than it is worth: larger graphs are left alone."""
MAX_ENTRIES = 4096
"""Inference follows the content of a list of numbers entry by entry; of a longer one only its length is known."""


def output_extents(model: ModelProto, inputs: Mapping[str, Extents | None]) -> Mapping[str, tuple[Extent | None, ...]]:
    """Per output whose rank inference finds: its extents, None where they stay unknown.

    inputs: every port that is bound, None where not even the rank is certain.
    """
    if len(model.graph.node) > MAX_NODES or model.ByteSize() > MAX_BYTES or _declares_types(model):
        return {}
    asked, symbols = asked_model(model, inputs)
    stands = in_onnx_terms(asked)
    try:
        inferred = shape_inference.infer_shapes(asked, data_prop=True)
    except Exception:  # what a malformed graph makes of a library; ONNX Runtime judges it when it is opened
        return {}
    shown = {each.name: each.type.tensor_type.shape.dim for each in (*inferred.graph.value_info, *inferred.graph.input)}
    if not all(_alike([shown.get(name, ()) for name in each]) for each in stands.alike):
        return {}
    found: dict[str, tuple[Extent | None, ...]] = {}
    for each in inferred.graph.output:
        if each.type.tensor_type.HasField("shape"):
            found[each.name] = tuple(_extent(dim, symbols) for dim in each.type.tensor_type.shape.dim)
    return found


def _alike(shapes: Sequence[Sequence[TensorShapeProto.Dimension]]) -> bool:
    """Whether these are known to be the same extents; no rank is no knowledge."""
    different = {tuple((int(dim.dim_value), dim.dim_param) for dim in each) for each in shapes}
    return len(different) == 1 and bool(shapes[0]) and all(number or symbol for number, symbol in different.pop())


def asked_model(model: ModelProto, inputs: Mapping[str, Extents | None]) -> tuple[ModelProto, Mapping[str, Extent]]:
    """The model with these input extents and no other claims; and what its symbols stand for."""
    asked = ModelProto()
    asked.CopyFrom(model)
    given = [each for each in asked.graph.initializer if each.name not in inputs]
    del asked.graph.initializer[:]
    asked.graph.initializer.extend(given)
    for graph in all_graphs(asked):
        del graph.value_info[:]
        for each in (*graph.input, *graph.output):
            if each.type.HasField("tensor_type"):
                each.type.tensor_type.ClearField("shape")
    for function in asked.functions:
        del function.value_info[:]
    names: dict[Extent, str] = {}
    for each in asked.graph.input:
        extents = inputs.get(each.name)
        if extents is None:
            continue
        shape = each.type.tensor_type.shape
        shape.SetInParent()
        for extent in extents:
            if isinstance(extent, int) and (len(extents) > 1 or extent <= MAX_ENTRIES):
                shape.dim.add(dim_value=extent)
            else:
                shape.dim.add(dim_param=names.setdefault(extent, f"s{len(names)}"))
    return asked, {name: extent for extent, name in names.items()}


def _declares_types(model: ModelProto) -> bool:
    """Whether an attribute of a node is a type, which may claim a shape (`Optional`)."""
    return any(_is_type(each) for node in all_nodes(model) for each in node.attribute)


def _is_type(attribute: AttributeProto) -> bool:
    return attribute.HasField("tp") or bool(attribute.type_protos)


def _extent(dim: TensorShapeProto.Dimension, symbols: Mapping[str, Extent]) -> Extent | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return symbols.get(dim.dim_param)
