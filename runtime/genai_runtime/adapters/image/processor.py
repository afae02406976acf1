"""Image processor files beside genai_config.json -> tensors of pictures (onnxruntime-extensions, its image operations).

Each picture runs through the file's operations alone; results lie on a new first axis, smaller ones filled up with
zeros at the bottom and right. They are the tensors that a vision model takes at the workflow's level.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from genai_runtime.adapters.image.decode import decode
from genai_runtime.adapters.image.limits import hold_elements, hold_size
from genai_runtime.problem import LoadError, RequestError
from genai_runtime.values import Array

MAX_BYTES = 1 << 20
_ASPECT = 200
_SIZES = "ImageSizes"
_FILTERS = {"NEAREST": "NEAREST", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC", "LANCZOS": "LANCZOS"}
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Processor:
    """The operations of a file, in order: (type, attributes)."""

    operations: tuple[tuple[str, Attributes], ...]

    def __call__(self, images: Sequence[bytes | Path]) -> dict[str, Array]:
        """`pixel_values` [pictures, ...], and `image_sizes` int64 [pictures, 2] where the file asks for them.

        Raises RequestError `bad-image`, `image-limit`, `no-image`; LoadError `pillow-missing`.
        """
        if not images:
            raise RequestError("no-image", "no picture was given", help="give at least one")
        made, sizes = list[Array](), list[tuple[int, int]]()
        for at, image in enumerate(images):
            data = image.read_bytes() if isinstance(image, Path) else image
            picture = decode(data, f"picture {at}")
            for kind, attributes in self.operations:
                picture = _OPERATIONS[kind](picture, attributes)
            made.append(picture)
            sizes.append((picture.shape[-2], picture.shape[-1]))
            hold_elements((sum(each.size for each in made),), "all pictures together")
        tensors = {"pixel_values": _stacked(made)}
        if any(kind == _SIZES for kind, _ in self.operations):
            tensors["image_sizes"] = np.array(sizes, np.int64)
        return tensors


def read_processor(file: str | Path) -> Processor:
    """The processor that a file describes. Raises LoadError `bad-processor` for one that can't be followed exactly."""
    try:
        data = Path(file).read_bytes()
        if len(data) > MAX_BYTES:
            raise _bad(f"it has {len(data)} bytes")
        listed = json.loads(data)["processor"]["transforms"]
        operations = tuple((_kind(each["operation"]["type"]), _attributes(each["operation"])) for each in listed)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as fault:
        raise _bad(f"{type(fault).__name__}: {fault}") from fault
    kinds = [kind for kind, _ in operations]
    unknown = sorted(set(kinds) - set(_OPERATIONS))
    if unknown:
        raise _bad(f"its operations {', '.join(unknown)} are not offered here")
    if kinds[:1] != ["DecodeImage"] or "DecodeImage" in kinds[1:]:
        raise _bad("it must decode the picture first, and once")
    for kind, attributes in operations:
        _try(kind, attributes)
    return Processor(operations)


def _try(kind: str, attributes: Attributes) -> None:
    """Run an operation on a small picture, so that attributes it can't take are found before pictures come."""
    try:
        _OPERATIONS[kind](np.zeros((56, 56, 3), np.uint8), attributes)
    except (RequestError, ImportError):
        return  # of the picture, or of what decodes pictures: said when one comes
    except Exception as fault:  # attributes of another form than the operation takes
        raise _bad(f"{kind}: {type(fault).__name__}: {fault}") from fault


def _kind(type: str) -> str:
    """The operation; one of `...ImageSizes` hands the picture on and tells its size, whatever stands before that."""
    return _SIZES if str(type).endswith(_SIZES) else str(type)


def _attributes(operation: Mapping[str, Any]) -> Attributes:
    if operation.get("inputs", [":*"]) != [":*"]:
        raise _bad(f"'{operation.get('name')}' names its inputs; operations in a row are followed")
    attributes = operation.get("attrs", {})
    if not isinstance(attributes, dict):
        raise _bad(f"the attributes of '{operation.get('name')}' are no object")
    return attributes


def _bad(what: str) -> LoadError:
    help = "make the tensors with the model's own processor and give them to run(inputs)"
    return LoadError("bad-processor", f"this image processor can't be followed: {what}", help=help)


def _stacked(pictures: Sequence[Array]) -> Array:
    """[pictures, ...], smaller ones with zeros behind them on every axis."""
    if len({each.ndim for each in pictures}) > 1:
        raise RequestError("image-sizes", "the pictures become tensors of different rank")
    shape = tuple(max(extents) for extents in zip(*(each.shape for each in pictures), strict=True))
    whole = np.zeros((len(pictures), *shape), pictures[0].dtype)
    for at, each in enumerate(pictures):
        part = tuple(slice(0, extent) for extent in each.shape)
        whole[at][part] = each
    return whole


# ---- operations: a picture and attributes -> a picture ---------------------------------------------------------------


def _decoded(picture: Array, attributes: Attributes) -> Array:
    """Pixels come as RGB; BGR turns them around."""
    return _swapped(picture, {}) if attributes.get("color_space", "RGB") == "BGR" else picture


def _swapped(picture: Array, attributes: Attributes) -> Array:
    """ConvertRGB swaps the first and third channel whatever they are."""
    return np.ascontiguousarray(picture[..., ::-1])


def _resized(picture: Array, attributes: Attributes) -> Array:
    from PIL import Image

    height, width = int(attributes.get("height", 256)), int(attributes.get("width", 256))
    if attributes.get("smart_resize", 0):
        multiple = int(attributes.get("patch_size", 14)) * int(attributes.get("merge_size", 2))
        bounds = int(attributes.get("min_pixels", 3136)), int(attributes.get("max_pixels", 12845056))
        height, width = _smart_size(picture.shape[0], picture.shape[1], multiple, *bounds)
    hold_size(height, width, "a resized picture")
    kernel = Image.Resampling[_FILTERS[attributes.get("interpolation", "CUBIC")]]
    return np.asarray(Image.fromarray(picture).resize((width, height), kernel))


def _smart_size(height: int, width: int, multiple: int, least: int, most: int) -> tuple[int, int]:
    """Edges on a multiple, with an area between two bounds; halves are rounded up (Python's round does otherwise)."""
    if max(height, width) > _ASPECT * min(height, width):
        raise RequestError("image-limit", f"a picture of {width}x{height} pixels is narrower than 1:{_ASPECT}")
    rows, columns = (max(multiple, floor(edge / multiple + 0.5) * multiple) for edge in (height, width))
    if rows * columns > most:
        beta = sqrt(height * width / most)
        return floor(height / beta / multiple) * multiple, floor(width / beta / multiple) * multiple
    if rows * columns < least:
        beta = sqrt(least / (height * width))
        return ceil(height * beta / multiple) * multiple, ceil(width * beta / multiple) * multiple
    return rows, columns


def _rescaled(picture: Array, attributes: Attributes) -> Array:
    return picture.astype(np.float32) * np.float32(attributes.get("rescale_factor", 1 / 255))


def _normalized(picture: Array, attributes: Attributes) -> Array:
    """Raises ValueError for the flags that turn channels around, which no picture here has shown to be right."""
    if others := sorted(set(attributes) - {"mean", "std"}):
        raise ValueError(f"its attributes {', '.join(others)} are not offered here")
    usual = (("mean", _CLIP_MEAN), ("std", _CLIP_STD))
    mean, std = (np.array(attributes.get(key, value), np.float32) for key, value in usual)
    return (picture - mean) / std


def _cropped(picture: Array, attributes: Attributes) -> Array:
    height, width = int(attributes.get("height", 224)), int(attributes.get("width", 224))
    if height > picture.shape[0] or width > picture.shape[1]:
        raise RequestError("image-limit", f"a crop of {width}x{height} pixels is larger than the picture")
    top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
    return picture[top : top + height, left : left + width]


def _permuted(picture: Array, attributes: Attributes) -> Array:
    return np.ascontiguousarray(picture.transpose(attributes.get("dims", [1, 2, 0])))


_OPERATIONS: Mapping[str, Callable[[Array, Attributes], Array]] = {
    "DecodeImage": _decoded,
    "ConvertRGB": _swapped,
    "Resize": _resized,
    "Rescale": _rescaled,
    "Normalize": _normalized,
    "CenterCrop": _cropped,
    "Permute3D": _permuted,
    _SIZES: lambda picture, attributes: picture,
}
