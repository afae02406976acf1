"""Prompts for which a package names no text of a place: what is refused says what can be written."""

from typing import Any

import pytest
from genai_runtime import RequestError
from genai_runtime.numbered_places import numbered_ids
from genai_runtime.prompt_places import Places, Span
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import Tokenizer, open_tokenizer

from tests.conftest import FIXTURES

SPANS = (Span(2, 3), Span(1, 4))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_tokenizer(FIXTURES / "tiny-gqa-v1", TextFiles("tokenizer.json", "tokenizer_config.json"))


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_a_token_without_a_text_is_asked_for_as_an_id(kind: str, tokenizer: Tokenizer) -> None:
    places, word = Places({"entry_token": 60}, kind), {"image": "picture", "audio": "sound"}[kind]
    asks: list[Any] = [
        lambda: places.filled("the hat", SPANS, tokenizer),
        lambda: places.ids([1, 60], SPANS, tokenizer),
    ]
    for ask, count in zip(asks, (0, 1), strict=True):
        with pytest.raises(RequestError) as refused:
            ask()
        assert refused.value.code == f"{kind}-tokens"
        assert refused.value.what == f"the prompt holds {count} of token 60, and 2 {word}s were given (6, 4 tokens)"
        assert f"give token ids, with token 60 where each {word} belongs" in refused.value.help
    assert places.ids([1, *[60] * 10], SPANS, tokenizer) == [1, *[60] * 10]


@pytest.mark.parametrize("opens", ["", "<img>"])
def test_pictures_by_number_without_a_text_for_numbers(opens: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="image-tokens: nothing says how a text names a picture, and 2 were given"):
        numbered_ids("the <img> hat 1", opens, SPANS, tokenizer, True)
    assert numbered_ids("the hat", opens, (), tokenizer, True) == tokenizer.encode("the hat")


def test_pictures_that_a_text_does_not_name(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match=r"the prompt names no picture \('<\|image_#\|>'\), and 1 was given"):
        numbered_ids("the hat", "<|image_#|>", SPANS[:1], tokenizer, True)
    with pytest.raises(RequestError, match=r"the prompt names the pictures 2, 3 \("):
        numbered_ids("<|image_3|> <|image_2|>", "<|image_#|>", SPANS, tokenizer, True)
