"""What a run hands out: values of the caller's own, events by row, and the tokens output alone for text."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
import yaml
from genai_compiler import compile_package
from genai_runtime import Model, RequestError

from tests.conftest import FIXTURES
from tests.reference.interpreter import interpret
from tests.reference.values import RowEvents

Change = Callable[[dict[str, Any]], None]


def changed(case: str, folder: Path, change: Change) -> Model:
    """A fixture with an edited document, compiled and loaded."""
    package = folder / "package"
    shutil.copytree(FIXTURES / case, package)
    file = package / "inference_metadata.yaml"
    document = yaml.safe_load(file.read_text("utf-8"))
    change(document)
    file.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    compile_package(package, out=folder / "out.compiled")
    return genai_runtime.load(folder / "out.compiled")


def counter_inputs(times: int) -> dict[str, Any]:
    return {"times": np.array([times]), "step": np.array([2])}


def test_writing_into_what_was_published_changes_no_state(model: Callable[[str], Model]) -> None:
    counter = model("session-counter")
    for event in counter.stream(counter_inputs(2), session="mine"):
        event.value[...] = 50
    result = counter.run(counter_inputs(1), session="mine")
    assert result["log"].tolist() == [2, 4, 6]
    result["count"][0] = 1000
    assert counter.run(counter_inputs(1), session="mine")["count"].tolist() == [8]
    counter.reset("mine")


def test_row_wise_events_are_kept_in_order(model: Callable[[str], Model]) -> None:
    inputs = {"x": np.array([[4], [1]]), "limit": np.array([4]), "live": np.array([True, True])}
    ours = model("ragged-emit").run(inputs).row_events("beats")
    theirs = interpret(FIXTURES / "ragged-emit", inputs).outputs["beats"]
    assert isinstance(theirs, RowEvents)
    assert [[each.tolist() for each in row] for row in ours] == [
        [each.tolist() for each in row] for row in theirs.items
    ]
    assert any(len(row) > 1 for row in ours)


def test_generate_takes_tokens_from_the_tokens_output_alone(tmp_path: Path, model: Callable[[str], Model]) -> None:
    def with_a_second_output(document: dict[str, Any]) -> None:
        workflow = document["pipeline"]["workflow"]
        workflow["outputs"]["extra"] = dict(workflow["outputs"]["tokens"], role="tensor")
        steps = workflow["steps"][0]["steps"]
        at = next(i for i, step in enumerate(steps) if step["kind"] == "emit")
        steps.insert(at + 1, dict(steps[at], output="extra"))

    alone = model("tiny-decoder").generate([4, 5, 6], max_new_tokens=6).tokens
    assert changed("tiny-decoder", tmp_path, with_a_second_output).generate([4, 5, 6], max_new_tokens=6).tokens == alone


def test_generate_without_a_tokens_output_is_refused(model: Callable[[str], Model]) -> None:
    with pytest.raises(RequestError) as refused:
        model("session-counter").generate([1])
    assert refused.value.code == "no-tokens-output"


def test_a_document_that_says_nothing_of_its_vocabulary_loads(tmp_path: Path) -> None:
    def with_model_facts(document: dict[str, Any]) -> None:
        document["model"] = {"max_sequence_length": 32}

    with changed("tiny-decoder", tmp_path, with_model_facts) as loaded:
        assert len(loaded.generate([4, 5], max_new_tokens=3).tokens) == 3
