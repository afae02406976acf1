"""A loop with the runtime's token policy is taken only in the very form of section 10.3; every deviation is refused."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_runtime import RequestError

from tests.conftest import FIXTURES
from tests.reference.interpreter import interpret
from tests.reference.values import Rows

Workflow = dict[str, Any]
Edit = Callable[[Workflow], object]
PROMPT = np.array([[7, 30, 12, 4]])


def loop(workflow: Workflow) -> dict[str, Any]:
    return workflow["steps"][0]  # type: ignore[no-any-return]


def step(workflow: Workflow, at: int) -> dict[str, Any]:
    return loop(workflow)["steps"][at]  # type: ignore[no-any-return]


def carry(workflow: Workflow, cell: str) -> dict[str, Any]:
    return next(each for each in loop(workflow)["carried"] if each["cell"] == cell)


def without(workflow: Workflow, cell: str) -> None:
    loop(workflow)["carried"].remove(carry(workflow, cell))


def swap(table: dict[str, Any], one: str, other: str) -> None:
    table[one], table[other] = table[other], table[one]


def swap_carries(workflow: Workflow) -> None:
    one, other = carry(workflow, "decoder_kv.0000"), carry(workflow, "decoder_kv.0002")
    swap({"a": one, "b": other}, "a", "b")
    one["next"], other["next"] = other["next"], one["next"]


def swap_ports(workflow: Workflow) -> None:
    ports = workflow["serving"]["state_service"]["groups"]["decoder_kv"]["ports"]["decoder"]
    one, other = ports["decoder_kv.0000"], ports["decoder_kv.0002"]
    one["output"], other["output"] = other["output"], one["output"]


DEVIATIONS: dict[str, Edit] = {
    "emit without a guard": lambda w: step(w, 2).pop("when"),
    "emit guarded by another cell": lambda w: step(w, 2).update(when="done"),
    "emit of another axis": lambda w: step(w, 2).update(axis=0),
    "no emit": lambda w: loop(w)["steps"].pop(2),
    "rows that start inactive": lambda w: w["inputs"]["package.active"].update(default=False),
    "another predicate": lambda w: loop(w).update(continue_when="done"),
    "liveness from elsewhere": lambda w: carry(w, "active").update(next="body.done"),
    "a sequence that stands": lambda w: carry(w, "sequence").update(next="sequence"),
    "no sequence": lambda w: without(w, "sequence"),
    "a cache that is not carried": lambda w: without(w, "decoder_kv.0001"),
    "caches of two layers exchanged by their carries": swap_carries,
    "caches exchanged in the table of ports": swap_ports,
    "caches exchanged where they are read": lambda w: swap(
        step(w, 0)["inputs"], "past_key_values.0.key", "past_key_values.1.key"
    ),
    "a cache that starts as ones": lambda w: w["inputs"]["package.state_seed"].update(default=1.0),
    "a mask bound to the prompt": lambda w: step(w, 0)["inputs"].update(attention_mask="request.input_ids"),
    "another way to end": lambda w: loop(w).update(termination="predicate"),
    "a setup": lambda w: loop(w).update(setup=[copy.deepcopy(step(w, 0))]),
}


def edited(folder: Path, edit: Edit) -> Path:
    package = folder / "package"
    shutil.copytree(FIXTURES / "tiny-runtime-policy", package)
    file = package / "inference_metadata.yaml"
    document = yaml.safe_load(file.read_text("utf-8"))
    edit(document["pipeline"]["workflow"])
    file.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return package


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(edited(tmp_path, DEVIATIONS[name]), out=tmp_path / "out.compiled")
    assert not (tmp_path / "out.compiled").exists()
    assert all(each.path for each in refused.value.problems), refused.value


def test_a_cell_of_the_loop_read_behind_it_is_refused_for_what_it_is(tmp_path: Path) -> None:
    """2.9 lets a step read it; the runtime, which drives the loop as a whole, has no value for it."""

    def behind(workflow: Workflow) -> None:
        contract = workflow["state"]["accepted_len"]["contract"]
        workflow["outputs"]["count"] = {"contract": contract, "role": "tensor", "stage": "pre_adapter"}
        workflow["steps"].append({"kind": "emit", "value": "accepted_len", "output": "count", "mode": "replace"})

    with pytest.raises(CompileError) as refused:
        compile_package(edited(tmp_path, behind), out=tmp_path / "out.compiled")
    (problem,) = refused.value.problems
    assert problem.path == "pipeline.workflow.steps[1].value"
    assert "drives as a whole" in problem.what


def test_two_emits_into_two_outputs_are_of_the_form(tmp_path: Path) -> None:
    def second(workflow: Workflow) -> None:
        workflow["outputs"]["again"] = copy.deepcopy(workflow["outputs"]["tokens"])
        loop(workflow)["steps"].append(dict(step(workflow, 2), output="again"))

    package = edited(tmp_path, second)
    compile_package(package, out=tmp_path / "out.compiled")
    inputs = {"request.input_ids": PROMPT, "request.max_iterations": np.array([6])}
    theirs = interpret(package, inputs).outputs
    with genai_runtime.load(tmp_path / "out.compiled") as model:
        ours = model.run(inputs)
        for output in ("tokens", "again"):
            rows = theirs[output]
            assert isinstance(rows, Rows)
            assert [each.tolist() for each in ours.rows(output) if each is not None] == [
                each.tolist() for each in rows.items if each is not None
            ]


def test_a_prompt_over_the_declared_capacity_is_refused_as_the_document_says(tmp_path: Path) -> None:
    package = edited(tmp_path, lambda w: w["inputs"]["package.sequence_capacity"].update(default=3))
    compile_package(package, out=tmp_path / "out.compiled")
    with genai_runtime.load(tmp_path / "out.compiled") as model, pytest.raises(RequestError) as refused:
        model.run({"request.input_ids": PROMPT})
    assert refused.value.code == "context-exceeded"
    assert "the prompt has 4 tokens; the context holds 3" in refused.value.what


def test_values_that_the_runtime_forms_can_not_be_given(model: Callable[[str], genai_runtime.Model]) -> None:
    with pytest.raises(RequestError) as refused:
        model("tiny-runtime-policy").run({"request.input_ids": PROMPT, "attention_mask": np.ones((1, 4), np.int64)})
    assert refused.value.code == "owned-input"
