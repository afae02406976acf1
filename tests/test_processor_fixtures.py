"""Packages with processor files, pictures and sounds given as files: their tokens are those of plain loops.

What goes into the graphs is made here by Pillow and by sums written out, without the runtime's preprocessing.
"""

import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import RequestError
from genai_runtime.cli import main

from tests.conftest import FIXTURES
from tests.reference import features
from tests.reference.values import Array
from tests.runtime.audio.test_stated_features import noise, wav
from tests.test_pipelines import MEDIA, drawn, greedy, session
from tools.fixtures.genai_v2 import HEARD, SEEN
from tools.fixtures.network import HIDDEN
from tools.fixtures.processors import COMPRESSION, EVEN_BANDS, FIELD, HTK_BANDS, PATCH, POOL, TILE
from tools.fixtures.tokenizer import BOS, tokenizer

Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
Models = Callable[[str], genai_runtime.Model]
Compiled = Callable[[str], tuple[Path, Any]]
FIELDS, BUDGET, TILES, EVEN = "tiny-fields-v2", "tiny-budget-v1", "tiny-tiles-v2", "tiny-even-bands-v2"
NONE = np.zeros((0, HIDDEN), np.float32)
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 8, "stop_on_eos": False}
WORD = [int(each) for each in tokenizer().encode("hi", add_special_tokens=False).ids]
Given = Mapping[str, Array]


def picture(height: int, width: int) -> tuple[Array, bytes]:
    """Random levels, and a PNG file of them."""
    levels = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "PNG")
    return levels, file.getvalue()


def resized(levels: Array, height: int, width: int, how: int) -> Array:
    return np.asarray(Image.fromarray(levels).resize((width, height), how))


def loop(case: str, prompt: list[int], media: Given) -> list[int]:
    """Greedy tokens of a decoder behind an embedding that takes media with the prompt."""

    def feeds(fresh: list[int], length: int) -> Given:
        entries = media if length == 0 else dict.fromkeys(media, NONE)
        return {"inputs_embeds": session(case, "embedding").run(None, {"input_ids": np.array([fresh]), **entries})[0]}

    return greedy(case, prompt, 8, feeds)


def entries(case: str, graph: str, given: Given) -> Array:
    made: Array = session(case, graph).run(None, dict(given))[0]
    return made.reshape(-1, HIDDEN)


# ---- pictures on fields, sounds in natural bands ---------------------------------------------------------------------


def on_fields(levels: Array) -> tuple[dict[str, Array], int]:
    """(what the graph takes of a picture of at most 4 fields, its entries), as the maker's own Python has it."""
    height, width = levels.shape[:2]
    rows, columns = -(-height // FIELD), -(-width // FIELD)
    tall, wide = FIELD * rows, FIELD * columns
    across, down = wide / width, tall / height
    new = (int(height * across), wide) if across < down else (tall, int(width * down))
    canvas = np.full((tall, wide, 3), 255, np.uint8)
    canvas[: new[0], : new[1]] = resized(levels, *new, Image.Resampling.BILINEAR)
    numbers = ((canvas / 255 - 0.5) / 0.5).astype(np.float32)
    mask = np.ones((2 * rows, 2 * columns), np.float32)
    mask[:, 2 * columns - (wide - new[1]) // 14 :] = 0
    mask[2 * rows - (tall - new[0]) // 14 :] = 0
    channels = [Image.fromarray(numbers[..., each]) for each in range(3)]
    whole = np.stack([np.asarray(each.resize((FIELD, FIELD), Image.Resampling.BICUBIC)) for each in channels])
    places = [(row, column) for row in range(rows) for column in range(columns)]

    def part(array: Array, edge: int, row: int, column: int) -> Array:
        return array[edge * row : edge * (row + 1), edge * column : edge * (column + 1)]

    views = np.stack([whole, *(part(numbers, FIELD, *each).transpose(2, 0, 1) for each in places)])
    masks = np.stack([np.ones((2, 2), np.float32), *(part(mask, 2, *each) for each in places)])
    given = {"pixel_values": views[None], "image_sizes": np.array([[tall, wide]]), "image_attention_mask": masks[None]}
    return given, int(1 + 1 + mask[::2, ::2].sum() + mask[::2, 0].sum() + 1)


def in_natural_bands(samples: Array, mode: int, rate: int = 16000) -> tuple[dict[str, Array], int]:
    made = features.natural(samples, rate).astype(np.float32)[None]
    count = -(-made.shape[1] // COMPRESSION)
    told = {"audio_sizes": np.array([count]), "audio_projection_mode": np.array([mode])}
    return {"audio_embeds": made, "audio_attention_mask": np.ones(made.shape[:2], bool), **told}, count


@pytest.mark.parametrize("size", [(20, 50), (56, 30), (28, 28)])
@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_picture_and_a_sound_in_one_prompt(model: Models, size: tuple[int, int], rate: int) -> None:
    """The sound's graph is told that there are pictures as well: 3."""
    (levels, data), samples = picture(*size), noise(rate // 8)
    seen, places = on_fields(levels)
    heard, count = in_natural_bands(samples, 3, rate)
    prompt = [*[SEEN] * places, *WORD, *[HEARD] * count]
    media = {"image_features": entries(FIELDS, "vision", seen), "audio_features": entries(FIELDS, "speech", heard)}
    wanted = loop(FIELDS, prompt, media)
    files: dict[str, Any] = {"images": [data], "audio": [wav(samples, rate)]}
    text = "<|image_1|>hi<|audio_1|>"
    assert model(FIELDS).count_tokens(text, **files) == len(prompt)
    made = model(FIELDS).generate(text, **files, **GREEDY)
    assert made.tokens[: len(wanted)] == wanted
    assert made.stats.prompt_tokens == len(prompt)
    assert model(FIELDS).generate(prompt, **files, **GREEDY).tokens == made.tokens
    inputs = {"request.input_ids": [prompt], "request.image": data, "request.audio": wav(samples, rate)}
    run = model(FIELDS).run({**inputs, "request.max_iterations": [8]}, stop_on_eos=False)["tokens"].tolist()
    assert run == [made.tokens]


def test_what_the_sounds_graph_is_told_depends_on_pictures(model: Models) -> None:
    """2 of a sound alone, 3 beside pictures, be they files or tensors; a caller's own tensors go in as they are."""
    (levels, data), samples = picture(20, 20), noise(2000)
    seen, places = on_fields(levels)
    image = entries(FIELDS, "vision", seen)
    tokens = []
    for mode, pictures in ((2, {}), (3, {"request.image": data}), (3, seen)):
        heard, count = in_natural_bands(samples, mode)
        prompt = [*[SEEN] * (places if pictures else 0), *WORD, *[HEARD] * count]
        sound = entries(FIELDS, "speech", heard)
        wanted = loop(FIELDS, prompt, {"image_features": image if pictures else NONE, "audio_features": sound})
        inputs = {"request.input_ids": [prompt], "request.max_iterations": [8], **pictures}
        for sounds in ({"request.audio": wav(samples)}, heard):
            made = model(FIELDS).run({**inputs, **sounds}, stop_on_eos=False)["tokens"].tolist()[0]
            assert made[: len(wanted)] == wanted
        tokens.append(sound)
    assert not np.allclose(tokens[0], tokens[1]), "what it is told should matter"


def test_the_command_takes_both(compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (levels, data), samples = picture(30, 30), noise(1600)
    (tmp_path / "seen.png").write_bytes(data)
    (tmp_path / "heard.wav").write_bytes(wav(samples))
    seen, places = on_fields(levels)
    heard, count = in_natural_bands(samples, 3)
    media = {"image_features": entries(FIELDS, "vision", seen), "audio_features": entries(FIELDS, "speech", heard)}
    wanted = loop(FIELDS, [*[SEEN] * places, *[HEARD] * count], media)
    tokens = ",".join(map(str, [*[SEEN] * places, *[HEARD] * count]))
    options = ["--tokens", tokens, "-n", "8", "--temperature", "0", "--ignore-eos"]
    files = ["--image", str(tmp_path / "seen.png"), "--audio", str(tmp_path / "heard.wav")]
    assert main([str(compiled(FIELDS)[0]), *options, *files]) == 0
    assert [int(each) for each in capsys.readouterr().out.split(",")][: len(wanted)] == wanted


@pytest.mark.parametrize(
    ("text", "images", "sounds", "code"),
    [
        ("hi", 1, 0, "image-tokens"),
        ("hi", 0, 1, "audio-tokens"),
        ("<|image_1|>hi<|audio_1|>", 1, 0, "audio-tokens"),
        ("<|image_1|>hi<|audio_1|>", 0, 1, "image-tokens"),
        ("<|audio_1|><|audio_2|>", 0, 1, "audio-tokens"),
        ("<|audio_1|><|audio_2|>", 0, 3, "audio-tokens"),
    ],
)
def test_places_and_files_that_do_not_agree(model: Models, text: str, images: int, sounds: int, code: str) -> None:
    files = {"images": [picture(20, 20)[1]] * images, "audio": [wav(noise(800))] * sounds}
    with pytest.raises(RequestError) as refused:
        _ = model(FIELDS).generate(text, **files, **GREEDY).tokens
    assert refused.value.code == code


def test_the_way_out_is_a_place_that_is_taken(model: Models) -> None:
    """Places are numbered here: what the help says to write is written, and then the prompt is taken."""
    with pytest.raises(RequestError) as refused:
        model(FIELDS).count_tokens("hi", images=[picture(20, 20)[1]])
    assert refused.value.help is not None
    (place,) = re.findall(r"write (\S+) where", refused.value.help)
    assert model(FIELDS).count_tokens(place + "hi", images=[picture(20, 20)[1]]) > model(FIELDS).count_tokens("hi")


def test_a_run_is_held_to_its_sounds(model: Models) -> None:
    one = {"request.input_ids": [[HEARD, *WORD]], "request.max_iterations": [1]}
    with pytest.raises(RequestError, match=r"audio-tokens: the prompt holds 1 of '<.endoftext11.>', and 1 sound was"):
        model(FIELDS).run({**one, "request.audio": wav(noise(1600 * 8))})
    with pytest.raises(RequestError, match=r"audio-tokens: .* and 2 sounds were given \(1, 1 tokens\)"):
        model(FIELDS).run({**one, "request.audio": [wav(noise(800))] * 2})
    with pytest.raises(RequestError, match="audio-too-short"):
        model(FIELDS).run({**one, "request.input_ids": [WORD], "request.audio": wav(noise(0))})


# ---- patches under a budget, HTK bands -------------------------------------------------------------------------------


def under_a_budget(levels: Array) -> tuple[dict[str, Array], int]:
    """At most 4 groups of 2x2 patches of 4 pixels, filled up to 16 patches with zeros and places -1."""
    height, width = levels.shape[:2]
    factor, side = (16 * PATCH**2 / (height * width)) ** 0.5, PATCH * POOL
    tall, wide = (int(factor * each // side) * side for each in (height, width))
    small = resized(levels, tall, wide, Image.Resampling.BICUBIC) / 255
    places = [(x, y) for y in range(tall // PATCH) for x in range(wide // PATCH)]
    rows = [small[PATCH * y : PATCH * (y + 1), PATCH * x : PATCH * (x + 1)].reshape(-1) for x, y in places]
    pixels, at = np.zeros((1, 16, 3 * PATCH**2), np.float32), np.full((1, 16, 2), -1)
    pixels[0, : len(rows)], at[0, : len(rows)] = rows, places
    return {"pixel_values": pixels, "pixel_position_ids": at}, len(places) // POOL**2


def test_brackets_around_pictures_and_a_sound(model: Models) -> None:
    """Two pictures, each by itself, and a sound, which stands between line ends, as its maker's prompts have it."""
    pictures, samples = [picture(20, 20), picture(12, 40)], noise(1200)
    made = [under_a_budget(levels) for levels, _ in pictures]
    heard = features.htk(samples, HTK_BANDS, 0.5).astype(np.float32)[None]
    count = ((heard.shape[1] - 1) // 2) // 2 + 1
    sound = {"input_features": heard, "input_features_mask": np.ones(heard.shape[:2], bool)}
    end, (opens, closes, begins, ends) = 7, (58, 59, 60, 61)
    seen = [[opens, *[SEEN] * each, closes] for _, each in made]
    prompt = [*seen[0], *WORD, *seen[1], end, end, begins, *[HEARD] * count, ends, end, end]
    media = {
        "image_features": np.concatenate([entries(BUDGET, "vision", each) for each, _ in made]),
        "audio_features": entries(BUDGET, "speech", sound),
    }
    assert [each for _, each in made] == [4, 3]
    files: dict[str, Any] = {"images": [data for _, data in pictures], "audio": [wav(samples)]}
    text = "<|image|>hi<|image|><|audio|>"
    assert model(BUDGET).count_tokens(text, **files) == len(prompt)
    assert model(BUDGET).tokenizer.encode("\n", add_special_tokens=False) == [end]
    wanted = loop(BUDGET, prompt, media)
    assert model(BUDGET).generate(text, **files, **GREEDY).tokens[: len(wanted)] == wanted
    assert model(BUDGET).generate(prompt, **files, **GREEDY).tokens[: len(wanted)] == wanted


def test_of_two_media_that_could_be_sound_the_one_that_fits_is(tmp_path: Path) -> None:
    """Pictures come as [images, 4, 8] here, which nothing tells from features; the file makes 16 bands."""
    package = tmp_path / "package"
    package.mkdir()
    for case, names in (
        (MEDIA, ("vision.onnx", "genai_config.json")),
        (BUDGET, ("speech.onnx", "speech_processor.json")),
    ):
        for name in (*names, "embedding.onnx", "decoder.onnx", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(FIXTURES / case / name, package / name)
    config = json.loads((package / "genai_config.json").read_text())
    config["pipeline"]["preprocessing"] = {"audio": {"config": "speech_processor.json"}}
    (package / "genai_config.json").write_text(json.dumps(config))
    compile_package(package, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        (entry,) = model.describe()["media"]
        assert entry["kind"] == "audio"
        assert "input_features" in entry["tensors"]
        assert "pixel_values" not in entry["tensors"]


# ---- tiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "grid"), [((8, 8), (1, 1)), ((10, 30), (1, 3)), ((20, 20), (2, 2)), ((9, 5), (2, 1))])
def test_tiles_and_what_is_told_of_them(model: Models, size: tuple[int, int], grid: tuple[int, int]) -> None:
    """The graph takes four tiles whatever a picture has: those it lacks are zeros. Grids by hand (1x4 makes 30x10 no
    larger than 1x3 does); 1x1 is the first of eight, 1x3 the third, 2x1 the fifth, 2x2 the sixth."""
    levels, data = picture(*size)
    number = {(1, 1): 1, (1, 3): 3, (2, 1): 5, (2, 2): 6}[grid]
    canvas = np.zeros((grid[0] * TILE, grid[1] * TILE, 3), np.uint8)
    scale = min(min(max(each, TILE), edge) / each for each, edge in zip(size, canvas.shape, strict=False))
    inner = [int(each * scale + 0.5) for each in size]
    canvas[: inner[0], : inner[1]] = resized(levels, inner[0], inner[1], Image.Resampling.BILINEAR)
    numbers = ((canvas / 255 - 0.5) / 0.5).astype(np.float32)
    tiles = np.zeros((1, 4, 3, TILE, TILE), np.float32)
    for at in range(grid[0] * grid[1]):
        row, column = divmod(at, grid[1])
        cut = numbers[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        tiles[0, at] = cut.transpose(2, 0, 1)
    there = (np.arange(4) < grid[0] * grid[1]).astype(np.int64)[None]
    given = {"pixel_values": tiles, "aspect_ratio_ids": np.array([[number]]), "aspect_ratio_mask": there}
    prompt = [*WORD, 62, 62]
    wanted = loop(TILES, prompt, {"image_features": entries(TILES, "vision", given)})
    made = model(TILES).generate("hi<|image|>", images=[data], **GREEDY)
    assert made.tokens[: len(wanted)] == wanted
    assert made.stats.prompt_tokens == len(prompt)


# ---- an encoder of sound ---------------------------------------------------------------------------------------------


def test_a_sound_beside_its_length_goes_to_an_encoder(model: Models) -> None:
    """A file, or both tensors; one without the other is refused. The output starts as the package says."""
    samples = noise(1000)
    made = features.evened(features.emphasised(samples, EVEN_BANDS)).astype(np.float32)[None]
    given = {"audio_signal": made, "length": np.array([made.shape[2]])}
    (seen,) = session(EVEN, "encoder").run(None, given)
    decoder = {"encoder_hidden_states": seen}
    wanted = greedy(EVEN, [BOS], 8, lambda fresh, _: {"input_ids": np.array([fresh]), **decoder})
    assert model(EVEN).generate(audio=[wav(samples)], **GREEDY).tokens[: len(wanted)] == wanted
    start = {"request.input_ids": [[BOS]], "request.max_iterations": [8]}
    for files in ({"request.audio": wav(samples)}, given):
        assert model(EVEN).run({**start, **files}, stop_on_eos=False)["tokens"].tolist()[0][: len(wanted)] == wanted
    for few in ({}, {"audio_signal": made}):
        with pytest.raises(RequestError, match="missing-input"):
            model(EVEN).run({**start, **few})


def test_what_was_drawn_differs() -> None:
    """Guards the tests above: other media make other tokens."""
    loops = [loop(TILES, [*WORD, 62, 62], {"image_features": 20 * scale * drawn(2, HIDDEN)}) for scale in (-1, 0, 1)]
    assert len({tuple(each) for each in loops}) > 1
    assert sorted(each.name for each in FIXTURES.iterdir() if (each / "hears.json").exists()) == [EVEN]
