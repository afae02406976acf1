"""Messages are whole sentences: what a gap, or Python's own notation of a value, looks like is seen.

The catalogues of documents with one fault, and the tests that damage documents, hold what they are told against this.
"""

from pathlib import Path
from typing import Any

import pytest
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.lower.pipeline_ports import retold
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.places import as_written

from tests.lower.pipelines import VISION, package, pipeline, vision
from tests.wording import smells

GOOD = [
    "the field 'a; ' is not known; did you mean 'None'?",
    "give one of these (a, b, ...), as before",
    "the model's caller's text: 'x'",
    "call close() first",
    'not valid JSON: a value expected, "\\"" found',
]
ODD = [
    "; where nothing is generated", "write one;", "a,, b", "two  spaces", "at the end ", "the file has:", "it is None",
    "it is True, and that is wrong", "it has ( )", "<class 'int'> expected", "KeyError('x')", "dtype('int64') found",
    "one of dict(a=1)", "the input '' is unknown",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_a_whole_sentence_has_no_smell(text: str) -> None:
    assert smells([Problem("a-code", Place("x"), "", text, text)], empty=False) == []


@pytest.mark.parametrize("text", ODD)
def test_a_gap_is_seen_in_either_part(text: str) -> None:
    assert smells([Problem("a-code", Place("x"), "", text)])
    assert smells([Problem("a-code", Place("x"), "", "it is so", text)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "null"),
        ("a", "'a'"),
        ([1, None], "[1, null]"),
        ({"a": False}, '{"a": false}'),
        (2.5, "2.5"),
    ],
)
def test_a_value_is_written_as_its_author_would(value: Any, text: str) -> None:
    assert as_written(value) == text


def test_a_long_value_is_cut() -> None:
    assert len(as_written("x" * 1000)) < 100


@pytest.mark.parametrize(
    ("help", "told"),
    [
        ("", 'where nothing is generated, write "generation_loop": "single_pass"'),
        ("export it", 'export it; where nothing is generated, write "generation_loop": "single_pass"'),
    ],
)
@pytest.mark.parametrize("code", ["no-logits", "no-state"])
def test_the_word_for_a_single_pass_stands_alone_or_behind_the_way_out(code: str, help: str, told: str) -> None:
    found = retold(Problem(code, Place("x"), "elsewhere", "something is missing", help), "decoder", "pipeline.sessions")
    assert found.help == told
    assert smells([found]) == []


def test_behind_a_loop_that_is_not_there(tmp_path: Path) -> None:
    """A single pass has no loop that a session could wait for."""
    flow = [{"run": "decoder"}, {"run": "vision", "when": "final"}]
    document = pipeline(VISION, flow=flow, dataflow=[], generation_loop="single_pass")
    with pytest.raises(CompileError) as refused:
        lower_pipeline_config(package(tmp_path / "p", document, vision()))
    (said,) = [each.what for each in refused.value.problems if each.path == "pipeline.flow[1].when"]
    assert "a single pass has none for 'vision' to run after" in said
    assert "not compiled yet" not in said
