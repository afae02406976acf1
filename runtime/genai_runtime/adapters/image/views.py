"""A picture as several square views: the whole of it, made small, and then its parts, row by row.

squares: the picture fills as many squares as there may be, in its own aspect; the rest of them is white, on both sides.
fields:  the picture at about its own size, in the top left corner of white fields; a mask says which cells show it.
tiles:   parts alone: the grid that enlarges the picture least, or else makes it small least; in the top left of black.
"""

from math import ceil, floor

import numpy as np
import numpy.typing as npt

from genai_runtime.adapters.image.limits import hold_elements, hold_size
from genai_runtime.adapters.image.program import ImageViews
from genai_runtime.adapters.image.resample import by_pillow
from genai_runtime.adapters.image.sizes import Size
from genai_runtime.adapters.image.tiles import cut, field_mask, fields_of
from genai_runtime.values import Array

WHITE, BLACK = 255, 0
_NEAR = 1e-9
Singles = npt.NDArray[np.float32]


def canvas_of(picture: Array, views: ImageViews) -> tuple[Array, Array | None]:
    """(uint8 [height, width, 3], a multiple of the views' size; the mask of its cells, None for squares).

    Raises RequestError `image-limit`.
    """
    size = picture.shape[:2]
    mask = None
    top, left = 0, 0
    if views.mode == "squares":
        inner, outer = squares_of(size, views.size, views.most)
        top, left = (outer[0] - inner[0]) // 2, (outer[1] - inner[1]) // 2
    elif views.mode == "tiles":
        grid = tile_grid(size, views.size, views.most)
        outer = (grid[0] * views.size, grid[1] * views.size)
        inner = inside(size, outer, views.size)
    else:
        columns_rows, inner = fields_of(size, views.size, views.most)
        outer = (columns_rows[1] * views.size, columns_rows[0] * views.size)
        mask = field_mask(inner, outer, views.cell)
    hold_size(*outer, "the canvas of the views")
    canvas = np.full((*outer, picture.shape[2]), BLACK if views.mode == "tiles" else WHITE, np.uint8)
    canvas[top : top + inner[0], left : left + inner[1]] = by_pillow(picture, *inner, "bilinear")
    return canvas, mask


def squares_of(size: Size, edge: int, most: int) -> tuple[Size, Size]:
    """(what the picture becomes, the canvas around it): the long side takes as many squares as fit beside the short."""
    height, width = size
    ratio = max(size) / min(size)
    count = 1
    while (count + 1) * ceil((count + 1) / ratio) <= most:
        count += 1
    long = count * edge
    short = max(1, int(long / ratio))
    outer = -(-short // edge) * edge
    return ((short, long), (outer, long)) if width >= height else ((long, short), (long, outer))


def grids(most: int) -> list[Size]:
    """(rows, columns) of all grids of at most so many tiles, by rows, then by columns: a grid's number is its place."""
    return [(down, across) for down in range(1, most + 1) for across in range(1, most // down + 1)]


def tile_grid(size: Size, edge: int, most: int) -> Size:
    """(rows, columns): of the grids as large as the picture or larger the nearest in scale, else the largest in scale;
    of those that are equal the one of the fewest tiles, then the first."""
    scales = [(min(edge * down / size[0], edge * across / size[1]), (down, across)) for down, across in grids(most)]
    larger = [scale for scale, _ in scales if scale >= 1]
    wanted = min(larger) if larger else max(scale for scale, _ in scales)
    return min((grid for scale, grid in scales if abs(scale - wanted) < _NEAR), key=lambda each: each[0] * each[1])


def inside(size: Size, canvas: Size, edge: int) -> Size:
    """What a picture becomes on a canvas: in its own aspect, as large as it was, if that is between a tile and the
    canvas. Halves are rounded up."""
    tall, wide = (min(max(each, edge), most) / each for each, most in zip(size, canvas, strict=True))
    if wide < tall:
        return max(1, floor(size[0] * wide + 0.5)), min(max(size[1], edge), canvas[1])
    return min(max(size[0], edge), canvas[0]), max(1, floor(size[1] * tall + 0.5))


def entries_of_views(size: Size, views: ImageViews) -> int:
    """How many entries of a prompt a picture of this size takes."""
    if views.mode == "squares":
        _, (height, width) = squares_of(size, views.size, views.most)
        down, across = height // views.size, width // views.size
        edge = views.size // (2 * views.cell)
        return (down * across + 1) * edge**2 + 1 + (down + 1) * edge
    grid, inner = fields_of(size, views.size, views.most)
    mask = field_mask(inner, (grid[1] * views.size, grid[0] * views.size), views.cell)
    edge = views.size // (2 * views.cell)
    return edge**2 + 1 + int(mask[::2, ::2].sum()) + int(mask[::2, 0].sum()) + edge


def seen(planes: Singles, edge: int, whole_first: bool = True) -> Singles:
    """[3, height, width] -> [1 + parts, 3, edge, edge]: the whole, by Pillow's bicubic in floats, then the parts.

    Without whole_first the parts alone.
    """
    if not whole_first:
        return cut(np.ascontiguousarray(planes.transpose(1, 2, 0)), edge).transpose(0, 3, 1, 2)
    from PIL import Image

    whole = [np.asarray(Image.fromarray(each).resize((edge, edge), Image.Resampling.BICUBIC)) for each in planes]
    parts = cut(np.ascontiguousarray(planes.transpose(1, 2, 0)), edge).transpose(0, 3, 1, 2)
    return np.concatenate([np.stack(whole)[None], parts])


def masks_of(mask: Array, views: ImageViews) -> Array:
    """[1 + parts, cells, cells] of a canvas' mask: of the whole, which shows picture everywhere, then of the parts."""
    edge = views.size // views.cell
    return np.concatenate([np.ones((1, edge, edge), mask.dtype), cut(mask, edge)])


def together(pictures: list[Array], least: int, fill: float) -> Array:
    """[views, ...] each -> [pictures, most views, ...], filled up behind. least: of views."""
    count = max(least, *(len(each) for each in pictures))
    hold_elements((len(pictures), count, *pictures[0].shape[1:]), "all views together")
    made = np.full((len(pictures), count, *pictures[0].shape[1:]), fill, pictures[0].dtype)
    for at, each in enumerate(pictures):
        made[at, : len(each)] = each
    return made
