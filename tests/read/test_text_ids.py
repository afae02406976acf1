"""Ids that files beside a graph state and that its vocabulary does not have: told where they stand, never used."""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import Problem, errors
from genai_compiler.read.load import load_package

from tests.conftest import FIXTURES
from tests.lower.packages import Recipe, decoder
from tests.lower.plain_folders import plain_folder
from tests.lower.test_output_start import KINDS, MADE
from tests.reference.plain_loop import greedy

SIDE = "generation_config.json"
VOCABULARY = 64


def bad(problems: tuple[Problem, ...]) -> list[tuple[str, str, str]]:
    found = [each for each in problems if each.code == "bad-token-id"]
    assert all("no id of the vocabulary" in each.what for each in found)
    return [(each.severity.value, each.where.file, each.path) for each in found]


def with_side(case: str, folder: Path, **stated: int) -> Path:
    """A fixture whose own configuration states none of these ids, and a side file that does."""
    package = shutil.copytree(FIXTURES / case, folder / "p")
    (package / SIDE).write_text(json.dumps(stated))
    if (package / "genai_config.json").is_file():
        config = json.loads((package / "genai_config.json").read_text())
        config["model"] = {key: each for key, each in config["model"].items() if key not in stated}
        (package / "genai_config.json").write_text(json.dumps(config))
    return package


@pytest.mark.parametrize("value", [-1, VOCABULARY, 151643])
@pytest.mark.parametrize("key", ["bos_token_id", "pad_token_id"])
@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_an_id_of_the_file_beside_is_held_against_the_vocabulary(
    case: str, key: str, value: int, tmp_path: Path
) -> None:
    found = load_package(with_side(case, tmp_path, **{key: value}))
    assert bad(found.warnings) == [("warning", SIDE, key)]
    assert {"bos_token_id": found.text.bos, "pad_token_id": found.text.pad}[key] is None


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1"])
def test_rows_are_padded_with_an_id_that_there_is(case: str, tmp_path: Path) -> None:
    package = with_side(case, tmp_path, pad_token_id=151643)
    compile_package(package, tmp_path / "out")
    prompts = [[1, 9, 14], [7]]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        rows = model.generate(batch=prompts, max_new_tokens=5, temperature=0, stop_on_eos=False).rows
    assert [each.tokens for each in rows] == [greedy(FIXTURES / case / "model.onnx", each, 5, ()) for each in prompts]


@pytest.mark.parametrize("value", [-1, 100_000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_start_that_is_no_id_counts_as_not_stated(kind: str, value: int, tmp_path: Path) -> None:
    folder = MADE[kind](tmp_path / "p")
    (folder / SIDE).write_text(json.dumps({"decoder_start_token_id": value}))
    problems = compile_package(folder, tmp_path / "out").problems
    assert bad(problems) == [("warning", SIDE, "decoder_start_token_id")]
    assert "no-start-token" in {each.code for each in problems}


@pytest.mark.parametrize("value", [-1, 100_000])
@pytest.mark.parametrize(
    ("kind", "path"), [("version 1", "model.decoder_start_token_id"), ("version 2", "tokens.decoder_start")]
)
def test_a_false_start_of_the_configuration_leaves_the_word_to_the_file_beside(
    kind: str, path: str, value: int, tmp_path: Path
) -> None:
    folder = MADE[kind](tmp_path / "p")
    config: dict[str, Any] = json.loads((folder / "genai_config.json").read_text())
    holder, key = path.split(".")
    config[holder][key] = value
    (folder / "genai_config.json").write_text(json.dumps(config))
    (folder / SIDE).write_text('{"decoder_start_token_id": 2}')
    found = load_package(folder)
    assert bad(found.warnings) == [("warning", "genai_config.json", path)]
    assert found.text.decoder_start == 2


def test_version_2_names_its_own_key(tmp_path: Path) -> None:
    folder = MADE["version 2"](tmp_path / "p")
    config: dict[str, Any] = json.loads((folder / "genai_config.json").read_text())
    config["tokens"] |= {"bos": 100_000, "pad": -1, "decoder_start": 2}
    (folder / "genai_config.json").write_text(json.dumps(config))
    told = bad(load_package(folder).warnings)
    assert told == [("warning", "genai_config.json", f"tokens.{each}") for each in ("bos", "pad")]


@pytest.mark.parametrize("text", ["[]", "null", "7", '"x"'])
@pytest.mark.parametrize("name", [SIDE, "tokenizer_config.json", "special_tokens_map.json"])
def test_a_file_that_holds_no_object_is_refused(name: str, text: str, tmp_path: Path) -> None:
    """Read as an empty one, it would be as if the model had no defaults and no end."""
    package = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "p")
    (package / name).write_text(text)
    with pytest.raises(CompileError) as caught:
        load_package(package)
    (told,) = errors(caught.value.problems)
    assert (told.code, told.where.file) == ("malformed-json", name)
    assert "an object is expected" in told.what


@pytest.mark.parametrize("name", [SIDE, "config.json"])
def test_of_a_folder_that_declares_nothing_too(name: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "p", {"model.onnx": decoder(Recipe())})
    (folder / name).write_text("[]")
    with pytest.raises(CompileError) as caught:
        load_package(folder)
    (told,) = errors(caught.value.problems)
    assert (told.code in ("not-a-mapping", "malformed-json"), told.where.file) == (True, name)
