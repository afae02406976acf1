"""Cutting pictures into patches, each one row of a matrix (standard, 5.6, patchify)."""

import numpy as np
import numpy.typing as npt

from genai_runtime.problem import RequestError
from genai_runtime.values import Array


def patch_grid(height: int, width: int, patch: int, merge: int) -> tuple[int, int]:
    """(rows, columns) of patches. Raises RequestError `image-patches` when they are not whole, or their groups not."""
    if height % patch or width % patch:
        raise RequestError("image-patches", f"a picture of {width}x{height} pixels has no whole patches of {patch}")
    rows, columns = height // patch, width // patch
    if rows % merge or columns % merge:
        raise RequestError("image-patches", f"{columns}x{rows} patches can't be merged in groups of {merge}x{merge}")
    return rows, columns


def patchify(
    planes: Array, patch: int, frames: int, group: int, channels_last: bool = False, temporal_major: bool = False
) -> Array:
    """[tiles, channels, height, width] -> [tiles x rows x columns, channels x frames x patch x patch].

    Patches come in groups of group x group (1: row by row). A patch is (channel, frame, y, x), with `temporal_major`
    (frame, channel, y, x), with `channels_last` (frame, y, x, channel); every frame is the same picture.
    """
    tiles, channels, height, width = planes.shape
    rows, columns = height // patch, width // patch
    split = planes.reshape(tiles, channels, rows // group, group, patch, columns // group, group, patch)
    inner = (4, 7, 1) if channels_last else (1, 4, 7)
    ordered = split.transpose(0, 2, 5, 3, 6, *inner)
    single = ordered.reshape(tiles * rows * columns, *ordered.shape[5:])
    axis = 1 if channels_last or temporal_major else 2
    return np.repeat(np.expand_dims(single, axis), frames, axis=axis).reshape(len(single), -1)


def patch_coordinates(tiles: int, rows: int, columns: int, group: int, xy: bool = False) -> npt.NDArray[np.int64]:
    """int64 [tiles x rows x columns, 2]: (row, column) of each patch, tiles below each other, in patchify's order."""
    down, across = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    pair = np.stack((across, down) if xy else (down, across), axis=-1)
    split = pair.reshape(rows // group, group, columns // group, group, 2).swapaxes(1, 2).reshape(-1, 2)
    all_tiles = np.tile(split, (tiles, 1)).astype(np.int64)
    all_tiles[:, 1 if xy else 0] += np.repeat(np.arange(tiles) * rows, rows * columns)
    return all_tiles
