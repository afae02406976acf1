"""What only a run can find out: ports whose graph says no rank, and cells whose varying axis the document numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from genai_runtime import ExecutionError, RequestError
from genai_runtime.cells import growing
from genai_runtime.values import to_value
from onnx import TensorProto, helper

from tests.flow_packages import ONE, add, below, flow_package, traced
from tests.reference.interpreter import interpret
from tests.reference.values import ReferenceError
from tests.two_routes import TwoRoutes
from tools.fixtures.document import Document, cell, emit, invoke, literal, loop, tensor
from tools.fixtures.document import onnx as component

STEADY = {"a": np.array([3]), "b": np.array([5]), "n": np.array([9]), "m": np.array([2])}
Ports = Mapping[str, Sequence[int | str] | None]


def graph(folder: Path, name: str, nodes: Sequence[onnx.NodeProto], inputs: Ports, outputs: Ports) -> None:
    """A graph of int64 (`live` ends a name of bool) whose ports have these shapes; None: it says no rank."""
    sides = [
        [
            helper.make_tensor_value_info(port, TensorProto.BOOL if port.endswith("live") else TensorProto.INT64, shape)
            for port, shape in side.items()
        ]
        for side in (inputs, outputs)
    ]
    made = helper.make_model(
        helper.make_graph(nodes, name, *sides), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(made, folder / f"{name}.onnx")


def routes(tmp_path: Path, components: Document, steps: Sequence[Document], **more: Any) -> TwoRoutes:
    folder = tmp_path / "package"
    flow_package(folder, steps, more.pop("state", None), components=components, **more)
    compile_package(folder, out=tmp_path / "compiled")
    return TwoRoutes(genai_runtime.load(tmp_path / "compiled", threads=1), folder)


def open_identity(tmp_path: Path, **components: Document) -> Document:
    """A component `pass` without ports, of a graph that says no rank."""
    (tmp_path / "package").mkdir()
    graph(tmp_path / "package", "pass", [helper.make_node("Identity", ["x"], ["y"])], {"x": None}, {"y": None})
    return {"pass": {"implementation": {"kind": "onnx", "artifact": "pass.onnx"}}, **components}


def test_a_port_whose_graph_says_no_rank_takes_and_feeds_any(tmp_path: Path) -> None:
    """2.4: the graph of inferred ports says nothing, so nothing is contradicted."""
    steps = [invoke("pass", {"x": "a"}, {"y": "t"}), add("t", "b", "u"), emit("u", "out"), traced("t")]
    made = routes(tmp_path, open_identity(tmp_path), steps)
    assert made.agree(STEADY)["out"].tolist() == [8]


def test_it_is_appended_on_the_last_axis_of_its_output(tmp_path: Path) -> None:
    """3.6: an append without an axis takes the last one; the value's rank is its output's (V266)."""
    steps = [
        loop([invoke("pass", {"x": "a"}, {"y": "t"}), emit("t", "wide", "append")], "package.true", "m", {}),
    ]  # fmt: skip
    outputs = {"wide": {"contract": tensor("int64", 1, "n"), "role": "tensor", "stage": "pre_adapter"}}
    inputs = {"a": {"contract": tensor("int64", 1, 1), "role": {"kind": "opaque"},
                    "source": {"kind": "application", "name": "a"}}}  # fmt: skip
    made = routes(tmp_path, open_identity(tmp_path), steps, outputs=outputs, inputs=inputs)
    assert made.agree({**STEADY, "a": np.array([[3]])})["wide"].tolist() == [[3, 3]]


def test_a_predicate_of_no_known_rank_may_have_an_entry_a_row(tmp_path: Path) -> None:
    """3.4: rows that are not live keep their cells, also where only the run shows that the predicate has rows."""
    rows, flags = tensor("int64", "batch", rows=True), tensor("bool", "batch", rows=True)
    (tmp_path / "package").mkdir()
    graph(tmp_path / "package", "open", [helper.make_node("Identity", ["x.live"], ["y.live"])],
          {"x.live": None}, {"y.live": None})  # fmt: skip
    graph(
        tmp_path / "package", "more", [helper.make_node("Add", ["x", "x"], ["y"])], {"x": ["batch"]}, {"y": ["batch"]}
    )
    components = {
        "open": {"implementation": {"kind": "onnx", "artifact": "open.onnx"}},
        "more": component("more.onnx", {"x": rows}, {"y": rows}),
    }
    inputs = {
        name: {"contract": contract, "role": {"kind": "opaque"}, "source": {"kind": "application", "name": name}}
        for name, contract in (("a", rows), ("live", flags))
    }
    body = [invoke("more", {"x": "c"}, {"y": "c.next"})]
    steps = [invoke("open", {"x.live": "live"}, {"y.live": "go"}), loop(body, "go", "m", {"c": "c.next"}),
             emit("c", "rows")]  # fmt: skip
    outputs = {"rows": {"contract": rows, "role": "tensor", "stage": "pre_adapter"}}
    made = routes(tmp_path, components, steps, state={"c": cell(rows, "a")}, inputs=inputs, outputs=outputs)
    given = {**STEADY, "a": np.array([3, 4]), "live": np.array([True, False])}
    assert made.agree(given)["rows"].tolist() == [12, 4]


def test_a_rank_that_a_contract_promises_is_held_where_it_counts(tmp_path: Path) -> None:
    """3.3, V327: the graph says no rank, the contract says 2, and the value has 1."""
    square = tensor("int64", "s", "s")
    components = open_identity(tmp_path, square=component("pass.onnx", {"x": square}, {"y": square}))
    steps = [invoke("pass", {"x": "a"}, {"y": "t"}), invoke("square", {"x": "t"}, {"y": "u"}), emit("a", "out")]
    outputs = {"u": {"contract": square, "role": "tensor", "stage": "pre_adapter"}}
    made = routes(tmp_path, components, [*steps, emit("u", "u")], outputs=outputs)
    with pytest.raises(ExecutionError) as refusal:
        made.model.run(STEADY)
    assert (refusal.value.code, refusal.value.origin.split(" ")[1]) == ("wrong-rank", "pipeline.workflow.steps[1]")


# ---- a number on the axis that varies --------------------------------------------------------------------------------


def counted_cell(tmp_path: Path, size: int) -> TwoRoutes:
    """A cell int64 [2] that may vary: it gets an entry more an iteration. Then its extent goes to `out`, by a component
    whose contract says `size` and whose graph says nothing."""
    (tmp_path / "package").mkdir()
    graph(tmp_path / "package", "pair", [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], {"x": [1]}, {"y": [2]})
    longer = [helper.make_node("Concat", ["x", "more"], ["y"], axis=0)]
    graph(tmp_path / "package", "longer", longer, {"x": ["k"], "more": [1]}, {"y": ["j"]})
    graph(tmp_path / "package", "size", [helper.make_node("Shape", ["x"], ["y"])], {"x": ["k"]}, {"y": [1]})
    components: Document = {
        name: {"implementation": {"kind": "onnx", "artifact": f"{name}.onnx"}} for name in ("pair", "longer")
    }
    components["size"] = component("size.onnx", {"x": tensor("int64", size)}, {"y": ONE})
    law = {"kind": "bounded", "axis": 0, "max": "n"}
    body = [invoke("longer", {"x": "c", "more": "b"}, {"y": "c.next"})]
    steps = [invoke("pair", {"x": "a"}, {"y": "first"}), loop(body, "package.true", "m", {"c": "c.next"}),
             invoke("size", {"x": "c"}, {"y": "sized"}), emit("sized", "out")]  # fmt: skip
    return routes(tmp_path, components, steps, state={"c": cell(tensor("int64", 2), "first", law)})


def test_a_number_on_the_varying_axis_holds_at_the_entry_only(tmp_path: Path) -> None:
    """2.6: after two iterations the cell has four entries, whatever its contract says of the first value."""
    assert counted_cell(tmp_path, 4).agree(STEADY)["out"].tolist() == [4]


def test_no_check_is_left_out_because_of_it(tmp_path: Path) -> None:
    """3.3: the component's contract says two entries, and there are four."""
    made = counted_cell(tmp_path, 2)
    with pytest.raises(ReferenceError):
        interpret(made.package, STEADY)
    with pytest.raises(ExecutionError) as refusal:
        made.model.run(STEADY)
    assert refusal.value.code == "wrong-shape"
    assert made.agree({**STEADY, "m": np.array([0])})["out"].tolist() == [2]


# ---- controls and sources --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [[], [-1]], ids=str)
def test_a_bound_that_is_no_number_from_0_up_is_refused(tmp_path: Path, most: list[int]) -> None:
    """V329; the graph says no rank, so that only the run shows it."""
    (tmp_path / "package").mkdir()
    graph(tmp_path / "package", "pass", [helper.make_node("Identity", ["x"], ["y"])], {"x": ["k"]}, {"y": None})
    components = {"pass": {"implementation": {"kind": "onnx", "artifact": "pass.onnx"}}}
    inputs = {"most": {"contract": tensor("int64", "k"), "role": {"kind": "opaque"},
                       "source": {"kind": "application", "name": "most"}}}  # fmt: skip
    law = {"kind": "bounded", "axis": 0, "max": "bound"}
    steps = [invoke("pass", {"x": "most"}, {"y": "bound"}), loop([add("c", "b", "c.next")], "package.true", "m",
             {"c": "c.next"}), emit("c", "out")]  # fmt: skip
    made = routes(tmp_path, components, steps, state={"c": cell(ONE, "a", law)}, inputs=inputs)
    given = {**STEADY, "most": np.array(most, np.int64)}
    with pytest.raises(ReferenceError):
        interpret(made.package, given)
    with pytest.raises(ExecutionError) as refusal:
        made.model.run(given)
    assert refusal.value.code == "recurrence"


@pytest.mark.parametrize("by", [[], [-1]], ids=str)
def test_an_increment_that_is_no_number_from_0_up_is_refused(by: list[int]) -> None:
    """V329: a cell that gets shorter does not grow, even where somebody calls that a growth of -1."""
    three, two = (to_value(np.zeros(extent, np.int64)) for extent in (3, 2))
    increment, most = (to_value(np.array(each, np.int64)) for each in (by, [9]))
    with pytest.raises(ExecutionError, match="recurrence: the increment of cell 'c'"):
        growing("c", three, two, 0, increment, most, "", grouped=True)


def test_an_input_that_is_a_file_is_no_tensor_whatever_its_default(tmp_path: Path) -> None:
    """3.1: only a caller can give it a value; `default` is for literals and the application."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "table.bin").write_bytes(b"1")
    source = {"kind": "artifact", "path": "table.bin"}
    inputs = {"table": {**literal(ONE, 7), "source": source}}
    made = routes(tmp_path, {}, [emit("table", "out"), below("a", "b", "less")], inputs=inputs)
    with pytest.raises(ReferenceError):
        interpret(made.package, STEADY)
    with pytest.raises(RequestError) as refusal:
        made.model.run(STEADY)
    assert refusal.value.code == "missing-input"
    assert made.agree({**STEADY, "table": np.array([4])})["out"].tolist() == [4]


def test_an_induction_value_of_expanded_rows_has_an_entry_for_each(tmp_path: Path) -> None:
    """3.2, 3.4: rank 1 is filled to its resolved shape, and an expanded axis is the symbol times the factor."""
    rows = tensor("int64", "batch", rows=True)
    twice = {**tensor("int64", "batch"), "batch_layout": {"kind": "request_expanded", "axis": 0, "factor": 2}}
    inputs = {"a": {"contract": rows, "role": {"kind": "opaque"}, "source": {"kind": "application", "name": "a"}}}
    outputs = {"steps": {"contract": twice, "role": "tensor", "stage": "pre_adapter"}}
    (tmp_path / "package").mkdir()
    counting = {**loop([emit("i", "steps")], "package.true", "m", {}), "iteration": {"value": "i", "contract": twice}}
    made = routes(tmp_path, {}, [counting], inputs=inputs, outputs=outputs)
    assert made.agree({**STEADY, "a": np.array([3, 4])})["steps"].tolist() == [1, 1, 1, 1]
