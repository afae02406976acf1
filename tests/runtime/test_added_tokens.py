"""Tokens that only tokenizer_config.json, or an added_tokens.json, states: added under their ids, or told of.

Wanted ids are counted by hand: a vocabulary of n tokens gives the next one the id n.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
import tokenizers
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import Problem
from genai_runtime.added_tokens import add_stated
from genai_runtime.tokenizer import Tokenizer

from tests.lower.packages import Recipe, write_package
from tests.runtime.tiny_tokenizers import byte_level, opened


def stated(tokens: Mapping[int, Any]) -> dict[str, Any]:
    """A tokenizer_config.json that adds these: id -> content, or a whole entry."""
    entries = {str(at): each if isinstance(each, dict) else {"content": each} for at, each in tokens.items()}
    return {"added_tokens_decoder": entries}


def count(tokenizer: Tokenizer) -> int:
    return tokenizer.id_count


@pytest.fixture
def size(tmp_path: Path) -> int:
    (tmp_path / "bare").mkdir()
    return count(opened(tmp_path / "bare", byte_level()))


def test_tokens_behind_the_vocabulary_are_one_id_each(size: int, tmp_path: Path) -> None:
    """In the order of their ids, whatever the order in the file; a special one is left out of text."""
    added = {size + 1: {"content": "<|call|>", "special": True}, size: "<think>"}
    tokenizer = opened(tmp_path, byte_level(), stated(added))
    assert tokenizer.not_added == ()
    assert tokenizer.encode("a<think>b<|call|>", add_special_tokens=False)[1::2] == [size, size + 1]
    assert tokenizer.decode([size, size + 1]) == "<think>"
    assert size + 1 in tokenizer.special_ids
    assert size not in tokenizer.special_ids
    assert tokenizer.valid_ids(size + 5) == size + 2


def test_a_token_of_the_vocabulary_is_marked_and_keeps_its_id(tmp_path: Path) -> None:
    """`the` is a token that BPE makes; as an added one it is found before the text is cut."""
    (tmp_path / "bare").mkdir()
    plain = opened(tmp_path / "bare", byte_level())
    own = plain.token_id("the")
    assert own is not None
    tokenizer = opened(tmp_path, byte_level(), stated({own: {"content": "the", "special": True}}))
    assert tokenizer.encode("xthex", add_special_tokens=False)[1:-1] == [own]
    assert tokenizer.decode([own]) == ""
    assert count(tokenizer) == count(plain)


def test_what_the_tokenizer_has_is_left_as_it_is(tmp_path: Path) -> None:
    """tokenizer.json marks it special and strips nothing; the configuration says otherwise and does not count."""
    tokenizer = opened(tmp_path, byte_level(), stated({0: {"content": "<|end|>", "special": False, "rstrip": True}}))
    assert 0 in tokenizer.special_ids
    assert tokenizer.encode("<|end|> a", add_special_tokens=False) == [
        0,
        *tokenizer.encode(" a", add_special_tokens=False),
    ]


def test_an_id_that_would_be_another_is_not_given(size: int, tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, byte_level(), stated({size + 7: "<far>", 3: "<near>"}))
    assert tokenizer.not_added == ((3, "<near>"), (size + 7, "<far>"))
    assert tokenizer.token_id("<far>") is None
    assert count(tokenizer) == size


@pytest.mark.parametrize(
    "odd", [None, 7, [], {"x": {"content": "<a>"}}, {"5": "<a>"}, {"5": {"content": 7}}, {"²": {}}]
)
def test_what_is_no_list_of_tokens_is_passed_over(odd: Any, size: int, tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, byte_level(), {"added_tokens_decoder": odd})
    assert (count(tokenizer), tokenizer.not_added) == (size, ())


# ---- a package -------------------------------------------------------------------------------------------------------


def package(folder: Path, config: Mapping[str, Any], **files: Any) -> Path:
    made = write_package(folder, Recipe())
    for name, data in {"tokenizer": byte_level(), "tokenizer_config": config, **files}.items():
        (made / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
    return made


def told(folder: Path) -> list[Problem]:
    try:
        return list(compile_package(folder, out=folder.with_name("out")).problems)
    except CompileError as refused:
        return list(refused.problems)


def test_a_compiled_package_knows_its_added_tokens(size: int, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", {**stated({size: "<think>"}), "chat_template": "{{ messages[0].content }}<think>"})
    assert not [each for each in told(folder) if each.code == "token-not-added"]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.tokenizer.encode("<think>", add_special_tokens=False) == [size]


def test_an_end_token_may_be_an_added_one(tmp_path: Path) -> None:
    """Id 21 is none of the tokenizer's own `<turn>`; the model's head has 24 rows."""
    config = {**stated({21: "<turn>"}), "eos_token": "<turn>"}
    folder = package(tmp_path / "p", config, tokenizer={"model": {"type": "WordLevel", "unk_token": "a", "vocab": {
        chr(97 + at): at for at in range(21)}}})  # fmt: skip
    made = compile_package(folder, out=tmp_path / "out")
    assert "21 (tokenizer_config.json eos_token '<turn>')" in " ".join(made.notes)


def test_tokens_that_are_not_added_are_told_with_their_file(size: int, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", stated({size + 9: "<far>"}), added_tokens={"<tool>": 2, "<lost>": size})
    found = {each.where.file: each.what for each in told(folder) if each.code == "token-not-added"}
    assert set(found) == {"tokenizer_config.json", "added_tokens.json"}
    assert f"'<far>' ({size + 9})" in found["tokenizer_config.json"]
    assert f"'<lost>' ({size})" in found["added_tokens.json"]
    assert "<tool>" not in found["added_tokens.json"]


def test_an_id_of_any_number_of_digits_stops_no_compilation(tmp_path: Path) -> None:
    config = {"added_tokens_decoder": {"9" * 5000: {"content": "<far>"}}}
    made = compile_package(package(tmp_path / "p", config), out=tmp_path / "out")
    assert "token-not-added" not in {each.code for each in made.problems}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tokenizer.model", "SentencePiece"), ("spiece.model", "SentencePiece"), ("merges.txt", "vocabulary and merges")],
)
def test_a_tokenizer_in_another_form_is_named_with_what_converts_it(name: str, kind: str, tmp_path: Path) -> None:
    folder = write_package(tmp_path / "p", Recipe())
    (folder / name).write_bytes(b"\x0a\x07")
    (found,) = (each for each in told(folder) if each.code == "missing-file")
    assert f"{name} ({kind})" in found.what
    assert "save_pretrained" in found.help


def test_without_any_tokenizer_the_folder_is_named_where_one_is_looked_for(tmp_path: Path) -> None:
    folder = write_package(tmp_path / "p", Recipe(), {"model": {"tokenizer_dir": "text"}})
    (found,) = (each for each in told(folder) if each.code == "missing-file")
    assert "there is no text/tokenizer.json" in found.what
    assert "copy tokenizer.json" in found.help


@pytest.mark.parametrize("odd", [{"9" * 5000: {"content": "<a>"}}, {"99": {"content": "\ud800"}}])
def test_an_entry_that_no_tokenizer_can_hold_is_passed_over(odd: Any, size: int, tmp_path: Path) -> None:
    """An id of more digits than Python reads; half a surrogate pair, which JSON can escape."""
    tokenizer = opened(tmp_path, byte_level(), {"added_tokens_decoder": odd, "bos_token": "\udfff"})
    assert (tokenizer.not_added, count(tokenizer), tokenizer.bos_id) == ((), size, None)


def test_many_tokens_are_added_at_once(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call makes anew what is found in texts, so that one call a token would take minutes for some thousands."""
    calls: list[int] = []
    whole = tokenizers.Tokenizer

    class Counting:
        def __init__(self, backend: Any) -> None:
            self._backend = backend

        def __getattr__(self, name: str) -> Any:
            if name.startswith(("add_", "get_added")):
                calls.append(1)
            return getattr(self._backend, name)

    opened(tmp_path, byte_level())
    backend = whole.from_file(str(tmp_path / "tokenizer.json"))
    wanted = {size + at: {"content": f"<t{at}>", "special": at % 2 == 0} for at in range(4000)}
    assert add_stated(Counting(backend), stated(wanted)) == ()  # type: ignore[arg-type]
    assert [backend.token_to_id(f"<t{at}>") for at in range(4000)] == list(range(size, size + 4000))
    assert len(calls) == 2
    assert [at for at, each in backend.get_added_tokens_decoder().items() if each.special and at >= size] == [
        *range(size, size + 4000, 2)
    ]
