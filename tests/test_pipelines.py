"""The version 2 fixtures are run: their tokens are those of plain loops over their graphs."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package

from tests.conftest import FIXTURES
from tests.reference.plain_loop import HEAD, KV_HEADS
from tests.reference.plain_loop import greedy as lone
from tests.reference.values import Array
from tools.fixtures.genai_v2 import BANDS, HEARD, PATCHES, PIXELS, SEEN
from tools.fixtures.network import HIDDEN, LAYERS
from tools.fixtures.tokenizer import BOS, EOS

Models = Callable[[str], genai_runtime.Model]
CROSS, MEDIA, VISION, MINIMAL = "tiny-encoder-v2", "tiny-media-v2", "tiny-vision-v2", "tiny-minimal-v2"
CACHES = [f"{layer}.{half}" for layer in range(LAYERS) for half in ("key", "value")]


@cache
def session(case: str, name: str) -> Any:
    return onnxruntime.InferenceSession(FIXTURES / case / f"{name}.onnx", providers=["CPUExecutionProvider"])


def greedy(
    case: str, prompt: Sequence[int], count: int, feeds_of: Callable[[list[int], int], Mapping[str, Array]]
) -> list[int]:
    """Greedy tokens by a loop over the decoder. feeds_of: what it takes of (new tokens, tokens before them)."""
    past = [np.zeros((1, KV_HEADS, 0, HEAD), np.float32) for _ in CACHES]
    fresh, length, made = list(prompt), 0, list[int]()
    while len(made) < count and EOS not in made:
        feeds = {
            **feeds_of(fresh, length),
            "position_ids": np.arange(length, length + len(fresh))[None],
            "attention_mask": np.ones((1, length + len(fresh)), np.int64),
            **{f"past_key_values.{each}": value for each, value in zip(CACHES, past, strict=True)},
        }
        names = ["logits", *(f"present.{each}" for each in CACHES)]
        logits, *past = session(case, "decoder").run(names, feeds)
        length += len(fresh)
        fresh = [int(logits[0, -1].argmax())]
        made += fresh
    return made


def cross(source: Sequence[int], count: int) -> list[int]:
    (seen,) = session(CROSS, "encoder").run(None, {"input_ids": np.array([source])})
    return greedy(CROSS, [BOS], count, lambda fresh, _: {"input_ids": np.array([fresh]), "encoder_hidden_states": seen})


def media(
    prompt: Sequence[int], count: int, pixels: Array | None = None, frames: Array | None = None, case: str = MEDIA
) -> list[int]:
    none = np.zeros((0, HIDDEN), np.float32)
    given = {
        "image_features": none if pixels is None else session(case, "vision").run(None, {"pixel_values": pixels})[0]
    }
    if case == MEDIA:
        seen = none if frames is None else session(case, "speech").run(None, {"audio_frames": frames})[0]
        given["audio_features"] = seen

    def feeds(fresh: list[int], length: int) -> Mapping[str, Array]:
        entries = given if length == 0 else dict.fromkeys(given, none)
        return {"inputs_embeds": session(case, "embedding").run(None, {"input_ids": np.array([fresh]), **entries})[0]}

    return greedy(case, prompt, count, feeds)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(11).standard_normal(shape).astype(np.float32)


def test_text_goes_to_the_encoder_and_the_output_starts_as_the_file_says(model: Models) -> None:
    prompts = [[9, 14, 30], [7, 8, 9, 10, 11], [40]]
    for prompt in prompts:
        assert model(CROSS).generate(prompt, max_new_tokens=12).tokens == cross(prompt, 12)
    assert len({tuple(cross(each, 12)) for each in prompts}) > 1, "the source should matter"


def test_rows_of_texts_for_an_encoder_that_takes_padding_for_tokens(model: Models) -> None:
    prompts = [[9, 14, 30], [7, 8, 9, 10, 11], [40], [30, 14, 9]]
    rows = model(CROSS).generate(batch=prompts, max_new_tokens=12).rows
    assert [each.tokens for each in rows] == [cross(each, 12) for each in prompts]
    assert cross([*prompts[0], 0, 0], 12) != cross(prompts[0], 12), "padding should matter"


@pytest.mark.parametrize("frames", [0, 3])
@pytest.mark.parametrize("images", [0, 1, 2])
def test_media_come_with_the_prompt(model: Models, images: int, frames: int) -> None:
    pixels, sound = drawn(images, PATCHES, PIXELS), drawn(frames, BANDS)
    prompt = [BOS, *[SEEN] * (images * PATCHES), 9, *[HEARD] * frames, 14]
    given: dict[str, Any] = {"request.input_ids": [prompt], "request.max_iterations": [10]}
    given |= ({"pixel_values": pixels} if images else {}) | ({"audio_frames": sound} if frames else {})
    (row,) = model(MEDIA).run(given).rows("tokens")
    assert row is not None
    wanted = media(prompt, 10, pixels if images else None, sound if frames else None)
    assert row.reshape(-1).tolist() == wanted


def test_text_alone_needs_no_media(model: Models) -> None:
    prompts = [[1, 9, 14], [5]]
    rows = model(MEDIA).generate(batch=prompts, max_new_tokens=10).rows
    assert [each.tokens for each in rows] == [media(each, 10) for each in prompts]


# ---- the form's shortest document, its preset of pictures, its plugin ------------------------------------------------


def test_the_shortest_document(model: Models) -> None:
    """Its end token is the tokenizer's own."""
    prompts = [[1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4]]
    wanted = [lone(FIXTURES / MINIMAL / "model.onnx", each, 12, [EOS]) for each in prompts]
    assert [model(MINIMAL).generate(each, max_new_tokens=12).tokens for each in prompts] == wanted
    assert [each.tokens for each in model(MINIMAL).generate(batch=prompts, max_new_tokens=12).rows] == wanted


@pytest.mark.parametrize("images", [0, 1, 2])
def test_the_preset_of_pictures(model: Models, images: int) -> None:
    pixels = drawn(images, PATCHES, PIXELS)
    prompt = [BOS, *[SEEN] * (images * PATCHES), 9, 14]
    given: dict[str, Any] = {"request.input_ids": [prompt], "request.max_iterations": [10]}
    made = model(VISION).run(given | ({"pixel_values": pixels} if images else {}))["tokens"]
    assert made.reshape(-1).tolist() == media(prompt, 10, pixels if images else None, case=VISION)


CODE = """
import numpy as np


def make(parameters, graphs):
    (decoder,) = graphs.values()

    def call(arrays):
        ids, made = np.asarray(arrays["input_ids"]), []
        past = {name: np.zeros((1, 2, 0, 16), np.float32) for name, *_ in decoder.inputs if name.startswith("past")}
        length = 0
        while len(made) < 8:
            length += ids.shape[1]
            found = decoder({"input_ids": ids, "attention_mask": np.ones((1, length), np.int64), **past})
            past = {name: found[name.replace("past_key_values", "present")] for name in past}
            ids = found["logits"][:, -1].argmax(axis=-1).reshape(1, 1)
            made.append(int(ids[0, 0]))
        return {"tokens": np.array([made])}

    return call
"""


def test_a_plugin_by_an_installed_adapter_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest document's graph handed to a library: refused by name, then run by the adapter in its place."""
    folder = tmp_path / "package"
    shutil.copytree(FIXTURES / MINIMAL, folder)
    document = json.loads((folder / "genai_config.json").read_text())
    document["pipeline"]["plugin"] = {"library": "libcustom.so", "entry_point": "MakeOwnPipeline"}
    del document["pipeline"]["extends"]
    (folder / "genai_config.json").write_text(json.dumps(document))
    (folder / "libcustom.so").write_bytes(b"\x7fELF that nothing loads")
    with pytest.raises(CompileError, match="MakeOwnPipeline@1"):
        compile_package(folder, out=tmp_path / "out")
    info = tmp_path / "site" / "own_pipeline-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "own_pipeline.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-pipeline\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[genai_runtime.adapters]\nMakeOwnPipeline@1 = own_pipeline:make\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as made:
        assert {each["application"] for each in made.describe()["inputs"]} == {"input_ids", "attention_mask"}
        tokens = made.run({"input_ids": [[1, 9, 14]], "attention_mask": [[1, 1, 1]]})["tokens"].tolist()
    assert tokens == [lone(FIXTURES / MINIMAL / "model.onnx", [1, 9, 14], 8)]
