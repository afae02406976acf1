"""What size a picture becomes, and putting it there (standard, 5.6, resize modes). Sizes are (height, width)."""

from math import ceil, floor, sqrt

import numpy as np

from genai_runtime.adapters.image.limits import hold_size
from genai_runtime.adapters.image.program import ImageResize
from genai_runtime.adapters.image.resample import by_pillow, resample
from genai_runtime.problem import RequestError
from genai_runtime.values import Array

Size = tuple[int, int]
MAX_ASPECT = 200


def resized_to(size: Size, resize: ImageResize) -> Size:
    """What a picture of `size` becomes. Raises RequestError `image-limit`."""
    match resize.mode:
        case "pixel_area":
            return pixel_area(size, resize.min_pixels, resize.max_pixels, resize.multiple, resize.half_up)
        case "patch_budget":
            return patch_budget(size, resize.patch, resize.max_patches, resize.pooling)
        case "shortest":
            short, long = min(size), max(size)
            other = max(1, int(resize.height * long / short))
            return (resize.height, other) if size[0] <= size[1] else (other, resize.height)
        case _:
            return resize.height, resize.width


def resized(picture: Array, resize: ImageResize) -> Array:
    """A picture as the resize makes it. Raises RequestError `image-limit`."""
    size = resized_to(picture.shape[:2], resize)
    hold_size(*size, "a resized picture")
    if resize.pillow:
        return by_pillow(picture, *size, resize.interpolation)
    fit = resize.mode if resize.mode in ("crop", "pad") else "stretch"
    return fitted(picture, size, fit, resize.interpolation)


def middle(picture: Array, size: Size) -> Array:
    """The middle of a picture. Raises RequestError `image-limit` where the picture is smaller."""
    height, width = picture.shape[:2]
    if size[0] > height or size[1] > width:
        what = f"a crop of {size[1]}x{size[0]} pixels is larger than the picture, {width}x{height}"
        raise RequestError("image-limit", what, help="give a larger picture")
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    return picture[top : top + size[0], left : left + size[1]]


def pixel_area(size: Size, least: int, most: int, multiple: int, half_up: bool = False) -> Size:
    """Edges on a multiple, with an area between two bounds. Raises RequestError `image-limit` beyond aspect 200."""
    height, width = size
    if max(size) > MAX_ASPECT * min(size):
        what = f"a picture of {width}x{height} pixels is narrower than 1:{MAX_ASPECT} (V067)"
        raise RequestError("image-limit", what, help="cut it to a part that is less narrow")
    area = height * width
    nearest = _nearest if half_up else round
    rows, columns = nearest(height / multiple), nearest(width / multiple)
    if half_up:
        rows, columns = max(1, rows), max(1, columns)
    if rows * columns * multiple**2 > most:
        beta = sqrt(area / most)
        rows, columns = (max(1, floor(edge / beta / multiple)) for edge in size)
    elif rows * columns * multiple**2 < least:
        beta = sqrt(least / area)
        rows, columns = (max(1, ceil(edge * beta / multiple)) for edge in size)
    return rows * multiple, columns * multiple


def patch_budget(size: Size, patch: int, most: int, pooling: int) -> Size:
    """The largest edges on a multiple of patch x pooling with `most` patches at most. May raise image-limit."""
    height, width = size
    side, factor = patch * pooling, sqrt(most * patch * patch / (height * width))
    rows, columns = floor(height * factor / side), floor(width * factor / side)
    longest = most // pooling**2
    if not rows and not columns:
        what = f"{most} patches of {patch} pixels leave no room for a picture of {width}x{height} pixels (V067)"
        raise RequestError("image-limit", what)
    if not rows:
        rows, columns = 1, min(width // height, longest)
    elif not columns:
        rows, columns = min(height // width, longest), 1
    if rows * columns * pooling**2 > most:
        what = f"a picture of {width}x{height} pixels needs {rows * columns * pooling**2} patches of {most} (V067)"
        raise RequestError("image-limit", what)
    return rows * side, columns * side


def fitted(picture: Array, size: Size, fit: str, interpolation: str) -> Array:
    """A picture of exactly `size`: stretched, cut to its middle (crop), or centred on black (pad)."""
    hold_size(*size, "a resized picture")
    if fit == "stretch":
        return resample(picture, *size, interpolation)
    height, width = picture.shape[:2]
    if fit == "crop":
        scale = max(size[0] / height, size[1] / width)
        inner = (max(_nearest(height * scale), size[0]), max(_nearest(width * scale), size[1]))
        hold_size(*inner, "a picture before it is cropped")
        whole = resample(picture, *inner, interpolation)
        top, left = (inner[0] - size[0]) // 2, (inner[1] - size[1]) // 2
        return whole[top : top + size[0], left : left + size[1]]
    scale = min(size[0] / height, size[1] / width)
    inner = (min(max(_nearest(height * scale), 1), size[0]), min(max(_nearest(width * scale), 1), size[1]))
    canvas = np.zeros((*size, picture.shape[2]), np.uint8)
    top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    canvas[top : top + inner[0], left : left + inner[1]] = resample(picture, *inner, interpolation)
    return canvas


def _nearest(extent: float) -> int:
    return floor(extent + 0.5)
