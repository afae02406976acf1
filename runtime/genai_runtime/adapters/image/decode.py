"""Picture files -> pixels, through Pillow, which is imported when the first picture comes (extra `image`).

Only formats that people send are tried; a picture's size is held against the limit before its pixels are decoded. An
animation is its first picture, transparency is dropped, 16-bit grey becomes 8-bit by rounding, and a picture whose EXIF
says how it was held is turned upright.
"""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from genai_runtime.adapters.image.limits import hold_size
from genai_runtime.problem import GenaiError, LoadError, RequestError
from genai_runtime.values import Array

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_ORIENTATION = 0x0112
_HELP = "give the bytes of a PNG, JPEG, WebP, GIF or BMP file"


def decode(data: bytes, name: str = "the picture") -> Array:
    """uint8 [height, width, 3]. Raises RequestError `bad-image`, `image-limit`; LoadError `pillow-missing`."""
    return _opened(data, name, lambda picture: _upright(_rgb(picture), _orientation(picture)))


def upright_size(data: bytes, name: str = "the picture") -> tuple[int, int]:
    """(height, width) of what `decode` would give, of which only the file's header is read. Raises the same."""

    def size(picture: "Image.Image") -> tuple[int, int]:
        turned = 5 <= _orientation(picture) <= 8
        return (picture.width, picture.height) if turned else (picture.height, picture.width)

    return _opened(data, name, size)


def _opened(data: bytes, name: str, read: "Callable[[Image.Image], T]") -> "T":
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as missing:
        help = "install genai-compile[image]"
        raise LoadError(
            "pillow-missing", "pictures are decoded by Pillow, which is not installed", help=help
        ) from missing
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            hold_size(picture.height, picture.width, name)
            return read(picture)
    except GenaiError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as bomb:
        raise RequestError(
            "image-limit", f"{name} is too large (V067): {bomb}", help="give a smaller picture"
        ) from bomb
    except UnidentifiedImageError as unknown:
        what = f"{name} ({len(data)} bytes) is no picture file that can be read"
        raise RequestError("bad-image", what, help=_HELP) from unknown
    except Exception as fault:  # a damaged file makes a decoder raise anything
        what = f"{name} is damaged: {type(fault).__name__}: {fault}"
        raise RequestError("bad-image", what, help=_HELP) from fault


def _rgb(picture: "Image.Image") -> Array:
    if picture.mode.startswith("I"):
        deep = np.asarray(picture).astype(np.int64)
        levels = ((np.clip(deep, 0, 65535) + 128) // 257).astype(np.uint8)
        return np.repeat(levels[..., None], 3, axis=2)
    solid = picture.convert("RGBA") if picture.mode in ("P", "PA") else picture
    return np.asarray(solid.convert("RGB"))


def _orientation(picture: "Image.Image") -> int:
    try:
        return int(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF says nothing about the pixels
        return 1


def _upright(pixels: Array, orientation: int) -> Array:
    """Undo how the camera was held (EXIF 2.3, tag Orientation): 5 to 8 swap the axes first."""
    if not 2 <= orientation <= 8:
        return pixels
    turned = pixels.transpose(1, 0, 2) if orientation >= 5 else pixels
    if orientation in (3, 4, 7, 8):
        turned = turned[::-1]
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    return np.ascontiguousarray(turned)
