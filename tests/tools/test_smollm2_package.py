"""The built packages, when they are there: `python -m tools.smollm2 --forms v1 workflow float` builds them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.data import ROOT
from tests.reference.interpreter import interpret
from tests.reference.values import Rows
from tools.smollm2 import download, numpy_model
from tools.smollm2.checkpoint import read_checkpoint
from tools.smollm2.fidelity import measure, whole_text
from tools.smollm2.plain_loop import greedy, open_session
from tools.smollm2.prompts import CAPITAL_QUESTION, PROMPTS

BUILT = ROOT / "build" / "smollm2"
GGUF = ROOT / "build" / "download" / download.GGUF


def needs(*forms: str) -> pytest.MarkDecorator:
    absent = [form for form in forms if not (BUILT / form).is_dir()]
    return pytest.mark.skipif(
        bool(absent), reason=f"not built: {', '.join(absent)} (python -m tools.smollm2 --forms {' '.join(forms)})"
    )


@cache
def session(form: str) -> Any:
    return open_session(BUILT / form / "model.onnx")


@cache
def tokenizer(form: str = "v1") -> Tokenizer:
    return Tokenizer.from_file(str(BUILT / form / "tokenizer.json"))


def chat_ids(question: str) -> list[int]:
    config = json.loads((BUILT / "v1" / "tokenizer_config.json").read_text(encoding="utf-8"))
    messages = [{"role": "user", "content": question}]
    text = jinja2.Template(config["chat_template"]).render(messages=messages, add_generation_prompt=True)
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


@needs("v1")
def test_the_answer_names_paris() -> None:
    tokens = greedy(session("v1"), chat_ids(CAPITAL_QUESTION), 40, end_ids=[2])
    assert "Paris" in tokenizer().decode(tokens)
    assert tokens[-1] == 2


@needs("v1", "workflow")
@pytest.mark.parametrize("form", ["v1", "workflow"])
def test_a_package_is_at_most_150_megabytes(form: str) -> None:
    assert sum(path.stat().st_size for path in (BUILT / form).rglob("*") if path.is_file()) <= 150e6


@needs("v1")
@pytest.mark.parametrize(
    "text",
    ["Hello, world", "  two  spaces\n\n\ttab", "1234 + 5 = 1239", "naïve Übung 東京 🙂", "don't it's we'll", "x" * 99],
)
def test_texts_survive_the_tokenizer(text: str) -> None:
    assert tokenizer().decode(tokenizer().encode(text, add_special_tokens=False).ids) == text


@needs("v1", "float")
@pytest.mark.skipif(not GGUF.exists(), reason="the checkpoint is not in build/download")
def test_first_logits_equal_numpy() -> None:
    ids = tokenizer().encode(PROMPTS[0], add_special_tokens=False).ids
    expected = numpy_model.logits(read_checkpoint(GGUF), ids)
    for form in ("float", "v1"):
        assert np.abs(whole_text(session(form), ids) - expected).max() <= 1e-3 * np.abs(expected).max()


@pytest.mark.heavy
@needs("v1", "float")
def test_the_shipped_form_is_faithful() -> None:
    rows = list(measure(BUILT, "v1"))
    assert {row.text for row in rows} == {"buffers", "letter"}
    assert all(row.tokens >= 400 for row in rows)
    assert [row for row in rows if not row.good] == []


@needs("workflow")
def test_the_workflow_gives_the_plain_loops_tokens_in_padded_rows() -> None:
    rows = [tokenizer("workflow").encode(prompt, add_special_tokens=False).ids for prompt in PROMPTS[:3]]
    prompts = np.full((3, max(map(len, rows))), 17)
    for index, row in enumerate(rows):
        prompts[index, : len(row)] = row
    inputs = {
        "request.input_ids": prompts,
        "request.max_iterations": np.array([12]),
        "prompt_lengths": np.array([len(row) for row in rows]),
        "row_max_iterations": np.array([-1, 5, -1]),
        "request.temperature": np.ones(3, np.float32),
        "request.top_k": np.ones(3, np.int64),
        "request.top_p": np.ones(3, np.float32),
        "request.min_p": np.zeros(3, np.float32),
        "request.seed": np.zeros(3, np.int64),
    }
    published = interpret(BUILT / "workflow", inputs).outputs["tokens"]
    assert isinstance(published, Rows)
    expected = [greedy(session("workflow"), row, limit, [2]) for row, limit in zip(rows, (12, 5, 12), strict=True)]
    assert [None if item is None else item[0].tolist() for item in published.items] == expected


@needs("v1", "workflow")
def test_both_forms_hold_the_same_graph() -> None:
    for name in ("model.onnx", "model.onnx.data"):
        first, second = ((BUILT / form / name).read_bytes() for form in ("v1", "workflow"))
        assert first == second


def test_prompts_are_twenty_and_different() -> None:
    assert len(set(PROMPTS)) == 20


def test_texts_are_fixed_in_the_repository() -> None:
    texts = sorted((Path(__file__).parents[2] / "tools" / "smollm2" / "texts").glob("*.txt"))
    assert [path.stem for path in texts] == ["buffers", "letter"]
