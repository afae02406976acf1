"""Version 2 documents with any value in any place: refused with places or lowered, never a traceback."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.problem import CompileError, Problem, errors

from tests.lower.pipelines import ENCODER_DECODER, SPEECH_TOO, Document, encoder_decoder, package, pipeline, speech_too
from tests.lower.test_pipeline_drafts import DRAFTED, both, first_version
from tests.lower.test_pipeline_logits import BIAS, COOL, MINIMUM, PENALTY, SAMPLE, TOP_K, TOP_P
from tests.lower.test_pipeline_wishes import BUILD, RUNTIME
from tests.wording import smells

JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    2**40,
    1e300,
    "",
    "x",
    "../x",
    "decoder",
    "a.b",
    "{layer}%d",
    [],
    [None],
    {},
    {"x": 1},
]
FULL: Document = {
    **pipeline(
        SPEECH_TOO,
        state={
            "kv_cache": {"format": "auto", "past_key_pattern": "past_key_values.{layer}.key"},
            "position_ids": {"strategy": "auto", "input_name": "position_ids", "grid_source": "vision.pixel_values"},
        },
        preprocessing={"image": {"config": "genai_config.json", "expected_outputs": {"pixel_values": {"rank": 3}}}},
    ),
    "generation": {"max_length": 64, "sampling": {"temperature": 0.5, "do_sample": True, "top_k": 3}},
    "metadata": {"model_type": "x"},
}


SAYING: Document = {
    **pipeline(
        DRAFTED,
        sessions={"decoder": {"session_options": {"runtime": RUNTIME, "build_requires": BUILD}}},
        strategy={"draft": {"producer": "draft_model", "depth": 2, "ngram": {"window": 4}}, "acceptance": "greedy"},
    ),
    "generation": {"max_length": 64, "logits": [BIAS, MINIMUM, PENALTY, COOL, TOP_K, TOP_P, SAMPLE]},
}
"""Drafts, operations on scores and wishes of sessions."""
CASES = {
    "media": (FULL, speech_too),
    "cross": (ENCODER_DECODER, encoder_decoder),
    "drafts": (SAYING, both),
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in members:
        yield from paths(each, (*path, key))


def changed(document: Document, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.deepcopy(document)
    holder: Any = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return made


@pytest.mark.parametrize("name", CASES)
def test_any_value_in_any_place_is_lowered_or_refused(name: str, tmp_path: Path) -> None:
    document, graphs = CASES[name]
    folder = package(tmp_path / "p", document, graphs())
    assert lower_pipeline_config(folder).document
    faults: list[tuple[object, object, tuple[Problem, ...]]] = []
    for path in paths(document):
        for junk in JUNK:
            (folder / "genai_config.json").write_text(json.dumps(changed(document, path, junk)))
            try:
                lower_pipeline_config(folder)
            except CompileError as refused:
                faults.append((path, junk, errors(refused.problems)))
            except Exception as bug:
                raise AssertionError(f"{path} = {junk!r}") from bug
    assert [each for each in faults if not each[2]] == []
    assert smells((problem for _, _, found in faults for problem in found), empty=False) == []
    assert len(faults) > 100


@pytest.mark.parametrize("key", ["sessions", "flow", "dataflow"])
def test_very_many_entries_are_read_and_refused(key: str, tmp_path: Path) -> None:
    many: Any = {
        "sessions": {f"s{at}": {"file": f"{at}.onnx"} for at in range(9000)},
        "flow": [{"run": "decoder"}] * 9000,
        "dataflow": [{"from": f"s{at}.p", "to": f"s{at + 1}.p"} for at in range(9000)],
    }
    over = many if key == "dataflow" else {"flow": many["flow"]} if key == "flow" else many | {"dataflow": []}
    with pytest.raises(CompileError):
        lower_pipeline_config(package(tmp_path / "p", pipeline(ENCODER_DECODER, **over), encoder_decoder()))


def test_any_value_of_a_draft_model_of_version_1_is_taken_or_refused(tmp_path: Path) -> None:
    draft = {"filename": "draft.onnx", "head_size": 8, "num_hidden_layers": 2, "inputs": {"past_key_names": "past.%d"}}
    folder = first_version(tmp_path / "p", both()["draft.onnx"], {"speculative": {"max_draft_tokens": 2}}, **draft)
    document = json.loads((folder / "genai_config.json").read_text())
    told: list[Problem] = []
    silent: list[object] = []
    for path in paths(document):
        for junk in JUNK if path[:2] == ("model", "draft") or path[:1] == ("speculative",) else ():
            (folder / "genai_config.json").write_text(json.dumps(changed(document, path, junk)))
            try:
                told += lower_genai_config(folder).problems
            except CompileError as refused:
                told += refused.problems
                silent += [(path, junk)] if not errors(refused.problems) else []
    assert silent == []
    assert smells(told, empty=False) == []
    assert {"model.draft", "speculative.max_draft_tokens"} <= {each.path for each in told}
