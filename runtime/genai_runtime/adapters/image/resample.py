"""Resampling by separable kernels that widen when a picture shrinks (standard, 5.6).

bicubic is Catmull-Rom (a = -0.5), bilinear the triangle, lanczos3 the sinc windowed by its own main lobe. Both
directions run in float32; levels are rounded half up and clipped once, at the end. Neighbouring places share most of
their sources, so a few of them at a time are one small matrix product.
"""

from collections.abc import Callable, Iterator
from math import ceil, floor

import numpy as np
import numpy.typing as npt

from genai_runtime.values import Array

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
TIE = np.float32(2**-14)
"""What lies so close below a half counts as one: float32 is no finer, and ties then fall alike on every machine."""
BLOCK = 1 << 22
"""Numbers turned on their side at a time."""


def resample(picture: Array, height: int, width: int, interpolation: str) -> Array:
    """uint8 [h, w, channels] -> uint8 [height, width, channels]."""
    rows, columns = picture.shape[:2]
    if (rows, columns) == (height, width):
        return picture
    if rows * width < height * columns:  # the direction that leaves less to do goes first
        made = _down(_across(picture, width, interpolation), height, interpolation)
    else:
        made = _across(_down(picture, height, interpolation), width, interpolation)
    made += np.float32(0.5) + TIE
    return np.clip(np.floor(made, out=made), 0, 255, out=made).astype(np.uint8)


_PILLOW = {"nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "lanczos3": "LANCZOS"}


def by_pillow(picture: Array, height: int, width: int, interpolation: str) -> Array:
    """The same by Pillow, whose pictures between the two directions hold whole levels."""
    from PIL import Image

    made = Image.fromarray(picture).resize((width, height), Image.Resampling[_PILLOW[interpolation]])
    return np.asarray(made)


def _down(source: Array, target: int, interpolation: str) -> Singles:
    """[h, w, channels] -> [target, w, channels]."""
    lines = source.reshape(len(source), -1)
    out = np.empty((target, lines.shape[1]), np.float32)
    for places, sources, weights in _bands(len(source), target, interpolation):
        np.matmul(weights, lines[sources].astype(np.float32, copy=False), out=out[places])
    return out.reshape(target, *source.shape[1:])


def _across(source: Array, target: int, interpolation: str) -> Singles:
    """[h, w, channels] -> [h, target, channels]."""
    rows, columns, channels = source.shape
    out = np.empty((rows, target, channels), np.float32)
    step = max(1, BLOCK // (max(columns, target) * channels))
    for start in range(0, rows, step):
        block = source[start : start + step]
        turned = np.ascontiguousarray(block.transpose(1, 0, 2))
        out[start : start + step] = _down(turned, target, interpolation).transpose(1, 0, 2)
    return out


def _bands(source: int, target: int, interpolation: str) -> Iterator[tuple[slice, slice, Singles]]:
    """A few target places at a time: the places, the sources that they are made of, and their weights."""
    kernel, support = KERNELS[interpolation]
    ratio = source / target
    spread = max(ratio, 1.0)
    step = min(max(int(64 / ratio), 1), 32)
    for start in range(0, target, step):
        end = min(start + step, target)
        centres = (np.arange(start, end) + 0.5) * ratio - 0.5
        first = max(0, floor(centres[0] - support * spread))
        last = min(source, ceil(centres[-1] + support * spread) + 1)
        weights = kernel(np.abs(np.arange(first, last) - centres[:, None]) / spread)
        weights /= weights.sum(axis=1, keepdims=True)
        yield slice(start, end), slice(first, last), weights.astype(np.float32)


def _catmull_rom(x: Floats) -> Floats:
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _triangle(x: Floats) -> Floats:
    return np.maximum(1 - x, 0)


def _lanczos3(x: Floats) -> Floats:
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


KERNELS: dict[str, tuple[Callable[[Floats], Floats], int]] = {
    "bicubic": (_catmull_rom, 2),
    "bilinear": (_triangle, 1),
    "lanczos3": (_lanczos3, 3),
}
"""Interpolation -> kernel over distances, and how far it reaches."""
