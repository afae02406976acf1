"""Odd pictures through every kind of processor file: each has one answer, a tensor or a refusal by name.

Pictures of one colour stay of one colour, whatever they are resized to, so the numbers follow by arithmetic.
"""

import io
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime.adapters.image.counting import entries_of
from genai_runtime.pictures import png_bytes

from tests.images.processors import DECODE, RESCALE, made, processor_file

Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
Array = np.ndarray[Any, Any]
HALF = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
CLIP = {"normalize/mean": HALF["mean"], "normalize/std": HALF["std"]}
LEVEL = 51
"""One fifth of 255."""
PROGRAMS: dict[str, list[dict[str, Any]]] = {
    "stretch": [{"type": "Resize", "attrs": {"height": 28, "width": 28}}, RESCALE],
    "smart": [
        {"type": "Resize", "attrs": {"smart_resize": 1, "min_pixels": 784, "max_pixels": 78400}},
        RESCALE,
        {"type": "PatchImage"},
    ],
    "crop": [{"type": "CenterCrop", "attrs": {"height": 8, "width": 8}}, RESCALE],
    "budget": [{"type": "Gemma4ImageTransform"}],
    "squares": [{"type": "Phi3ImageTransform"}],
    "fields": [
        {"type": "Phi4VisionDynamicPreprocess"},
        RESCALE,
        {"type": "Normalize", "attrs": HALF},
        {"type": "Phi4VisionProcessor"},
    ],
    "tiles": [{"type": "Llama3ImageTransform", "attrs": {"size": [28, 28], **CLIP}}],
}
SIZES = [(1, 1), (1, 200), (1, 201), (300, 1), (3000, 2000)]
LIMIT = "image-limit"
SHAPES: dict[str, list[tuple[int, ...] | str]] = {
    "stretch": [(1, 28, 28, 3)] * 5,
    "smart": [(4, 1176), (28, 1176), LIMIT, LIMIT, (384, 1176)],
    "crop": [LIMIT, LIMIT, LIMIT, LIMIT, (1, 8, 8, 3)],
    "budget": [(1, 2520, 768)] * 5,
    "squares": [(1, 17, 3, 336, 336)] * 5,
    "fields": [(1, 2, 3, 448, 448), LIMIT, LIMIT, LIMIT, (1, 36, 3, 448, 448)],
    "tiles": [(1, 1, 3, 28, 28), (1, 4, 3, 28, 28), (1, 4, 3, 28, 28), (1, 4, 3, 28, 28), (1, 4, 3, 28, 28)],
}
"""Program -> what becomes of each size: aspects beyond 200 and crops larger than the picture are refused."""
VALUES = {"stretch": 0.2, "smart": 0.2, "crop": 0.2, "budget": 0.2, "fields": -0.6, "tiles": -0.6}
"""Of the level itself: 51 / 255, or that normalised. Squares have a mean for each colour."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("at", range(len(SIZES)))
def test_every_size_has_one_answer(tmp_path: Path, name: str, at: int) -> None:
    file = processor_file(tmp_path, DECODE, *PROGRAMS[name])
    data = png_bytes(np.full((*SIZES[at], 3), LEVEL, np.uint8))
    wanted = SHAPES[name][at]
    if isinstance(wanted, str):
        with pytest.raises(genai_runtime.RequestError) as refused:
            made(file, [data])
        assert refused.value.code == wanted
        return
    pixels = made(file, [data])["pixel_values"]
    assert pixels.shape == wanted
    assert np.isfinite(pixels).all()
    if name in VALUES:
        assert np.isclose(pixels.reshape(-1)[0], VALUES[name], atol=1e-5)


# ---- forms of one picture --------------------------------------------------------------------------------------------

GREY = np.arange(0, 240, 10, np.uint8).reshape(4, 6)


def saved(picture: Any, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def turned() -> bytes:
    """The picture on its side, and EXIF that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(Image.fromarray(np.rot90(GREY)), exif=exif)


def forms() -> dict[str, bytes]:
    plain = Image.fromarray(GREY)
    alpha = np.dstack([GREY, GREY, GREY, np.arange(24, dtype=np.uint8).reshape(4, 6)])
    frames = [Image.fromarray(np.full((4, 6), 200, np.uint8)).convert("RGB")]
    return {
        "grey": saved(plain),
        "grey and alpha": saved(plain.convert("LA")),
        "colour": saved(plain.convert("RGB")),
        "alpha": saved(Image.fromarray(alpha, "RGBA")),
        "palette": saved(plain.convert("P")),
        "deep grey": saved(Image.fromarray(GREY.astype(np.uint16) * 257)),
        "turned": turned(),
        "bitmap": saved(plain, "BMP"),
        "animation": saved(plain.convert("RGB"), "WEBP", save_all=True, append_images=frames, lossless=True),
    }


@pytest.mark.parametrize("form", forms())
def test_every_form_of_a_picture_makes_the_same_numbers(tmp_path: Path, form: str) -> None:
    data = forms()[form]
    pixels = made(processor_file(tmp_path, DECODE, RESCALE), [data])["pixel_values"]
    np.testing.assert_allclose(pixels[0] * 255, np.repeat(GREY[..., None], 3, axis=2), atol=1e-4)


def test_inks_make_about_the_same_numbers(tmp_path: Path) -> None:
    """A JPEG of cyan, magenta, yellow and black: three channels, near the colours."""
    flat = np.full((16, 16, 3), (200, 120, 40), np.uint8)
    data = saved(Image.fromarray(flat).convert("CMYK"), "JPEG", quality=95)
    pixels = made(processor_file(tmp_path, DECODE, RESCALE), [data])["pixel_values"]
    np.testing.assert_allclose(pixels[0] * 255, flat, atol=4)


def test_entries_are_counted_of_the_upright_picture() -> None:
    """4 rows of 6 pixels in cells of 2: 2 rows of 3, however the file holds them."""
    facts = {"views": None, "resize": None, "crop": None}
    for form in ("grey", "turned", "animation"):
        assert entries_of(forms()[form], form, facts, 2) == (2, 3)
