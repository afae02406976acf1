"""Text from tokens as they come (known traps H), end to end; the whole is the tokenizers library's own decode."""

from pathlib import Path

import genai_runtime
import pytest
import tokenizers

from tests.traps.toy import toy

GO = [0]


def library_text(folder: Path, prompt: list[int], tokens: list[int], skip: bool = True) -> str:
    """decode(prompt + tokens) less decode(prompt), by the library."""
    backend = tokenizers.Tokenizer.from_file(str(folder / "package" / "tokenizer.json"))
    before = backend.decode(prompt, skip_special_tokens=skip)
    whole = backend.decode(prompt + tokens, skip_special_tokens=skip)
    assert whole.startswith(before)
    return whole[len(before) :]


def pieces_of(model: genai_runtime.Model, prompt: list[int], count: int) -> list[str]:
    """The pieces of a stream, which add up to `text`."""
    generation = model.generate(prompt, max_new_tokens=count)
    pieces = list(generation)
    assert "".join(pieces) == generation.text
    return pieces


@pytest.mark.parametrize("metaspace", [False, True])
@pytest.mark.parametrize("parts", [(b"\xe3\x81", b"\x82"), (b"\xe3", b"\x81\x82"), (b"\xe3", b"\x81", b"\x82")])
def test_h1_a_character_over_tokens_comes_whole(tmp_path: Path, parts: tuple[bytes, ...], metaspace: bool) -> None:
    if metaspace and any(len(each) > 1 for each in parts):
        parts = (b"\xe3", b"\x81", b"\x82")
    model = toy(tmp_path, ["<go>", "a", *parts, "b", "<end>"], metaspace=metaspace).model
    assert pieces_of(model, GO, 9) == ["a", "\u3042", "b"]


def test_h1_a_character_that_stays_unfinished_is_replaced_once(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "a", b"\xe3\x81", "<end>"]).model
    assert pieces_of(model, GO, 9) == ["a", "\ufffd"]
    assert model.generate(GO, max_new_tokens=9).text == library_text(tmp_path, GO, [1, 2])


def test_h1_half_a_character_in_the_prompt(tmp_path: Path) -> None:
    """The prompt ends with two of three bytes: the reply completes the character and streams only what is new."""
    model = toy(tmp_path, ["<go>", b"\xe3\x81", b"\x82", "x", "<end>"]).model
    generation = model.generate([0, 1], max_new_tokens=9)
    assert "\ufffd" not in generation.text
    assert generation.text.endswith("x")


def test_h2_spaces_stay(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", " Hello", " world", " x", "<end>"], metaspace=True).model
    assert pieces_of(model, GO, 9) == ["Hello", " world", " x"]
    assert model.generate(GO, max_new_tokens=9).text == library_text(tmp_path, GO, [1, 2, 3])
    assert pieces_of(model, [0, 1], 9) == [" world", " x"]
    assert library_text(tmp_path, [0, 1], [2, 3]) == " world x"


@pytest.mark.parametrize("prompt", [[0], [0, 1], [0, 1, 2]])
def test_h3_invalid_bytes_are_replaced_and_the_text_goes_on(tmp_path: Path, prompt: list[int]) -> None:
    model = toy(tmp_path, ["<go>", " a", " b", b"\xff", b"\xc3", b"\x28", " c", "<end>"], metaspace=True).model
    generation = model.generate(prompt, max_new_tokens=12)
    text = "".join(generation)
    assert text.endswith(" c")
    assert text.count("\ufffd") >= 2
    assert generation.finish_reason == "stop"
    assert text == generation.text


def test_h3_invalid_bytes_of_a_byte_level_vocabulary(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "a", b"\xff", b"\xe3\x81", "b", "<end>"]).model
    generation = model.generate(GO, max_new_tokens=9)
    assert "".join(generation) == library_text(tmp_path, GO, [1, 2, 3, 4]) == b"a\xff\xe3\x81b".decode(errors="replace")


def test_h6_special_tokens_are_the_callers_choice(tmp_path: Path) -> None:
    specials = ("<go>", "<tool>", "</tool>", "<end>")
    model = toy(tmp_path, ["<go>", "<tool>", "{}", "</tool>", " ok", "<end>"], specials=specials).model
    assert model.generate(GO, max_new_tokens=9).text == "{} ok"
    kept = model.generate(GO, max_new_tokens=9, skip_special_tokens=False)
    assert "".join(kept) == kept.text == library_text(tmp_path, GO, [1, 2, 3, 4], skip=False) == "<tool>{}</tool> ok"


def test_h6_a_stop_string_may_be_a_tag(tmp_path: Path) -> None:
    specials = ("<go>", "<tool>", "</tool>", "<end>")
    model = toy(tmp_path, ["<go>", "<tool>", "{}", "</tool>", " ok", "<end>"], specials=specials).model
    kept = model.generate(GO, max_new_tokens=9, skip_special_tokens=False, stop=["</tool>"])
    assert (kept.text, kept.finish_reason) == ("<tool>{}", "stop_string")
