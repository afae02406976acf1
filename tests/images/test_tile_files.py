"""Pictures as tiles, against the rules of their maker written out.

Facts: the reference's section 5.1 and onnxruntime-extensions (shared/api) for what it leaves open.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.images.processors import DECODE, made, opened, picture, processor_file

Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
Array = np.ndarray[Any, Any]
EDGE, MOST = 28, 4
MEAN, STD = [0.5, 0.25, 0.125], [0.5, 0.25, 1.0]
TILES = {
    "type": "Llama3ImageTransform",
    "attrs": {
        "max_image_tiles": MOST,
        "size": [EDGE, EDGE],
        "interpolation": "LINEAR",
        "rescale/rescale_factor": 0.00392156862745098,
        "normalize/mean": MEAN,
        "normalize/std": STD,
    },
}
PORTS = ("pixel_values", "aspect_ratio_ids", "aspect_ratio_mask", "num_tiles")
SIZES = [(20, 20), (28, 28), (30, 60), (100, 30), (200, 190), (10, 80), (57, 56), (3, 100), (500, 40)]


def grid_of(height: int, width: int) -> tuple[int, int, int]:
    """(rows, columns, the grid's number): the least enlarging, else the least reducing; then the fewest tiles."""
    every = [(down, across) for down in range(1, 5) for across in range(1, 5) if down * across <= MOST]
    scales = [min(EDGE * down / height, EDGE * across / width) for down, across in every]
    larger = [each for each in scales if each >= 1]
    best = min(larger) if larger else max(scales)
    equal = [grid for grid, scale in zip(every, scales, strict=True) if abs(scale - best) < 1e-9]
    chosen = min(equal, key=lambda each: each[0] * each[1])
    return (*chosen, every.index(chosen) + 1)


def cut(levels: Array) -> tuple[Array, int]:
    """(the tiles of a picture [n, 3, 28, 28], its grid's number)."""
    height, width = levels.shape[:2]
    down, across, number = grid_of(height, width)
    tall, wide = down * EDGE, across * EDGE
    high, broad = min(max(height, EDGE), tall), min(max(width, EDGE), wide)
    if broad / width < high / height:
        high = max(1, int(height * broad / width + 0.5))
    else:
        broad = max(1, int(width * high / height + 0.5))
    canvas = np.zeros((tall, wide, 3), np.uint8)
    canvas[:high, :broad] = np.asarray(opened(levels).resize((broad, high), Image.Resampling.BILINEAR))
    numbers = (canvas / 255 - MEAN) / STD
    return numbers.reshape(down, EDGE, across, EDGE, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, EDGE, EDGE), number


@pytest.mark.parametrize("size", SIZES)
def test_tiles_of_a_picture(tmp_path: Path, size: tuple[int, int]) -> None:
    levels, data = picture(*size)
    tiles, number = cut(levels)
    found = made(processor_file(tmp_path, DECODE, TILES), [data], *PORTS)
    np.testing.assert_allclose(found["pixel_values"][0], tiles, atol=1e-5)
    assert found["aspect_ratio_ids"].tolist() == [[number]]
    assert found["aspect_ratio_mask"].tolist() == [[1] * len(tiles) + [0] * (MOST - len(tiles))]
    assert found["num_tiles"].tolist() == [[len(tiles)]]


def test_pictures_of_several_grids_are_filled_up_with_zeros(tmp_path: Path) -> None:
    """As many tiles as the widest has: 3 of at most 4."""
    (first, one), (second, two) = picture(10, 80), picture(20, 20)
    found = made(processor_file(tmp_path, DECODE, TILES), [one, two], *PORTS)
    assert found["pixel_values"].shape == (2, 3, 3, EDGE, EDGE)
    np.testing.assert_allclose(found["pixel_values"][0], cut(first)[0], atol=1e-5)
    np.testing.assert_allclose(found["pixel_values"][1, :1], cut(second)[0], atol=1e-5)
    assert not found["pixel_values"][1, 1:].any()
    assert found["num_tiles"].tolist() == [[3], [1]]
