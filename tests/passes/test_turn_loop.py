"""Loops that are turned: which ones, why others are not, and that the weights stay in one session."""

import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import Compiled, Options, compile_package
from genai_compiler.passes import joinable
from genai_compiler.plan.ir import Invoke, Loop
from genai_compiler.plan.uses import walk
from genai_runtime.settled import SETTLED
from onnx import TensorProto, helper, load, save

from tests.conftest import FIXTURES
from tests.reference.document import read_document
from tests.reference.plain_loop import greedy
from tools.fixtures.document import Document, write_document

CASE = "tiny-turns"
PROMPT = [1, 10, 20, 30]


def edited(folder: Path, edit: dict[str, object]) -> Path:
    """The package with a workflow that differs: (section of the workflow) -> what is added to it."""
    shutil.copytree(FIXTURES / CASE, folder)
    document: Document = read_document(FIXTURES / CASE)
    for section, more in edit.items():
        document["pipeline"]["workflow"][section].update(more)
    write_document(folder, document)
    return folder


def said(made: Compiled) -> str:
    assert made.plan is not None
    return next((each for each in made.plan.decisions if each.startswith("turn_loop: ")), "")


def turned(made: Compiled) -> bool:
    assert made.plan is not None
    return any(isinstance(op, Loop) and op.ahead is not None for op in made.plan.body)


def test_every_place_of_a_heavy_graph_runs_the_turned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights would otherwise be in two sessions: the prompt's place gives it zeros for what it looks ahead to."""
    monkeypatch.setattr(joinable, "LIGHT", 2000)
    made = compile_package(FIXTURES / CASE, tmp_path / "out")
    assert turned(made)
    assert made.plan is not None
    runs = [op for op in walk(made.plan.body) if isinstance(op, Invoke) and op.idle]
    assert [(op.component, bool(op.held)) for op in runs] == [
        ("model_linked_turned", False),
        ("model_linked_turned", True),
    ]
    assert sorted(each.name for each in (tmp_path / "out" / "graphs").iterdir()) == [
        "island_1.onnx",
        "model_linked_turned.onnx",
    ]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for count in (0, 1, SETTLED + 1, SETTLED + 2, SETTLED + 3, 40):
            wanted = greedy(FIXTURES / CASE / "model.onnx", PROMPT, count, ())
            assert model.generate(PROMPT, max_new_tokens=count).tokens == wanted


def test_left_out_it_changes_nothing_but_the_runs(tmp_path: Path) -> None:
    apart = compile_package(FIXTURES / CASE, tmp_path / "out", Options(without=("turn_loop",)))
    assert not turned(apart)
    assert "primed(" not in apart.executor
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(PROMPT, max_new_tokens=40).tokens == greedy(
            FIXTURES / CASE / "model.onnx", PROMPT, 40, ()
        )


def test_a_division_of_whole_numbers_stays(tmp_path: Path) -> None:
    """By zero it would end the process, and nobody has asked for that iteration yet."""
    package = edited(tmp_path / "package", {})
    model = load(package / "termination.onnx")
    count = next(node for node in model.graph.node if "count" in node.output)
    count.output[0] = "count.1"
    model.graph.node.insert(
        list(model.graph.node).index(count) + 1, helper.make_node("Div", ["count.1", "one"], ["count"])
    )
    save(model, package / "termination.onnx")
    made = compile_package(package, tmp_path / "out")
    assert said(made) == "turn_loop: the loop stays as it is: 'termination' has Div, which values may be wrong for"
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        assert loaded.generate(PROMPT, max_new_tokens=20).tokens == greedy(
            FIXTURES / CASE / "model.onnx", PROMPT, 20, ()
        )


def test_extents_that_a_value_decides_stay(tmp_path: Path) -> None:
    """Zeros would make nothing, of which the first entry is asked: batches and prompts would fail."""
    package = edited(tmp_path / "package", {})
    model = load(package / "termination.onnx")
    count = next(node for node in model.graph.node if "count" in node.output)
    count.output[0] = "count.1"
    model.graph.initializer.append(helper.make_tensor("first", TensorProto.INT64, [1], [0]))
    nodes = [
        helper.make_node(
            "ConstantOfShape", ["limit"], ["zeros"], value=helper.make_tensor("", TensorProto.INT64, [1], [0])
        ),
        helper.make_node("Gather", ["zeros", "first"], ["nothing"]),
        helper.make_node("Add", ["count.1", "nothing"], ["count"]),
    ]
    at = list(model.graph.node).index(count) + 1
    for node in reversed(nodes):
        model.graph.node.insert(at, node)
    save(model, package / "termination.onnx")
    made = compile_package(package, tmp_path / "out")
    assert said(made).endswith("'termination' has ConstantOfShape of extents by 'limit', which values may be wrong for")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        rows = [PROMPT, PROMPT[::-1]]
        found = [row.tokens for row in loaded.generate(batch=rows, max_new_tokens=20).rows]
        assert found == [greedy(FIXTURES / CASE / "model.onnx", row, 20, ()) for row in rows]


def test_a_guard_that_is_read_behind_the_run_keeps_its_storage(tmp_path: Path) -> None:
    package = edited(tmp_path / "package", {})
    document = read_document(package)
    body = document["pipeline"]["workflow"]["steps"][0]["steps"]
    body.append(body.pop(0))
    write_document(package, document)
    made = compile_package(package, tmp_path / "out")
    assert said(made).endswith("cell 'active' is read behind the run that would write over it")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        result = model.run({"request.input_ids": np.array([PROMPT]), "request.max_iterations": np.array([20])})
        assert result["tokens"][0].tolist() == greedy(FIXTURES / CASE / "model.onnx", PROMPT, 20, ())
