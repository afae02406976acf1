"""Extents of a graph's outputs in terms of its inputs' extents, by ONNX shape inference.

What the file itself claims about shapes behind its inputs is set aside: a claim is no proof. Symbols stand for unknown
extents; an output's extent that inference gives as one of them has that extent in every run.
"""

from collections.abc import Mapping

from onnx import ModelProto, TensorShapeProto, shape_inference

Extent = int | str
"""A number, or a symbol: equal symbols, equal extents."""

Extents = tuple[Extent, ...]
MAX_NODES, MAX_BYTES = 2000, 1 << 20
"""Larger graphs are decoders and encoders, whose operators inference does not know; they are left alone."""


def output_extents(model: ModelProto, inputs: Mapping[str, Extents]) -> Mapping[str, tuple[Extent | None, ...]]:
    """Per output whose rank inference finds: its extents, None where they stay unknown. inputs: every port's."""
    if len(model.graph.node) > MAX_NODES or model.ByteSize() > MAX_BYTES:
        return {}
    asked, symbols = _asked(model, inputs)
    try:
        inferred = shape_inference.infer_shapes(asked, data_prop=True)
    except (RuntimeError, ValueError, shape_inference.InferenceError):  # operators it does not know, malformed ones
        return {}
    found: dict[str, tuple[Extent | None, ...]] = {}
    for each in inferred.graph.output:
        if each.type.tensor_type.HasField("shape"):
            found[each.name] = tuple(_extent(dim, symbols) for dim in each.type.tensor_type.shape.dim)
    return found


def _asked(model: ModelProto, inputs: Mapping[str, Extents]) -> tuple[ModelProto, Mapping[str, Extent]]:
    """The model with these input extents and no other claims; and what its symbols stand for."""
    asked = ModelProto()
    asked.CopyFrom(model)
    del asked.graph.value_info[:]
    for each in asked.graph.output:
        each.type.tensor_type.ClearField("shape")
    names: dict[Extent, str] = {}
    for each in asked.graph.input:
        each.type.tensor_type.ClearField("shape")
        if each.name not in inputs:
            continue
        shape = each.type.tensor_type.shape
        shape.SetInParent()
        for extent in inputs[each.name]:
            if isinstance(extent, int):
                shape.dim.add(dim_value=extent)
            else:
                shape.dim.add(dim_param=names.setdefault(extent, f"s{len(names)}"))
    return asked, {name: extent for extent, name in names.items()}


def _extent(dim: TensorShapeProto.Dimension, symbols: Mapping[str, Extent]) -> Extent | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return symbols.get(dim.dim_param)
