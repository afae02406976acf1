"""Values of another type than their key has, in files beside a graph: each told once, in its own line."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import check_package, compile_package
from genai_compiler.problem import Problem, errors

from tests.conftest import FIXTURES

GENERATION, CONFIG, TOKENIZER, SPECIAL = (
    f"{name}.json" for name in ("generation_config", "config", "tokenizer_config", "special_tokens_map")
)


def beside(folder: Path, files: Mapping[str, Mapping[str, Any]], declared: bool = True) -> Path:
    """A package with these files, one key a line. declared: with its genai_config.json."""
    shutil.copytree(FIXTURES / "tiny-gqa-v1", folder)
    if not declared:
        (folder / "genai_config.json").unlink()
    for name, stated in files.items():
        file = folder / name
        known = json.loads(file.read_text("utf-8")) if file.exists() else {}
        file.write_text(json.dumps({**stated, **{k: v for k, v in known.items() if k not in stated}}, indent=1))
    return folder


def told(found: tuple[Problem, ...]) -> list[tuple[str, str]]:
    return [(f"{each.where}", each.code) for each in found if each.where.file.endswith(".json")]


WRONG = ["2", {"a": 2}, [[2]], True, 2.0, [True], "", [2, "x"], [2, None]]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("key", ["eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"])
def test_ids_of_another_type(tmp_path: Path, key: str, value: Any, declared: bool) -> None:
    """The list's own entry is named, in its line; ids that are some count all the same."""
    plain = {CONFIG: {"vocab_size": 64, "max_position_embeddings": 64, "eos_token_id": [2, 5]}}
    folder = beside(tmp_path / "p", {**plain, GENERATION: {"do_sample": False, key: value}}, declared)
    line = 3 + (isinstance(value, list) and len(value))
    found = compile_package(folder, out=tmp_path / "out")
    assert told(found.problems) == [(f"{GENERATION}:{line}", "bad-token-id")]
    assert "which is no token id; it counts as not stated" in found.problems[0].what
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["generation"]["end_ids"] == [2, 5]


@pytest.mark.parametrize("value", [None, [], 2, [2, 5]], ids=repr)
def test_what_is_one_or_is_not_stated_is_no_matter(tmp_path: Path, value: Any) -> None:
    keys = ("eos_token_id", "bos_token_id", "pad_token_id")
    assert check_package(beside(tmp_path / "p", {GENERATION: dict.fromkeys(keys, value)})) == ()


@pytest.mark.parametrize(("value", "said"), [(-1, "ids count from 0"), (64, "the vocabulary has 64 ids")])
def test_an_end_id_that_is_none_is_told_where_it_stands(tmp_path: Path, value: int, said: str) -> None:
    (found,) = check_package(beside(tmp_path / "p", {GENERATION: {"eos_token_id": value}}))
    assert (str(found.where), found.path, found.code) == (f"{GENERATION}:2", "eos_token_id", "bad-token-id")
    assert said in found.what


def test_every_file_is_looked_at(tmp_path: Path) -> None:
    files: dict[str, dict[str, Any]] = {
        CONFIG: {"eos_token_id": "2", "max_position_embeddings": "64"},
        TOKENIZER: {"eos_token": 5, "model_max_length": True},
        SPECIAL: {"eos_token": ["<end>"]},
    }
    found = check_package(beside(tmp_path / "p", files))
    assert not errors(found)
    assert told(found) == [
        (f"{CONFIG}:2", "bad-token-id"),
        (f"{CONFIG}:3", "wrong-type"),
        (f"{SPECIAL}:2", "bad-token-id"),
        (f"{TOKENIZER}:2", "bad-token-id"),
        (f"{TOKENIZER}:3", "wrong-type"),
    ]


@pytest.mark.parametrize("endless", [10**30, 1e30, None])
def test_no_limit_is_no_length(tmp_path: Path, endless: Any) -> None:
    assert check_package(beside(tmp_path / "p", {TOKENIZER: {"model_max_length": endless}})) == ()


def test_numbers_of_a_folder_that_declares_nothing(tmp_path: Path) -> None:
    """What the graph says counts then; a list has a number for each layer, which nothing here asks for."""
    stated = {"vocab_size": "64", "num_hidden_layers": 2.0, "num_key_value_heads": [2, 2], "n_head": 0, "head_dim": 16}
    files = {CONFIG: {**stated, "max_position_embeddings": 64, "eos_token_id": 2}}
    found = check_package(beside(tmp_path / "p", files, declared=False))
    assert not errors(found)
    assert told(found) == [(f"{CONFIG}:{line}", "wrong-type") for line in (2, 3, 8)]  # the list takes four
    assert "num_hidden_layers is 2.0, which is no whole number above 0" in found[1].what


def test_sampling_of_a_folder_that_declares_nothing(tmp_path: Path) -> None:
    keys = {"temperature": "hot", "top_p": [1], "max_length": "x", "top_k": True, "repetition_penalty": {}}
    files = {CONFIG: {"vocab_size": 64, "eos_token_id": 2, "max_position_embeddings": 64}, GENERATION: keys}
    found = check_package(beside(tmp_path / "p", files, declared=False))
    assert told(found) == [(f"{GENERATION}:{line}", "wrong-type") for line in (2, 3, 6, 7, 8)]


def test_a_file_without_lines_is_named_without_one(tmp_path: Path) -> None:
    """Python reads NaN, the reader that knows lines does not."""
    folder = beside(tmp_path / "p", {})
    (folder / GENERATION).write_text('{"eos_token_id": "2", "x": NaN}')
    (found,) = check_package(folder)
    assert (str(found.where), found.code) == (GENERATION, "bad-token-id")
