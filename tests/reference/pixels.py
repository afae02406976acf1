"""Pictures in plain arithmetic: sizes, resampling by whole matrices, tiles and patches by loops (standard, 5.6)."""

import math
from typing import Any

import numpy as np

from tests.reference.values import Array, Document, ReferenceError


def refuse(what: str) -> ReferenceError:
    return ReferenceError("adapter", what)


# ---- sizes and resampling --------------------------------------------------------------------------------------------


def pixel_area(height: int, width: int, transform: Document) -> tuple[int, int]:
    """Edges on a multiple, with an area between the two bounds."""
    multiple, least, most = (transform[name] for name in ("size_multiple", "min_pixels", "max_pixels"))
    if max(height, width) > 200 * min(height, width):
        raise refuse(f"a picture of {width}x{height} is too narrow")
    edges = [round(edge / multiple) * multiple for edge in (height, width)]
    if edges[0] * edges[1] > most:
        beta = math.sqrt(height * width / most)
        edges = [max(multiple, math.floor(edge / beta / multiple) * multiple) for edge in (height, width)]
    elif edges[0] * edges[1] < least:
        beta = math.sqrt(least / (height * width))
        edges = [max(multiple, math.ceil(edge * beta / multiple) * multiple) for edge in (height, width)]
    return edges[0], edges[1]


def patch_budget(height: int, width: int, transform: Document) -> tuple[int, int]:
    """Edges that keep the aspect within a budget of patches."""
    p, most, k = (transform[name] for name in ("patch_size", "max_patches", "pooling_kernel_size"))
    factor = math.sqrt(most * p * p / (height * width))
    tall, wide = (math.floor(edge * factor / (p * k)) * p * k for edge in (height, width))
    if tall == 0 and wide == 0:
        raise refuse("no room for a patch")
    cap = math.floor(most / (k * k)) * p * k
    if tall == 0:
        tall, wide = p * k, min(math.floor(width / height) * p * k, cap)
    elif wide == 0:
        tall, wide = min(math.floor(height / width) * p * k, cap), p * k
    if tall * wide == 0 or (tall // p) * (wide // p) > most:
        raise refuse("more patches than the budget, or none")
    return tall, wide


def resample(picture: Array, height: int, width: int, name: str) -> Array:
    """uint8, by one whole matrix a direction in float64."""
    vertical, horizontal = _matrix(picture.shape[0], height, name), _matrix(picture.shape[1], width, name)
    made = np.einsum("yi,ijc,xj->yxc", vertical, picture.astype(np.float64), horizontal, optimize=True)
    return np.asarray(np.clip(np.floor(made + 0.5 + 1e-9), 0, 255).astype(np.uint8))


def _matrix(source: int, target: int, name: str) -> Array:
    """float64 [target, source]: the kernel's weights, widened when the picture shrinks."""
    ratio = source / target
    centres = (np.arange(target)[:, None] + 0.5) * ratio - 0.5
    x = np.abs(np.arange(source)[None, :] - centres) / max(ratio, 1.0)
    if name == "bilinear":
        weights = np.where(x < 1, 1 - x, 0.0)
    elif name in ("lanczos", "lanczos3"):
        safe = np.where(x == 0, 1.0, np.pi * x)
        weights = np.where(x < 3, np.where(x == 0, 1.0, 3 * np.sin(safe) * np.sin(safe / 3) / safe**2), 0.0)
    else:
        near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
        weights = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def resized(picture: Array, transform: Document, target: tuple[int, int] | None = None) -> Array:
    """A picture after a resize transform; target: the size to take instead of the transform's own."""
    height, width = picture.shape[:2]
    mode, name = transform.get("mode", "stretch"), transform.get("interpolation", "bicubic")
    if target is None and mode in ("pixel_area", "aspect_ratio_patch_budget"):
        target = (pixel_area if mode == "pixel_area" else patch_budget)(height, width, transform)
    if target is None:
        size: Any = transform["size"]
        target = (size, size) if isinstance(size, int) else (size["height"], size["width"])
    tall, wide = target
    if mode in ("crop", "shortest_edge", "shortest_edge_center_crop"):
        scale = max(tall / height, wide / width)
        whole = resample(picture, max(half_up(height * scale), tall), max(half_up(width * scale), wide), name)
        top, left = (whole.shape[0] - tall) // 2, (whole.shape[1] - wide) // 2
        return whole[top : top + tall, left : left + wide]
    if mode in ("pad", "longest_edge_pad"):
        scale = min(tall / height, wide / width)
        inner = resample(
            picture, min(max(half_up(height * scale), 1), tall), min(max(half_up(width * scale), 1), wide), name
        )
        canvas = np.zeros((tall, wide, 3), np.uint8)
        top, left = (tall - inner.shape[0]) // 2, (wide - inner.shape[1]) // 2
        canvas[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
        return canvas
    return resample(picture, tall, wide, name)


def half_up(number: float) -> int:
    return math.floor(number + 0.5)


# ---- tiles -----------------------------------------------------------------------------------------------------------


def tiled(picture: Array, tile: Document, resize: Document) -> tuple[list[Array], tuple[int, int], list[Array] | None]:
    """Tiles in order, the size of their canvas, and the masks of dynamic_hd. resize: how pictures are fitted."""
    edge, mode = tile["tile_size"], tile.get("mode", "dynamic_anyres")
    if mode == "dynamic_hd":
        return _high_definition(picture, tile, resize)
    grids = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2)] if mode == "dynamic_anyres" else [(1, 1)]
    best: tuple[int, int] | None = None
    scores: list[tuple[int, int]] = []
    for columns, rows in grids:
        if columns * rows > tile.get("max_tiles", 6):
            continue
        scale = min(columns * edge / picture.shape[1], rows * edge / picture.shape[0])
        area = math.floor(picture.shape[1] * scale) * math.floor(picture.shape[0] * scale)
        kept = min(area, picture.shape[0] * picture.shape[1])
        score = (kept, -(columns * rows * edge * edge - kept))
        if not scores or score > max(scores):
            best = (columns, rows)
        scores.append(score)
    assert best is not None
    canvas = resized(picture, resize, (best[1] * edge, best[0] * edge))
    whole = resized(picture, resize, (edge, edge))
    return _with_whole(_cut(canvas, edge), whole, tile), canvas.shape[:2], None


def _cut(canvas: Array, edge: int) -> list[Array]:
    return [
        canvas[y : y + edge, x : x + edge]
        for y in range(0, canvas.shape[0], edge)
        for x in range(0, canvas.shape[1], edge)
    ]


def _with_whole(tiles: list[Array], whole: Array, tile: Document) -> list[Array]:
    match tile.get("thumbnail_order", "none"):
        case "prepend":
            return [whole, *tiles]
        case "append":
            return [*tiles, whole]
        case _:
            return tiles


def _high_definition(
    picture: Array, tile: Document, resize: Document
) -> tuple[list[Array], tuple[int, int], list[Array] | None]:
    edge, most, cell = tile["tile_size"], tile.get("max_tiles", 6), tile["mask_patch_size"]
    height, width = picture.shape[:2]
    columns, rows = math.ceil(width / edge), math.ceil(height / edge)
    if columns * rows > most:
        least = math.inf
        for count in range(1, most + 1):
            for wide in range(1, count + 1):
                if count % wide:
                    continue
                distance = abs(width / height - wide / (count // wide))
                roomy = height * width > edge * edge * count // 2
                if distance < least or (distance == least and roomy):
                    least, columns, rows = distance, wide, count // wide
    tall, wide = rows * edge, columns * edge
    if wide / width < tall / height:
        inner_height, inner_width = math.floor(height * (wide / width)), wide
    else:
        inner_height, inner_width = tall, math.floor(width * (tall / height))
    if min(inner_height, inner_width) < 10:
        raise refuse("too narrow for its tiles")
    canvas = np.full((tall, wide, 3), int(tile["canvas_pad_value"]), np.uint8)
    inner = resample(picture, inner_height, inner_width, resize.get("interpolation", "bicubic"))
    canvas[:inner_height, :inner_width] = inner
    mask = np.zeros((tall // cell, wide // cell), np.int64)
    for y in range(tall // cell - (tall - inner_height) // cell):
        for x in range(wide // cell - (wide - inner_width) // cell):
            mask[y, x] = 1
    whole = resample(canvas, edge, edge, tile.get("thumbnail_interpolation", "bicubic"))
    full = np.ones((edge // cell, edge // cell), np.int64)
    return (
        _with_whole(_cut(canvas, edge), whole, tile),
        (tall, wide),
        _with_whole(_cut(mask, edge // cell), full, tile),
    )


# ---- patches ---------------------------------------------------------------------------------------------------------


def patch_places(rows: int, columns: int, transform: Document) -> list[tuple[int, int]]:
    """(row, column) of the patches of one tile, in order."""
    group = transform.get("merge_size", 1)
    if transform.get("patch_order", "merge_groups") in ("raster", "row_major"):
        group = 1
    return [
        (top + y, left + x)
        for top in range(0, rows, group)
        for left in range(0, columns, group)
        for y in range(group)
        for x in range(group)
    ]


def patch_rows(tiles: list[Array], transform: Document) -> tuple[Array, Array, tuple[int, int, int]]:
    """Patches one a row, their coordinates, and (tiles, rows, columns). tiles: numbers [height, width, 3]."""
    p, merge = transform["patch_size"], transform.get("merge_size", 1)
    frames = range(transform.get("temporal_patch_size", 1))
    height, width = tiles[0].shape[:2]
    if height % (p * merge) or width % (p * merge):
        raise refuse(f"a picture of {width}x{height} has no whole patches")
    rows, columns = height // p, width // p
    patches, places = [], []
    for number, tile in enumerate(tiles):
        for row, column in patch_places(rows, columns, transform):
            cell = tile[row * p : (row + 1) * p, column * p : (column + 1) * p]
            if transform.get("channel_order", "channels_first") in ("channels_last", "hwc"):
                parts = [cell.ravel() for _ in frames]
            elif transform.get("temporal_order", "channel_major") in ("temporal_major", "tchw"):
                parts = [cell[:, :, channel].ravel() for _ in frames for channel in range(3)]
            else:
                parts = [cell[:, :, channel].ravel() for channel in range(3) for _ in frames]
            patches.append(np.concatenate(parts))
            place = (number * rows + row, column)
            places.append(place[::-1] if transform.get("coordinate_order", "yx") == "xy" else place)
    return np.stack(patches), np.array(places, np.int64), (len(tiles), rows, columns)
