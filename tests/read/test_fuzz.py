"""Damaged documents as data and as text: a CompileError or a document comes out, soon, and nothing else."""

import json
import random
import time

import pytest
import yaml
from genai_compiler.problem import CompileError
from genai_compiler.read.json_text import read_json
from genai_compiler.read.rules import RULES
from genai_compiler.read.tree import Limits
from genai_compiler.read.validate import parse_metadata
from genai_compiler.read.yaml_text import read_yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.read.documents import BARE, FULL, bare, faults, full, rule_of
from tests.read.mutations import damaged
from tests.wording import smells

LIMITS = Limits()
PIECES = ["\n", "\t", "  ", "- ", ": ", "{", "]", '"', "&a ", "*a", "!!x ", "# ", "\0"]
SOURCES = {
    "full.yaml": FULL,
    "bare.yaml": BARE,
    "full.json": json.dumps(full()),
    "bare.json": json.dumps(bare(), indent=1),
}


def _judge(text: str, name: str) -> None:
    reader = read_json if name.endswith(".json") else read_yaml
    try:
        parse_metadata(*reader(text, name, LIMITS))
    except CompileError as error:
        _sound(error)


def _sound(error: CompileError) -> None:
    assert error.problems
    for problem in error.problems:
        rule = rule_of(problem)
        assert rule in RULES[problem.code] or not RULES[problem.code]
        assert "pydantic" not in str(problem)
        assert problem.what.isprintable()
        assert smells([problem], empty=False) == []


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=150, deadline=10_000)
def test_damaged_data(seed: int, times: int) -> None:
    dice = random.Random(seed)
    for code, path, rule in faults(damaged(dice.choice([full(), bare()]), dice, times)):
        assert rule in RULES[code], (code, path, rule)


@given(st.sampled_from(sorted(SOURCES)), st.data())
@settings(max_examples=150, deadline=10_000)
def test_damaged_text(name: str, data: st.DataObject) -> None:
    text = SOURCES[name]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        piece = data.draw(st.text(max_size=4) | st.sampled_from(PIECES))
        text = text[:start] + piece + text[start + length :]
    _judge(text, name)


@given(st.text(max_size=200), st.sampled_from(["m.yaml", "m.json"]))
@settings(max_examples=200, deadline=10_000)
def test_any_text(text: str, name: str) -> None:
    _judge(text, name)


def _document(steps: int) -> str:
    data = full()
    step = data["pipeline"]["workflow"]["steps"][0]
    data["pipeline"]["workflow"]["steps"] = [
        {**step, "inputs": {f"in{n}": "a" for n in range(6)}, "outputs": {f"out{n}": f"v{i}.{n}" for n in range(6)}}
        for i in range(steps)
    ]
    return yaml.dump(data, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="PyYAML was built without libyaml")
def test_a_long_document_is_read_soon() -> None:
    text = _document(2000)
    started = time.process_time()
    document = parse_metadata(*read_yaml(text, "m.yaml", LIMITS))
    spent = time.process_time() - started
    assert document.pipeline is not None
    assert len(document.pipeline.workflow.steps) == 2000
    assert spent < 2.0


def test_a_document_of_faults_only_is_refused_soon() -> None:
    data = full()
    data["pipeline"]["workflow"]["steps"] = [{"kind": "invoke", "componnent": "x" * 1000}] * 50_000
    started = time.process_time()
    assert len(faults(data)) == 201
    assert time.process_time() - started < 5.0
