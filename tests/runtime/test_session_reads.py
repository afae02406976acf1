"""Session cells that no loop carries: a step reads what the session holds where it names the initializer (3.8)."""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.driver import check_package

from tests.flow_packages import add, flow_package, session_cell
from tools.fixtures.document import Document, application, emit, literal, onnx, output, sequence, tensor, write_document

ROW, ROW_FLAG = tensor("int64", 1, rows=True), tensor("bool", 1, rows=True)


def inputs(**values: int) -> dict[str, Any]:
    return {name: np.array([values.get(name, 0)]) for name in "abnm"}


def test_a_step_that_reads_the_initializer_reads_the_session(tmp_path: Path) -> None:
    """Nothing writes the cell but its initializer: the first turn's value stays."""
    steps = [add("a", "b", "sum"), emit("sum", "out")]
    compile_package(flow_package(tmp_path / "p", steps, {"kept": session_cell("a")}), out=tmp_path / "c")
    with genai_runtime.load(tmp_path / "c") as model:
        assert model.run(inputs(a=10, b=1), session="s")["out"].tolist() == [11]
        assert model.run(inputs(a=99, b=2), session="s")["out"].tolist() == [12]
        assert model.run(inputs(a=99, b=2))["out"].tolist() == [101]
        assert model.run(inputs(a=99, b=2), session="t")["out"].tolist() == [101]


def group_package(folder: Path, steps: list[Document], **aliases: Document) -> Path:
    """A cell `total` that only its service group carries through component `add`: port a -> sum."""
    cell = {
        "contract": ROW, "scope": "session", "initializer": "a", "recurrence": {"kind": "invariant"},
        "management": "runtime", "release_boundary": "session", "service_group": "kept",
        "session": {"policy": "exclusive"},
    }  # fmt: skip
    ports = aliases or {"total": {"input": "a", "output": "sum"}}
    group = {"kind": "recurrent", "layout": "flat", "update": {"kind": "replace"}, "ports": {"add": ports}}
    state = dict.fromkeys(ports, cell)
    serving = {"active": "package.true", "done": "package.true", "accepted_len": "n",
               "state_service": {"groups": {"kept": group}}}  # fmt: skip
    served: dict[str, Document] = {
        "inputs": {name: application(ROW, name) for name in "abn"} | {"package.true": literal(ROW_FLAG, True)},
        "outputs": {"out": output(ROW)},
        "components": {"add": onnx("add.onnx", {"a": ROW, "b": ROW}, {"sum": ROW})},
    }
    path = flow_package(folder, steps, state, serving=serving, **served)
    file = path / "inference_metadata.yaml"
    text = file.read_text("utf-8").replace("session_state_lease", "session_state_lease, serving_service_contract")
    file.write_text(text, "utf-8")
    return path


def test_a_cell_that_only_its_group_carries(tmp_path: Path) -> None:
    """a + b comes back as the cell: a running total from turn to turn."""
    folder = group_package(tmp_path / "p", [add("a", "b", "sum"), emit("sum", "out")])
    compile_package(folder, out=tmp_path / "c")
    with genai_runtime.load(tmp_path / "c") as model:
        totals = [model.run(inputs(a=10, b=each), session="s")["out"].tolist() for each in (1, 2, 3)]
        assert totals == [[11], [13], [16]]
        assert model.run(inputs(a=10, b=5))["out"].tolist() == [15]
        model.restore("t", model.checkpoint("s"))
        assert model.run(inputs(a=0, b=4), session="t")["out"].tolist() == [20]


def test_two_cells_behind_one_input_are_refused(tmp_path: Path) -> None:
    steps = [add("a", "b", "sum"), emit("sum", "out")]
    state = {"first": session_cell("a"), "second": session_cell("a")}
    with pytest.raises(CompileError) as refused:
        compile_package(flow_package(tmp_path / "p", steps, state), out=tmp_path / "c")
    assert [each.code for each in refused.value.problems] == ["shared-initializer"]


def test_a_group_that_writes_inside_a_region_is_refused(tmp_path: Path) -> None:
    inner = {"kind": "branch", "predicate": "choice", "cases": {
        "true": sequence(add("a", "b", "sum"), emit("sum", "out")), "false": sequence(emit("a", "out"))}}  # fmt: skip
    folder = group_package(tmp_path / "p", [inner])
    file = folder / "inference_metadata.yaml"
    document = yaml.safe_load(file.read_text("utf-8"))
    document["pipeline"]["workflow"]["inputs"]["choice"] = literal(tensor("bool"), True)
    write_document(folder, document)
    assert [each.code for each in check_package(folder)] == ["unknown-value"]
