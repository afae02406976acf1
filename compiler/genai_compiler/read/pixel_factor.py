"""How many pixels along a side one latent becomes: from what the graph of a decoder says of its own extents."""

import re

from onnx import ModelProto, shape_inference

from genai_compiler.read.signature import Port, port_of

_PROBE = 8


def pixel_factors(model: ModelProto, latents: Port, pixels: Port) -> tuple[int, int] | None:
    """(down, across) from latents [B, C, h, w] to pixels [B, C, H, W]; None when the graph does not tell."""
    if len(latents.shape or ()) != 4 or len(pixels.shape or ()) != 4:
        return None
    found = [_said((latents.shape or ())[axis], (pixels.shape or ())[axis]) for axis in (2, 3)]
    if None in found:
        found = _inferred(model, latents.name, pixels.name)
    down, across = found
    return (down, across) if down and across else None


def _said(latent: int | str | None, pixel: int | str | None) -> int | None:
    """The whole number that one extent is of another, as `8*height` or two numbers tell."""
    if isinstance(latent, int) and isinstance(pixel, int):
        return pixel // latent if latent and pixel % latent == 0 else None
    if not isinstance(latent, str) or not isinstance(pixel, str):
        return None
    product = re.fullmatch(r"\s*(?:(\d{1,4})\s*\*\s*(.+?)|(.+?)\s*\*\s*(\d{1,4}))\s*", pixel)
    if product is None or (product[2] or product[3]) != latent:
        return None
    return int(product[1] or product[4])


def _inferred(model: ModelProto, latents: str, pixels: str) -> list[int | None]:
    """What ONNX's own shape inference makes of latents of 8 by 8."""
    probe = ModelProto()
    probe.CopyFrom(model)
    for each in probe.graph.input:
        if each.name == latents:
            for axis, dim in enumerate(each.type.tensor_type.shape.dim):
                if axis in (2, 3):
                    dim.dim_value = _PROBE
    del probe.graph.value_info[:]
    for each in probe.graph.output:
        each.type.tensor_type.ClearField("shape")
    try:
        inferred = shape_inference.infer_shapes(probe, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return [None, None]
    shape = next((port_of(each).shape for each in inferred.graph.output if each.name == pixels), None) or ()
    sides = [shape[axis] if len(shape) == 4 else None for axis in (2, 3)]
    return [side // _PROBE if isinstance(side, int) and side and side % _PROBE == 0 else None for side in sides]
