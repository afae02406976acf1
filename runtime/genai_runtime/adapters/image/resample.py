"""Resampling by separable kernels that widen when a picture shrinks (standard, 5.6).

bicubic is Catmull-Rom (a = -0.5), bilinear the triangle, lanczos3 the sinc windowed by its own main lobe. Rows first, then
columns, in float32; levels are rounded half up and clipped once, at the end.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from genai_runtime.values import Array

Floats = npt.NDArray[np.float64]
BLOCK = 64
"""Rows made at a time, so that what lies between the two directions stays small."""


def resample(picture: Array, height: int, width: int, interpolation: str) -> Array:
    """uint8 [h, w, channels] -> uint8 [height, width, channels]."""
    if picture.shape[:2] == (height, width):
        return picture
    rows, row_weights = _taps(picture.shape[0], height, interpolation)
    columns, column_weights = _taps(picture.shape[1], width, interpolation)
    out = np.empty((height, width, picture.shape[2]), np.uint8)
    for start in range(0, height, BLOCK):
        block = slice(start, start + BLOCK)
        tall = _weighted(picture, rows[block], row_weights[block], 0)
        both = _weighted(tall, columns, column_weights, 1)
        out[block] = np.clip(np.floor(both + np.float32(0.5)), 0, 255)
    return out


def _weighted(source: Array, places: Array, weights: Array, axis: int) -> npt.NDArray[np.float32]:
    """The weighted sum over the taps of each target place on an axis. places, weights: [targets, taps]."""
    taps = weights.T.reshape((-1, len(places), 1, 1) if axis == 0 else (-1, 1, len(places), 1))
    total = np.take(source, places[:, 0], axis=axis) * taps[0]
    for at in range(1, len(taps)):
        total += np.take(source, places[:, at], axis=axis) * taps[at]
    return total


def _taps(source: int, target: int, interpolation: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """For each target place the source places it is made of and their weights, both [target, taps]."""
    kernel, support = KERNELS[interpolation]
    ratio = source / target
    spread = max(ratio, 1.0)
    centres = (np.arange(target) + 0.5) * ratio
    first = np.clip(np.floor(centres - support * spread), 0, source - 1).astype(np.intp)
    last = np.clip(np.ceil(centres + support * spread), first + 1, source).astype(np.intp)
    places = first[:, None] + np.arange(int((last - first).max()))
    weights = kernel(np.abs(places + 0.5 - centres[:, None]) / spread) * (places < last[:, None])
    weights /= weights.sum(axis=1, keepdims=True)
    return np.minimum(places, source - 1), weights.astype(np.float32)


def _catmull_rom(x: Floats) -> Floats:
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _triangle(x: Floats) -> Floats:
    return np.maximum(1 - x, 0)


def _lanczos3(x: Floats) -> Floats:
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


KERNELS: dict[str, tuple[Callable[[Floats], Floats], float]] = {
    "bicubic": (_catmull_rom, 2),
    "bilinear": (_triangle, 1),
    "lanczos3": (_lanczos3, 3),
}
"""Interpolation -> kernel over distances, and how far it reaches."""
