"""Pictures as several square views, against Pillow and loops that say what the formats' makers do."""

import weakref
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler.lower.prompt_places import place_parameters
from genai_compiler.read.special_tokens import SpecialTokens
from genai_runtime.adapters.image import preprocess
from genai_runtime.adapters.image.decode import decode
from genai_runtime.problem import RequestError
from genai_runtime.prompt_places import Places, Span

from tests.images.processors import DECODE, RESCALE, made, opened, picture, processor_file
from tests.runtime import tiny_tokenizers

Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
Array = np.ndarray[Any, Any]
MEAN, STD = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
HALF = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}


def small(numbers: Array, edge: int) -> Array:
    """[height, width, 3] floats -> [3, edge, edge], by Pillow channel by channel."""
    channels = [Image.fromarray(numbers[..., at].astype(np.float32)) for at in range(3)]
    return np.stack([np.asarray(each.resize((edge, edge), Image.Resampling.BICUBIC)) for each in channels])


def parts(numbers: Array, edge: int) -> list[Array]:
    """The squares of a canvas, row by row, channels first."""
    rows, columns = numbers.shape[0] // edge, numbers.shape[1] // edge
    return [
        numbers[y * edge : (y + 1) * edge, x * edge : (x + 1) * edge].transpose(2, 0, 1)
        for y in range(rows)
        for x in range(columns)
    ]


@pytest.mark.parametrize(
    ("size", "canvas"), [((60, 100), (1008, 1680)), ((50, 50), (1344, 1344)), ((100, 20), (2688, 672))]
)
def test_squares_fill_what_there_may_be(tmp_path: Path, size: tuple[int, int], canvas: tuple[int, int]) -> None:
    """100x60: 5 columns need 3 rows (15 of 16), 6 would need 4. Sizes by hand; numbers by Pillow."""
    levels, data = picture(*size)
    operations = [{**DECODE, "attrs": {"color_space": "BGR"}}, {"type": "ConvertRGB"}, {"type": "Phi3ImageTransform"}]
    tensors = made(processor_file(tmp_path, *operations), [data], "pixel_values", "image_sizes", "num_img_tokens")
    assert tensors["image_sizes"].tolist() == [list(canvas)]
    height, width = size
    long = max(canvas)
    short = int(long / (max(size) / min(size)))
    inner = (short, long) if width >= height else (long, short)
    resized = np.asarray(opened(levels).resize(inner[::-1], Image.Resampling.BILINEAR))
    white = np.full((*canvas, 3), 255, np.uint8)
    top, left = (canvas[0] - inner[0]) // 2, (canvas[1] - inner[1]) // 2
    white[top : top + inner[0], left : left + inner[1]] = resized
    numbers = (white / 255 - MEAN) / STD
    views = [small(numbers, 336), *parts(numbers, 336)]
    assert tensors["pixel_values"].shape == (1, 17, 3, 336, 336)
    np.testing.assert_allclose(tensors["pixel_values"][0, : len(views)], np.stack(views), atol=2e-5)
    assert not tensors["pixel_values"][0, len(views) :].any()
    rows, columns = canvas[0] // 336, canvas[1] // 336
    assert tensors["num_img_tokens"].tolist() == [[(rows * columns + 1) * 144 + 1 + (rows + 1) * 12]]


FIELDS = [
    DECODE,
    {"type": "Phi4VisionDynamicPreprocess", "attrs": {"dynamic_hd": 36, "dyhd_base_resolution": 448}},
    RESCALE,
    {"type": "Normalize", "attrs": HALF},
    {"type": "Phi4VisionProcessor"},
]


def on_fields(levels: Array, columns: int, rows: int) -> tuple[Array, Array]:
    """(the canvas of a picture, its mask), as the maker's own Python has it."""
    height, width = levels.shape[:2]
    wide, tall = 448 * columns, 448 * rows
    across, down = wide / width, tall / height
    new = (wide, int(height * across)) if across < down else (int(width * down), tall)
    canvas = np.full((tall, wide, 3), 255, np.uint8)
    canvas[: new[1], : new[0]] = np.asarray(opened(levels).resize(new, Image.Resampling.BILINEAR))
    mask = np.ones((32 * rows, 32 * columns), np.int64)
    if wide - new[0] >= 14:
        mask[:, -((wide - new[0]) // 14) :] = 0
    if tall - new[1] >= 14:
        mask[-((tall - new[1]) // 14) :] = 0
    return canvas, mask


def test_fields_show_the_picture_at_its_own_size(tmp_path: Path) -> None:
    """Two pictures: 300x500 on 2x1 fields, 450x100 on 1x2; the one with fewer views is filled up with zeros, its mask
    with ones."""
    first, second = picture(300, 500), picture(450, 100)
    outputs = ("pixel_values", "image_sizes", "image_attention_mask", "num_img_tokens")
    tensors = made(processor_file(tmp_path, *FIELDS), [first[1], second[1], picture(40, 40)[1]], *outputs)
    assert tensors["pixel_values"].shape == (3, 3, 3, 448, 448)
    for at, (levels, columns, rows) in enumerate(((first[0], 2, 1), (second[0], 1, 2), (picture(40, 40)[0], 1, 1))):
        canvas, mask = on_fields(levels, columns, rows)
        numbers = (canvas / 255 - 0.5) / 0.5
        views = np.stack([small(numbers, 448), *parts(numbers, 448)])
        np.testing.assert_allclose(tensors["pixel_values"][at, : len(views)], views, atol=2e-5)
        assert not tensors["pixel_values"][at, len(views) :].any()
        masks = [np.ones((32, 32)), *(each[0] for each in parts(mask[..., None], 32))]
        assert np.array_equal(tensors["image_attention_mask"][at, : len(masks)], np.stack(masks))
        assert tensors["image_attention_mask"][at, len(masks) :].all()
        assert tensors["image_sizes"][at].tolist() == [448 * rows, 448 * columns]
        count = 256 + 1 + mask[::2, ::2].sum() + mask[::2, 0].sum() + 16
        assert tensors["num_img_tokens"][at].tolist() == [count]


def test_a_picture_too_large_for_its_fields_takes_the_nearest_aspect(tmp_path: Path) -> None:
    """2000x2000 pixels would take 25 fields of 6: 2x2 has its aspect; 1x1 too, but the picture is larger than that."""
    few = [FIELDS[0], {**FIELDS[1], "attrs": {"dynamic_hd": 6}}, *FIELDS[2:]]
    tensors = made(processor_file(tmp_path, *few), [picture(2000, 2000)[1]], "image_sizes")
    assert tensors["image_sizes"].tolist() == [[896, 896]]
    assert ceil(2000 / 448) ** 2 == 25


def test_pictures_are_not_held_beside_their_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many large ones in a request each is decoded when it is laid out: two at a time, as one goes and one comes."""
    alive, most = list[int](), list[int]()

    def decoding(data: bytes, name: str) -> Array:
        levels = decode(data, name)
        alive.append(1)
        most.append(len(alive))
        weakref.finalize(levels, alive.pop)
        return levels

    monkeypatch.setattr(preprocess, "decode", decoding)
    made(processor_file(tmp_path, *FIELDS), [picture(40, 40 + at)[1] for at in range(8)])
    assert (len(most), max(most)) == (8, 2)


def test_views_of_too_many_pictures_are_refused_before_all_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field of each is 3 * 448 * 448 numbers, of which 111 fit in 64 Mi: no more than one is decoded behind them."""
    count = list[str]()
    monkeypatch.setattr(preprocess, "decode", lambda data, name: count.append(name) or decode(data, name))
    with pytest.raises(RequestError, match="image-limit: all pictures together"):
        made(processor_file(tmp_path, *FIELDS), [picture(40, 40)[1]] * 300)
    assert len(count) == (64 << 20) // (3 * 448 * 448) + 1


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        (FIELDS[:-1], "no operation takes views"),
        ([DECODE, RESCALE, FIELDS[-1]], "goes with the operation"),
        ([DECODE, {"type": "Resize"}, {"type": "Phi3ImageTransform"}], "makes the size by itself"),
    ],
)
def test_views_that_nothing_lays_out_are_refused(tmp_path: Path, operations: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(Exception, match=words):
        made(processor_file(tmp_path, *operations), [])


# ---- numbered places -------------------------------------------------------------------------------------------------


def test_numbered_places_become_entries(tmp_path: Path) -> None:
    """`<|image_1|>` is text, whose number says which picture; the entry is a token of its own."""
    tokenizer = tiny_tokenizers.opened(tmp_path, tiny_tokenizers.byte_level(("<s>", "<|endoftext10|>")))
    entry = tokenizer.token_id("<|endoftext10|>")
    assert entry is not None
    facts = place_parameters(entry, SpecialTokens({entry: "<|endoftext10|>"}))
    assert facts["opens"] == "<|image_#|>"
    places = Places(facts)
    ids = places.text("a<|image_1|>b<|image_2|>", [Span(1, 3), Span(2, 2)], tokenizer, False)
    one, two = tokenizer.encode("a", False), tokenizer.encode("b", False)
    assert ids == [*one, *[entry] * 3, *two, *[entry] * 4]
    with pytest.raises(RequestError, match="2 places"):
        places.text("<|image_1|><|image_2|>", [Span(1, 3)], tokenizer, False)
