"""The version 2 fixtures are run: their tokens are those of plain loops over their graphs."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest

from tests.conftest import FIXTURES
from tests.reference.plain_loop import HEAD, KV_HEADS
from tests.reference.values import Array
from tools.fixtures.genai_v2 import BANDS, HEARD, PATCHES, PIXELS, SEEN
from tools.fixtures.network import HIDDEN, LAYERS
from tools.fixtures.tokenizer import BOS, EOS

Models = Callable[[str], genai_runtime.Model]
CROSS, MEDIA = "tiny-encoder-v2", "tiny-media-v2"
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


def media(prompt: Sequence[int], count: int, pixels: Array | None = None, frames: Array | None = None) -> list[int]:
    none = np.zeros((0, HIDDEN), np.float32)
    given = {
        "image_features": none if pixels is None else session(MEDIA, "vision").run(None, {"pixel_values": pixels})[0],
        "audio_features": none if frames is None else session(MEDIA, "speech").run(None, {"audio_frames": frames})[0],
    }

    def feeds(fresh: list[int], length: int) -> Mapping[str, Array]:
        entries = given if length == 0 else dict.fromkeys(given, none)
        return {"inputs_embeds": session(MEDIA, "embedding").run(None, {"input_ids": np.array([fresh]), **entries})[0]}

    return greedy(MEDIA, prompt, count, feeds)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(11).standard_normal(shape).astype(np.float32)


def test_text_goes_to_the_encoder_and_the_output_starts_as_the_file_says(model: Models) -> None:
    prompts = [[9, 14, 30], [7, 8, 9, 10, 11], [40]]
    for prompt in prompts:
        assert model(CROSS).generate(prompt, max_new_tokens=12).tokens == cross(prompt, 12)
    assert len({tuple(cross(each, 12)) for each in prompts}) > 1, "the source should matter"


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
