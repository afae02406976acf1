"""Tensors that are pictures -> bytes that a screen shows, and a PNG file of them (standard, 11)."""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from genai_runtime.file_forms import PNG, hold_ending
from genai_runtime.problem import RequestError
from genai_runtime.values import Array

CHANNELS = {1: 0, 2: 4, 3: 2, 4: 6}
"""Channels of a picture -> PNG's colour type."""
_TO_BYTES = {"zero_to_one": (0.0, 255.0), "negative_one_to_one": (1.0, 127.5), "zero_to_255": (0.0, 1.0)}
"""value_range -> (what is added, what it is multiplied with then)."""


def as_pictures(array: Array, value_range: str, dims: Sequence[int | str | None] = ()) -> list[npt.NDArray[np.uint8]]:
    """uint8 [height, width, channels] each, of [N, C, H, W], [N, H, W, C], or one of them without N.

    dims: what the contract says of the axes; where it does not tell the layout, the extents do, channels first before
    last. Levels are clipped, rounded half up; NaN is 0. Raises RequestError `no-pictures`.
    """
    if array.ndim not in (3, 4):
        what = f"a tensor of rank {array.ndim} holds no pictures: they have channels, height and width"
        raise RequestError("no-pictures", what)
    batch = array if array.ndim == 4 else array[None]
    wanted = tuple(dims)[-3:] if len(dims) == array.ndim else (None, None, None)
    first = _channels_first(wanted, batch.shape[1:])
    if first is None:
        raise RequestError("no-pictures", f"no axis of a tensor of shape {list(array.shape)} can be its channels")
    added, factor = _TO_BYTES[value_range]
    with np.errstate(over="ignore"):  # infinite then, and clipped
        levels = np.nan_to_num((batch.astype(np.float32) + np.float32(added)) * np.float32(factor), nan=0.0)
    whole = np.floor(np.clip(levels, 0, 255) + np.float32(0.5)).astype(np.uint8)
    return list(np.ascontiguousarray(whole.transpose(0, 2, 3, 1)) if first else whole)


def _channels_first(dims: tuple[int | str | None, ...], shape: tuple[int, ...]) -> bool | None:
    """Whether the first of three axes is the channels, as the contract or else the extents tell; None: neither is."""
    for extents in (dims, shape):
        if extents[0] in CHANNELS or extents[2] in CHANNELS:
            return extents[0] in CHANNELS
    return None


def png_bytes(picture: npt.NDArray[np.uint8]) -> bytes:
    """A PNG file of uint8 [height, width] or [height, width, 1 to 4]. Raises RequestError `no-pictures`."""
    pixels = picture[..., None] if picture.ndim == 2 else picture
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[2] not in CHANNELS or not pixels.size:
        what = f"a PNG file shows uint8 [height, width, 1 to 4], not {picture.dtype} {list(picture.shape)}"
        raise RequestError("no-pictures", what)
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter, which is none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, CHANNELS[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def save_png(file: str | Path, picture: npt.NDArray[np.uint8]) -> None:
    """Write a picture, as `Result.images` gives it, to a PNG file.

    Raises RequestError `no-pictures`, `file-ending`, OSError.
    """
    hold_ending(file, PNG)
    data = png_bytes(picture)
    Path(file).write_bytes(data)
