"""Decoding: what every kind of file becomes, and what is refused before, or instead of, its pixels."""

import builtins
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from genai_runtime.adapters.image.decode import decode
from genai_runtime.adapters.image.limits import MAX_PIXELS
from genai_runtime.problem import LoadError, RequestError
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.images.pictures import encoded, picture
from tests.reference.png import decode_rgb


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A PNG file put together by hand (PNG specification, 5 and 11)."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)), *more]
    chunks += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def outcome(data: bytes) -> str | tuple[int, ...]:
    """The shape of the picture, or the code by which it is refused."""
    try:
        return tuple(decode(data).shape)
    except RequestError as refused:
        return refused.code


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (23, 17)])
def test_png_is_exact(size: tuple[int, int]) -> None:
    pixels = picture(*size)
    data = encoded(pixels)
    assert (decode(data) == pixels).all()
    assert (decode_rgb(data) == pixels).all()


@pytest.mark.parametrize(("kind", "options"), [("BMP", {}), ("WEBP", {"lossless": True})])
def test_other_lossless_formats_are_exact(kind: str, options: dict[str, Any]) -> None:
    pixels = picture(19, 21)
    assert (decode(encoded(pixels, kind, **options)) == pixels).all()


def test_jpeg_is_near() -> None:
    smooth = np.full((16, 16, 3), (200, 90, 30), np.uint8)
    assert np.abs(decode(encoded(smooth, "JPEG", quality=95)).astype(int) - smooth).max() <= 3


def test_cmyk_jpeg_has_three_channels() -> None:
    assert decode(saved(Image.new("CMYK", (9, 8), (0, 255, 255, 0)), "JPEG")).shape == (8, 9, 3)


def test_an_animation_is_its_first_picture() -> None:
    frames = [Image.new("RGB", (6, 5), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        data = saved(
            frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
        )
        assert (decode(data) == (255, 0, 0)).all(), kind


def test_transparency_is_dropped() -> None:
    pixels = np.dstack([picture(4, 5), np.zeros((4, 5), np.uint8)])
    assert (decode(encoded(pixels)) == pixels[..., :3]).all()


def test_palettes_with_and_without_transparency() -> None:
    palette = (b"PLTE", bytes([10, 20, 30, 200, 100, 0]))
    rows = b"\0\x00\x01" + b"\0\x01\x01"
    wanted = [[[10, 20, 30], [200, 100, 0]], [[200, 100, 0], [200, 100, 0]]]
    assert decode(png(2, 2, 8, 3, rows, palette)).tolist() == wanted
    assert decode(png(2, 2, 8, 3, rows, palette, (b"tRNS", b"\0\x80"))).tolist() == wanted


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_grey_of_every_depth(depth: int) -> None:
    rows = b"\0\xff"
    assert decode(png(1, 1, depth, 0, rows)).tolist() == [[[255, 255, 255]]]


def test_grey_with_alpha() -> None:
    assert decode(png(1, 1, 8, 4, b"\0\x40\x00")).tolist() == [[[64, 64, 64]]]


def test_deep_grey_is_rounded_and_not_cut_off() -> None:
    levels = [0, 128, 129, 257, 32768, 65406, 65407, 65535]
    rows = b"\0" + struct.pack(">8H", *levels)
    wanted = [(level * 255 + 32767) // 65535 for level in levels]
    assert decode(png(8, 1, 16, 0, rows))[0, :, 0].tolist() == wanted


def test_deep_colours_are_within_a_level() -> None:
    levels = [0, 300, 40000, 65535, 12345, 54321]
    found = decode(png(2, 1, 16, 2, b"\0" + struct.pack(">6H", *levels)))
    assert np.abs(found.reshape(-1) - np.array(levels) * 255 / 65535).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright(orientation: int) -> None:
    """The picture is stored as a camera held so would, by Pillow's own inverse of what viewers do."""
    upright = picture(6, 9)
    stored = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.transpose(1, 0, 2), 6: np.rot90(upright, 1), 7: np.rot90(upright.transpose(1, 0, 2), 2),
        8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(np.ascontiguousarray(stored)), "PNG", exif=exif)
    assert (decode(data) == upright).all()


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_says_nothing(orientation: int) -> None:
    exif, pixels = Image.Exif(), picture(4, 6)
    exif[0x0112] = orientation
    assert (decode(saved(Image.fromarray(pixels), "PNG", exif=exif)) == pixels).all()


def test_broken_exif_says_nothing() -> None:
    pixels = picture(4, 6)
    data = saved(Image.fromarray(pixels), "PNG", exif=b"Exif\0\0not exif at all")
    assert (decode(data) == pixels).all()


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\0", b"hello", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"%PDF-1.4", b"<svg/>"])
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        decode(data)
    assert refused.value.code == "bad-image"
    assert "PNG" in refused.value.help


@pytest.mark.parametrize("kind", ["TIFF", "PPM", "ICO", "TGA", "PCX"])
def test_formats_that_nobody_asked_for_are_not_tried(kind: str) -> None:
    with pytest.raises(RequestError) as refused:
        decode(encoded(picture(8, 8), kind))
    assert refused.value.code == "bad-image"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_every_cut_of_a_file_is_refused_or_a_picture(kind: str) -> None:
    data = encoded(picture(16, 16), kind)
    refusals = 0
    for end in range(0, len(data) - 1, 7):
        found = outcome(data[:end])
        assert found in ("bad-image", "image-limit", (16, 16, 3))
        refusals += isinstance(found, str)
    assert refusals > len(data) // 7 // 2


@settings(max_examples=150, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "WEBP"]))
def test_no_damage_raises_anything_else(data: st.DataObject, kind: str) -> None:
    file = bytearray(encoded(picture(6, 6), kind))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    found = outcome(bytes(file))
    assert found in ("bad-image", "image-limit") or len(found) == 3


@pytest.mark.parametrize(
    ("width", "height"), [(1 << 14, 1025), (20000, 20000), (1 << 30, 1), ((1 << 31) - 1, (1 << 31) - 1)]
)
def test_a_huge_picture_is_refused_before_it_is_decoded(width: int, height: int) -> None:
    assert width * height > MAX_PIXELS
    with pytest.raises(RequestError) as refused:
        decode(png(width, height, 8, 2, b""))
    assert refused.value.code == "image-limit"


def test_the_largest_picture_is_taken() -> None:
    rows = (b"\0" + b"\0" * 512) * 4096
    assert decode(png(4096, 4096, 1, 0, rows)).shape == (4096, 4096, 3)


def test_without_pillow_its_absence_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    true_import = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "PIL":
            raise ImportError(name)
        return true_import(name, *rest, **more)

    data = encoded(picture(2, 2))
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(LoadError) as refused:
        decode(data)
    assert refused.value.code == "pillow-missing"
    assert "genai-compile[image]" in refused.value.help
