"""Words of both versions that a package can't use: each is told at its place, and nothing else is."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import check_package

from tests.conftest import FIXTURES
from tests.lower.pipelines import package, problems
from tests.lower.test_pipeline_drafts import DRAFTED, both

V1, V2 = "tiny-gqa-v1", "tiny-minimal-v2"
MEDIA_1 = ("image_token_id", "audio_token_id", "video_token_id", "vision_start_token_id", "boa_token_id")
MEDIA_2 = ("image_token", "audio_token", "video_token")


def told(folder: Path, case: str, **stated: Any) -> list[tuple[str, str, str]]:
    """What is said more of a fixture with these keys in its configuration than of the fixture itself."""
    shutil.copytree(FIXTURES / case, folder)
    file = folder / "genai_config.json"
    document = json.loads(file.read_text())
    for key, value in stated.items():
        document[key] = {**document.get(key, {}), **value}
    file.write_text(json.dumps(document))
    known = {(each.code, each.path) for each in check_package(FIXTURES / case)}
    found = [(each.code, each.path, each.what) for each in check_package(folder)]
    return [each for each in found if each[:2] not in known]


@pytest.mark.parametrize("case", [V1, V2, "tiny-encoder-v2"])
def test_pages_of_a_decoder_that_has_none(tmp_path: Path, case: str) -> None:
    ((code, path, what),) = told(tmp_path / "p", case, engine={"dynamic_batching": {"block_size": 16}})
    assert (code, path) == ("ignored-key", "engine.dynamic_batching")
    assert "keeps no caches in pages" in what


@pytest.mark.parametrize("case", [V1, V2])
def test_an_empty_block_asks_for_nothing(tmp_path: Path, case: str) -> None:
    assert told(tmp_path / "p", case, engine={"dynamic_batching": {}}) == []


def test_tokens_of_media_where_nothing_takes_any(tmp_path: Path) -> None:
    first = told(tmp_path / "one", V1, model=dict.fromkeys(MEDIA_1, 5))
    assert [each[:2] for each in first] == [("ignored-key", f"model.{key}") for key in MEDIA_1]
    second = told(tmp_path / "two", V2, tokens=dict.fromkeys(MEDIA_2, 5))
    assert [each[:2] for each in second] == [("ignored-key", f"tokens.{key}") for key in MEDIA_2]


@pytest.mark.parametrize("case", ["tiny-vision-v2", "tiny-media-v2", "tiny-tiles-v2", "tiny-vision-stages-v1"])
def test_where_something_does_they_are_not_told(tmp_path: Path, case: str) -> None:
    assert not [each for each in told(tmp_path / "p", case) if "media" in each[2]]


@pytest.mark.parametrize("size", [16, 0])
def test_chunks_of_prompts_that_nothing_is_generated_for(tmp_path: Path, size: int) -> None:
    found = told(tmp_path / "two", "tiny-embedder-v2", search={"chunk_size": size})
    assert [each[:2] for each in found] == [("ignored-key", "search.chunk_size")] * bool(size)
    assert all("the package generates nothing" in each[2] for each in found)


def test_the_same_of_an_encoder_of_version_1(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    shutil.copytree(FIXTURES / "tiny-embedder-v2", folder)
    decoder = {"filename": "encoder.onnx", "session_options": {}, "inputs": {}, "outputs": {}}
    for stated in ({}, {"chunk_size": 16}):
        document = {"model": {"type": "bert", "vocab_size": 64, "decoder": decoder}, "search": stated}
        (folder / "genai_config.json").write_text(json.dumps(document))
        found = [each.path for each in check_package(folder) if "chunk_size" in each.what]
        assert found == ["search.chunk_size"] * bool(stated)


@pytest.mark.parametrize("name", ["smal", "nothing_like_it"])
@pytest.mark.parametrize("where", ["roles", "strategy"])
def test_a_misspelt_draft_is_one_problem(tmp_path: Path, name: str, where: str) -> None:
    """The session that was meant is not told to be run by nobody as well."""
    document = deepcopy(DRAFTED)
    if where == "roles":
        document["pipeline"]["roles"]["draft"] = name
    else:
        del document["pipeline"]["roles"]["draft"]
        document["pipeline"]["strategy"]["draft"] = {"session": name}
    (found,) = [each for each in problems(package(tmp_path / "p", document, both())) if each.path]
    assert found.code == "unknown-component"
    assert found.path == ("pipeline.roles.draft" if where == "roles" else "pipeline.strategy.draft.session")
    assert name in found.what
    assert found.help == ("did you mean small?" if name == "smal" else "")
