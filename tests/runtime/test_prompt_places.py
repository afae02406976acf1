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


@pytest.mark.parametrize(("kind", "give"), [("image", "--image FILE (images"), ("audio", "--audio FILE (audio")])
def test_a_place_without_a_file_asks_for_one(kind: str, give: str, tokenizer: Tokenizer) -> None:
    """The place is written already: what is lacking is the file."""
    places = Places({"entry_token": 60, "opens": "<pic>"}, kind)
    for text, more in (("<pic> the hat", "; without"), ("<pic><pic>", ", once for each place; without")):
        with pytest.raises(RequestError, match=f"and no {'picture' if kind == 'image' else 'sound'}s were") as refused:
            places.filled(text, (), tokenizer)
        assert refused.value.help.startswith(f"give {give}=[...]){more}")
    with pytest.raises(RequestError) as lacking:
        places.ids([1, 60], (), tokenizer)
    assert lacking.value.help.startswith(f"give {give}=[...]); without")
    with pytest.raises(RequestError) as written:
        places.filled("the hat", SPANS, tokenizer)
    assert written.value.help.startswith("write <pic> once where each")


@pytest.mark.parametrize("prompt", ["<|image_1|> the hat", [1, -1, -1]], ids=str)
def test_a_number_without_a_picture_asks_for_one(prompt: str | list[int], tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError) as refused:
        numbered_ids(prompt, "<|image_#|>", (), tokenizer, True)
    assert refused.value.help == "give --image FILE (images=[...])"
