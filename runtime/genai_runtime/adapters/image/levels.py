"""Rescaling and normalising, once for each of the 256 levels that a channel has instead of for every pixel."""

import numpy as np
import numpy.typing as npt

from genai_runtime.adapters.image.program import Levels
from genai_runtime.values import Array, encode


def level_table(levels: Levels, dtype: str) -> Array:
    """[3, 256]: what each level of each channel becomes, in float32 arithmetic, as elements of `dtype`."""
    table: npt.NDArray[np.float32] = np.tile(np.arange(256, dtype=np.float32), (3, 1))
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large for a type becomes its infinity
        for numbers in levels:
            given = np.array(numbers, np.float32)
            table = table * given if len(numbers) == 1 else (table - given[:3, None]) / given[3:, None]
        return encode(table, dtype)


def through_table(pictures: Array, table: Array) -> Array:
    """uint8 [n, height, width, 3] -> [n, 3, height, width] of the table's elements."""
    planes = np.empty((len(pictures), 3, *pictures.shape[1:3]), table.dtype)
    for channel in range(3):
        planes[:, channel] = table[channel][pictures[..., channel]]
    return planes
