"""Resampling against Pillow.

Pillow's floating-point mode does what the standard asks: the same three kernels (a = -0.5, triangle, lanczos over three
lobes), widened when a picture shrinks. Its 8-bit mode rounds and clips between the two directions, which the standard's
does not: there it may be off by more than one level where a kernel overshoots, and by one level elsewhere.
"""

import numpy as np
import pytest
from genai_runtime.adapters.image.resample import resample
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.images.pictures import picture

FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos3": Image.Resampling.LANCZOS,
}
EDGE = st.integers(1, 90)


def exact(pixels: np.ndarray, height: int, width: int, interpolation: str) -> np.ndarray:
    """Pillow's floating-point result, before it is rounded."""
    channels = [
        np.asarray(Image.fromarray(plane.astype(np.float32)).resize((width, height), FILTERS[interpolation]))
        for plane in pixels.transpose(2, 0, 1)
    ]
    return np.stack(channels, axis=2)


@pytest.mark.parametrize("interpolation", FILTERS)
@settings(max_examples=40, deadline=None)
@given(height=EDGE, width=EDGE, tall=EDGE, wide=EDGE, seed=st.integers(0, 9))
def test_every_size(interpolation: str, height: int, width: int, tall: int, wide: int, seed: int) -> None:
    pixels = picture(height, width, seed)
    found = resample(pixels, tall, wide, interpolation).astype(np.float64)
    wanted = np.clip(exact(pixels, tall, wide, interpolation), 0, 255)
    assert found.shape == (tall, wide, 3)
    assert np.abs(found - wanted).max() <= 0.501


@pytest.mark.parametrize("interpolation", FILTERS)
def test_a_flat_picture_stays_flat(interpolation: str) -> None:
    for level in (0, 1, 127, 255):
        flat = np.full((13, 7, 3), level, np.uint8)
        assert (resample(flat, 200, 3, interpolation) == level).all()


@pytest.mark.parametrize("interpolation", FILTERS)
def test_eight_bit_pillow_is_near(interpolation: str) -> None:
    smooth = np.asarray(Image.fromarray(picture(9, 9)).resize((97, 61), Image.Resampling.BICUBIC))
    wanted = np.asarray(Image.fromarray(smooth).resize((40, 33), FILTERS[interpolation])).astype(int)
    assert np.abs(resample(smooth, 33, 40, interpolation).astype(int) - wanted).max() <= 1


def test_the_same_size_is_the_same_picture() -> None:
    pixels = picture(5, 6)
    assert (resample(pixels, 5, 6, "lanczos3") == pixels).all()
