"""Public reports of what configurations contain (known traps A, B, F, R), each as a tiny package."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.problem import CompileError, errors
from genai_compiler.read.config_keys import SEARCH
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import DATA, needs_data
from tests.lower.packages import (
    Recipe,
    eos_literal,
    lower,
    outcome,
    refused,
    warned,
    write_config,
    write_package,
)
from tests.wording import smells


@pytest.mark.parametrize(("stated", "ids"), [([7, 9, 7], [7, 9]), (7, [7]), ([7.0], [7]), ([], [0]), (..., [0])])
def test_a1_end_ids_are_one_or_many(tmp_path: Path, stated: object, ids: list[int]) -> None:
    """[] and nothing at all fall back to the pad id, as in the reference."""
    assert eos_literal(lower(tmp_path, config={"model": {"eos_token_id": stated}})) == ids


@pytest.mark.parametrize("key", ["pad_token_id", "bos_token_id"])
def test_a2_other_ids_may_be_lists_too(tmp_path: Path, key: str) -> None:
    lowered = lower(tmp_path, config={"model": {key: [1, 2]}})
    assert {"pad_token_id": lowered.text.pad, "bos_token_id": lowered.text.bos}[key] == 1
    problem = warned(lowered)["several-token-ids"]
    assert problem.path == f"model.{key}"
    assert "[1, 2]" in problem.what


@pytest.mark.parametrize("kind", ["lama", "never_seen", "", ...])
def test_a4_b1_the_type_decides_nothing(tmp_path: Path, kind: object) -> None:
    lowered = lower(tmp_path, config={"model": {"type": kind}})
    assert lowered.document == lower(tmp_path / "plain").document
    assert "decides nothing" in lowered.notes[0]


def test_a4_a_folder_is_never_parsed_as_a_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert refused(tmp_path, config={"model": {"decoder": {"filename": "model"}}})["not-a-file"].where.line == 1
    missing = refused(tmp_path, config={"model": {"decoder": {"filename": ...}}})["missing-key"]
    assert "model.onnx" in missing.help


def test_a5_cache_bytes_are_known_before_anything_is_allocated(tmp_path: Path) -> None:
    """131072 positions x 2 tensors x 1 head x 8 x 4 bytes."""
    lowered = lower(tmp_path, config={"model": {"context_length": 131072}})
    facts = lowered.decoder
    assert facts.cache_bytes_per_token * facts.max_sequence_length == 131072 * 2 * 1 * 8 * 4
    assert any("64 bytes a token" in note and "131072" in note for note in lowered.notes)


def test_a6_max_length_over_context_length(tmp_path: Path) -> None:
    config = {"model": {"context_length": 2176}, "search": {"max_length": 2347}}
    lowered = lower(tmp_path, config=config)
    problem = warned(lowered)["length-over-context"]
    assert all(each in problem.what for each in ("2347", "2176", "context_length"))
    assert "max_new_tokens" in problem.help
    assert lowered.document["generation"]["defaults"]["max_length"] == 2176
    assert lowered.document["model"]["max_sequence_length"] == 2176


def test_a8_no_repeat_ngram_size_reaches_the_defaults(tmp_path: Path) -> None:
    defaults = lower(tmp_path, config={"search": {"no_repeat_ngram_size": 3}}).document["generation"]["defaults"]
    assert defaults["no_repeat_ngram_size"] == 3


def _documented_search_keys() -> list[str]:
    text = (DATA / "reference" / "genai-config.md").read_text()
    section = text[text.index("### 1.12") : text.index("### 1.13")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [key for row in rows for key in re.findall(r"`(\w+)`", row)]


@needs_data
def test_a8_every_documented_search_key_is_known() -> None:
    assert sorted(_documented_search_keys()) == sorted(SEARCH)


@pytest.mark.parametrize("key", sorted(SEARCH))
def test_a8_every_search_key_has_an_effect_or_a_diagnostic(tmp_path: Path, key: str) -> None:
    values = {"do_sample": True, "early_stopping": False, "past_present_share_buffer": True, "audio_interleaved": True}
    fractions = {"repetition_penalty": 1.3, "top_p": 0.7, "temperature": 0.4}
    recipe = Recipe(op="attention")  # it appends, so that a shared buffer is something to speak of
    plain = lower(tmp_path / "plain", recipe)
    config = {"search": {key: values.get(key, fractions.get(key, 5))}}
    problems, document = outcome(write_package(tmp_path / "set", recipe, config))
    named = any(each.path == f"search.{key}" for each in problems)
    by_runs = key == "chunk_size" and lower(tmp_path / "chunk", recipe, config).chunk is not None
    assert named or by_runs or (document is not None and document != plain.document)


def test_a10_a_folder_without_a_config(tmp_path: Path) -> None:
    write_package(tmp_path, Recipe())
    (tmp_path / "genai_config.json").unlink()
    with pytest.raises(CompileError) as caught:
        lower_genai_config(tmp_path)
    missing = {each.where.file for each in caught.value.problems}
    assert missing == {"genai_config.json", "tokenizer.json", "tokenizer_config.json"}
    told = next(each.help for each in caught.value.problems if each.where.file == "genai_config.json")
    assert all(each in told for each in ("input_ids", "1 attention caches", "24 logits"))


@pytest.mark.parametrize("spelling", ["WebGpuExecutionProvider", "webgpu", "WebGPU", "web", "WEBGPUEXECUTIONPROVIDER"])
def test_r2_provider_spellings_are_one(tmp_path: Path, spelling: str) -> None:
    session = {
        "session_options": {"provider_options": [{spelling: {"deviceId": "1"}}, {"WebGPU": {"enableInt64": 2}}, {}]}
    }
    lowered = lower(tmp_path, config={"model": {"decoder": session}})
    assert [(each.name, each.options) for each in lowered.providers] == [
        ("WebGpuExecutionProvider", (("deviceId", "1"), ("enableInt64", "2")))
    ]


def test_r2_an_unknown_provider_is_an_error(tmp_path: Path) -> None:
    session = {"session_options": {"provider_options": [{"cudda": {}}]}}
    problem = refused(tmp_path, config={"model": {"decoder": session}})["unknown-provider"]
    assert "'cudda'" in problem.what
    assert "CUDAExecutionProvider" in problem.help


def test_vocabulary_conflicts_take_the_graph_as_width_and_the_config_as_limit(tmp_path: Path) -> None:
    lowered = lower(tmp_path, config={"model": {"vocab_size": 20}})
    assert (lowered.decoder.vocab_size, lowered.decoder.sampled_ids) == (24, 20)
    assert lowered.document["model"]["vocab_size"] == 24
    assert all(each in warned(lowered)["config-contradicts-graph"].what for each in ("20", "24"))


def test_end_ids_no_logit_can_reach_are_dropped(tmp_path: Path) -> None:
    lowered = lower(tmp_path, config={"model": {"eos_token_id": [-1, 2, 24]}})
    assert eos_literal(lowered) == [2]
    assert sum(each.code == "bad-token-id" for each in lowered.problems) == 2


def test_f1_end_ids_are_the_union_of_all_sources(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 5]}')
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end>"}}')
    (tmp_path / "tokenizer.json").write_text(
        '{"model": {"vocab": {"a": 3}}, "added_tokens": [{"id": 9, "content": "<end>"}]}'
    )
    lowered = lower(tmp_path)
    assert eos_literal(lowered) == [2, 5, 9]
    said = {each.id: each.said_by for each in lowered.text.end_ids}
    assert said[2] == ("genai_config.json model.eos_token_id", "generation_config.json eos_token_id")
    assert said[9] == ("tokenizer_config.json eos_token '<end>'",)


def test_two_rows_of_trouble_are_told_at_once(tmp_path: Path) -> None:
    config = {
        "model": {"decoder": {"filename": "model.onnx", "outputs": {"logits": "scores"}}, "vocab_size": "many"},
        "search": {"num_beams": 4, "temperature": -1},
    }
    found = refused(tmp_path, config=config)
    assert {"no-logits", "wrong-type", "unsupported-search", "bad-value"} <= set(found)


def test_context_length_comes_from_elsewhere_when_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 48}')
    lowered = lower(tmp_path, config={"model": {"context_length": ...}})
    assert lowered.decoder.max_sequence_length == 48
    assert "config.json" in warned(lowered)["missing-context-length"].what


@pytest.mark.parametrize("name", ["../model.onnx", "/tmp/model.onnx", "a\\..\\..\\x.onnx", "C:\\x.onnx"])
def test_paths_stay_in_the_package(tmp_path: Path, name: str) -> None:
    assert refused(tmp_path, config={"model": {"decoder": {"filename": name}}})["outside-package"].help


def test_windows_made_paths_work(tmp_path: Path) -> None:
    write_package(tmp_path / "decoder", Recipe())
    write_config(tmp_path, {"model": {"decoder": {"filename": "decoder\\model.onnx"}}})
    assert lower_genai_config(tmp_path).decoder.artifact == "decoder/model.onnx"


def test_lowering_is_deterministic(tmp_path: Path) -> None:
    one, two = lower(tmp_path / "one"), lower(tmp_path / "two")
    assert str(one.document) == str(two.document)


_ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**31,
        1e300,
        -0.5,
        "",
        "%",
        "%%d",
        "a\"b\n'",
        "\u2028",
        [],
        [None],
        {},
        [[]],
        {"filename": "x"},
        "../x",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_anywhere_is_compiled_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = write_package(tmp_path_factory.getbasetemp() / "odd", Recipe())
    config = json.loads((folder / "genai_config.json").read_text())
    holder: Any = config
    for _ in range(data.draw(st.integers(0, 4))):
        inner = [each for each in holder.values() if isinstance(each, dict) and each]
        holder = data.draw(st.sampled_from(inner)) if inner else holder
    holder[data.draw(st.sampled_from([*holder, "sliding_window", "vision", "search", "top_p", "past_key_names"]))] = (
        data.draw(_ODD)
    )
    (folder / "genai_config.json").write_text(json.dumps(config))
    problems, document = outcome(folder)
    assert document is not None or errors(problems)
    assert smells(problems, empty=False) == []
