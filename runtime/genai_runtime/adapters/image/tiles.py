"""Cutting a picture into square tiles (standard, 5.6, tile modes). Grids are (columns, rows)."""

from math import floor
from typing import NamedTuple

import numpy as np

from genai_runtime.adapters.image.limits import hold_size
from genai_runtime.adapters.image.resample import resample
from genai_runtime.adapters.image.sizes import Size
from genai_runtime.problem import RequestError
from genai_runtime.values import Array

Grid = tuple[int, int]
GRIDS: tuple[Grid, ...] = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2))
"""The grids of dynamic_anyres in the order that decides between equals; fixed_grid has the first."""
SHORTEST = 10
"""dynamic_hd makes no picture with an edge below this."""


class HighDefinition(NamedTuple):
    """What dynamic_hd makes of a picture. mask: uint8 [rows x edge, columns x edge], 1 where a cell shows picture."""

    canvas: Array
    grid: Grid
    mask: Array


def best_grid(size: Size, tile: int, most: int, grids: tuple[Grid, ...] = GRIDS) -> Grid:
    """The grid whose canvas keeps most of the picture's pixels when it is fitted in; among equals, the least waste."""

    def kept_and_waste(grid: Grid) -> tuple[int, int]:
        height, width = grid[1] * tile, grid[0] * tile
        scale = min(width / size[1], height / size[0])
        kept = min(floor(size[0] * scale) * floor(size[1] * scale), size[0] * size[1])
        return -kept, height * width - kept

    return min((grid for grid in grids if grid[0] * grid[1] <= most), key=kept_and_waste)


def high_definition_grid(size: Size, tile: int, most: int) -> Grid:
    """As many tiles as cover the picture at its own size; when those are too many, the grid nearest in aspect.

    Among grids equally near, a larger one is taken when the picture has more than half its area.
    """
    grid = (-(-size[1] // tile), -(-size[0] // tile))
    if grid[0] * grid[1] <= most:
        return grid
    candidates = sorted(
        ((columns, rows) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)),
        key=lambda each: (each[0] * each[1], each),
    )
    aspect, area = size[1] / size[0], size[0] * size[1]
    best, nearest = candidates[0], abs(aspect - candidates[0][0] / candidates[0][1])
    for columns, rows in candidates[1:]:
        distance = abs(aspect - columns / rows)
        if distance < nearest or (distance == nearest and area > tile * tile * columns * rows // 2):
            best, nearest = (columns, rows), distance
    return best


def high_definition(
    picture: Array, tile: int, most: int, cell: int, background: int, interpolation: str
) -> HighDefinition:
    """The picture, as large as its grid lets it be, in the top left corner of a canvas.

    cell: pixels of one entry of the mask. Raises RequestError `image-limit`.
    """
    grid, inner = fields_of(picture.shape[:2], tile, most)
    tall, wide = grid[1] * tile, grid[0] * tile
    hold_size(tall, wide, "the canvas of the tiles")
    canvas = np.full((tall, wide, picture.shape[2]), background, np.uint8)
    canvas[: inner[0], : inner[1]] = resample(picture, inner[0], inner[1], interpolation)
    return HighDefinition(canvas, grid, field_mask(inner, (tall, wide), cell))


def fields_of(size: Size, tile: int, most: int) -> tuple[Grid, Size]:
    """(the grid of a picture of `size`, how large the picture is on it). Raises RequestError `image-limit`."""
    height, width = size
    columns, rows = grid = high_definition_grid(size, tile, most)
    tall, wide = rows * tile, columns * tile
    across, down = wide / width, tall / height
    inner = (floor(height * across), wide) if across < down else (tall, floor(width * down))
    if min(inner) < SHORTEST:
        what = f"a picture of {width}x{height} pixels would be {inner[1]}x{inner[0]} on its tiles (V067)"
        raise RequestError("image-limit", what, help="cut it to a part that is less narrow")
    return grid, inner


def field_mask(inner: Size, outer: Size, cell: int) -> Array:
    """uint8 [cells, cells] of a canvas: 1 where a cell shows some of the picture in its top left corner."""
    mask = np.ones((outer[0] // cell, outer[1] // cell), np.uint8)
    mask[mask.shape[0] - (outer[0] - inner[0]) // cell :] = 0
    mask[:, mask.shape[1] - (outer[1] - inner[1]) // cell :] = 0
    return mask


def cut(canvas: Array, tile: int) -> Array:
    """[rows x tile, columns x tile, ...] -> [rows x columns, tile, tile, ...], row by row."""
    rows, columns, rest = canvas.shape[0] // tile, canvas.shape[1] // tile, canvas.shape[2:]
    split = canvas.reshape(rows, tile, columns, tile, *rest).swapaxes(1, 2)
    return split.reshape(rows * columns, tile, tile, *rest)


def with_thumbnail(tiles: Array, thumbnail: Array, place: str) -> Array:
    """Tiles with the whole picture before or after them; place: prepend, append."""
    return np.concatenate([thumbnail[None], tiles] if place == "prepend" else [tiles, thumbnail[None]])
