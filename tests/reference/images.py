"""The image program of `onnx-genai.image-preprocess` (metadata standard 5.6), as far as the cases need it.

One picture; stretch and pixel_area resizing; patches or plain pixels; grid coordinates.
"""

import math
from typing import Any

import numpy as np

from tests.reference.png import decode_rgb
from tests.reference.values import Array, Document, ReferenceError, numpy_dtype


def preprocess(encoded: bytes, program: Document) -> dict[str, Array]:
    """The program's outputs by their workflow value names. Raises ReferenceError of kind adapter."""
    values: dict[str, Array] = {}
    image: Array = np.zeros(0, np.uint8)
    grid = (0, 0, 0)
    for transform in program["transforms"]:
        match transform["op"]:
            case "decode" | "decode_rgb":
                image = decode_rgb(encoded)
            case "convert_rgb":
                pass
            case "resize":
                image = _resize(image, transform)
            case "rescale":
                image = image.astype(np.float32) * np.float32(transform["scale"])
            case "normalize":
                mean, std = (np.array(transform[name], np.float32) for name in ("mean", "std"))
                image = (image - mean) / std
            case "patchify":
                image, grid = _patchify(image, transform)
            case "emit_grid_coordinates":
                values |= dict.fromkeys(transform["outputs"], np.array([grid], np.int64))
                continue
            case other:
                raise ReferenceError("adapter", f"the reference has no image transform {other!r}")
        values |= dict.fromkeys(transform.get("outputs", []), image)
    return {
        output["name"]: values[output["source"]].astype(numpy_dtype(output["dtype"])) for output in program["outputs"]
    }


def _resize(image: Array, transform: Document) -> Array:
    mode = transform.get("mode", "stretch")
    if mode == "pixel_area":
        height, width = _pixel_area(image.shape[0], image.shape[1], transform)
    elif mode in ("stretch", "fixed", "fixed_size"):
        size: Any = transform["size"]
        height, width = (size, size) if isinstance(size, int) else (size["height"], size["width"])
    else:
        raise ReferenceError("adapter", f"the reference has no resize mode {mode!r}")
    if transform.get("interpolation", "bicubic") != "bicubic":
        raise ReferenceError("adapter", "the reference resamples with the bicubic kernel only")
    vertical, horizontal = _kernel_matrix(image.shape[0], height), _kernel_matrix(image.shape[1], width)
    resampled = np.einsum("yi,ijc,xj->yxc", vertical, image.astype(np.float64), horizontal)
    clipped: Array = np.clip(np.round(resampled), 0, 255).astype(np.uint8)
    return clipped


def _pixel_area(height: int, width: int, transform: Document) -> tuple[int, int]:
    """Edges on a multiple, with an area between the two bounds."""
    multiple, least, most = (transform[name] for name in ("size_multiple", "min_pixels", "max_pixels"))
    if max(height, width) > 200 * min(height, width):
        raise ReferenceError("adapter", f"a picture of {width}x{height} is too narrow")
    edges = [round(edge / multiple) * multiple for edge in (height, width)]
    if edges[0] * edges[1] > most:
        beta = math.sqrt(height * width / most)
        edges = [max(multiple, math.floor(edge / beta / multiple) * multiple) for edge in (height, width)]
    elif edges[0] * edges[1] < least:
        beta = math.sqrt(least / (height * width))
        edges = [max(multiple, math.ceil(edge * beta / multiple) * multiple) for edge in (height, width)]
    return edges[0], edges[1]


def _kernel_matrix(source: int, target: int) -> Array:
    """float64 [target, source]: Catmull-Rom weights, widened when the picture shrinks."""
    ratio = source / target
    spread = max(ratio, 1.0)
    centres = (np.arange(target)[:, None] + 0.5) * ratio - 0.5
    x = np.abs(np.arange(source)[None, :] - centres) / spread
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _patchify(image: Array, transform: Document) -> tuple[Array, tuple[int, int, int]]:
    """[patches, channels * frames * p * p] in merge groups, and the grid (frames, rows, columns)."""
    p, frames = transform["patch_size"], transform.get("temporal_patch_size", 1)
    merge = transform.get("merge_size", 1)
    rows, columns = image.shape[0] // p, image.shape[1] // p
    if image.shape[0] % (p * merge) or image.shape[1] % (p * merge):
        raise ReferenceError("adapter", f"a picture of {image.shape[1]}x{image.shape[0]} has no whole patches")
    split = image.reshape(rows // merge, merge, p, columns // merge, merge, p, 3)
    ordered = split.transpose(0, 3, 1, 4, 6, 2, 5)
    patches = ordered.reshape(rows * columns, 3, 1, p, p).repeat(frames, axis=2)
    return patches.reshape(rows * columns, -1), (1, rows, columns)
