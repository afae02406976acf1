"""Rules about rows: growth row by row (V333), a selection of rows (V339); and bindings without a source (V340)."""

from typing import Any

import numpy as np
import onnx
import pytest
from genai_compiler import CompileError
from genai_runtime import ExecutionError, Model, RequestError

from tests.property.kinds import contract as of
from tests.property.kinds import expanded, mat
from tests.property.test_findings import ONE, ROW, TRUE, TWO, Made, given, made, refused
from tools.fixtures.document import application, cell, emit, invoke, literal, loop

__all__ = ["made"]

SELECTION = {
    "contract": {**of(ROW), "shape": ["batch"]},
    "role": {"kind": "runtime", "version": "1.0", "role": "row_selection"},
    "source": {"kind": "request"},
    "required": True,
}


# ---- V333 ------------------------------------------------------------------------------------------------------------


def grown(made: Made) -> Any:
    """A cell that grows by one column. Nobody states the contract of the increment, and the graph gives it no rank."""
    wide = mat("int64", "?")
    contract = {**of(wide, "c.any"), "shape": ["batch", "grows"]}
    inputs = {"x": application(contract, "x"), "by": application(of(ROW), "by"), "t": TRUE, "n": TWO}
    inputs["most"] = literal(of(ONE), 9)
    inputs["column"] = application({**of(wide, "c.one"), "shape": ["batch", 1]}, "column")
    components = {"step": made.onnx("identity", ROW), "join": made.onnx("concat", wide, wide)}
    for each in components.values():
        each.pop("ports")
    file = made.bench.package / components["step"]["implementation"]["artifact"]
    graph = onnx.load(file)
    graph.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(graph, file)
    law = {"kind": "growing", "axis": 1, "increment": "increment", "max": "most"}
    steps = [
        invoke("step", {"x0": "by"}, {"y0": "increment"}),
        loop([invoke("join", {"x0": "c", "x1": "column"}, {"y0": "next"})], "t", "n", {"c": "next"}),
        emit("c", "out"),
    ]
    return made.subject(inputs, {"out": wide}, components, steps, state={"c": cell(contract, "x", law)})


def test_a_cell_outside_a_group_grows_by_one_number(made: Made) -> None:
    """V333: one increment a row needs a service group. With one row the same vector is one number."""
    subject = grown(made)
    assert subject.judge(given(x=[[1]], by=[1], column=[[7]])) is not None
    failure = refused(subject, given(x=[[1], [2]], by=[1, 1], column=[[7], [8]]), "recurrence")
    assert "V333" in str(failure)
    assert isinstance(failure, ExecutionError)


# ---- V339 ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(made: Made) -> Model:
    """out = x * 3 + 1 a row; `pairs` holds two entries a row; `same` belongs to no row."""
    pairs = expanded(ROW, 2)
    inputs = {"x": application(of(ROW), "x"), "pairs": application(of(pairs), "pairs"),
              "same": application(of(ONE), "same"), "order": SELECTION}  # fmt: skip
    steps = [invoke("step", {"x0": "x"}, {"y0": "y"}), emit("y", "out"), emit("order", "order"), emit("same", "same"),
             emit("pairs", "two")]  # fmt: skip
    outputs = {"out": ROW, "order": ROW, "same": ONE, "two": pairs}
    found: Model = made.subject(inputs, outputs, {"step": made.onnx("affine", ROW)}, steps).model
    return found


X, PAIRS = np.array([4, 5, 6]), np.array([1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1], [0, 0, 2, 2]], ids=str)
def test_a_selection_re_orders_every_value_that_has_rows(model: Model, order: list[int]) -> None:
    """What plain indexing gives, before anything is computed; rows may be left out and stand twice."""
    chosen = model.run({"x": X, "pairs": PAIRS, "same": [9], "order": np.array(order)})
    alone = model.run({"x": X[order], "pairs": PAIRS.reshape(3, 2)[order].reshape(-1), "same": [9]})
    assert chosen["order"].tolist() == order
    assert chosen["same"].tolist() == [9]
    for output in ("out", "two"):
        np.testing.assert_array_equal(chosen[output], alone[output])
    np.testing.assert_array_equal(chosen["out"], (X[order] * 3 + 1) % 97)


def test_where_nobody_selects_the_rows_stay(model: Model) -> None:
    """3.11: the runtime mints the permutation."""
    assert model.run({"x": X, "pairs": PAIRS, "same": [9]})["order"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("order", "code"),
    [([0, 3], "row-selection"), ([-1], "row-selection"), ([[0, 1, 2]], "wrong-rank"), ([0.0, 1.0, 2.0], "wrong-rank")],
)
def test_a_selection_of_rows_that_are_not_there_is_refused(model: Model, order: Any, code: str) -> None:
    with pytest.raises(RequestError) as refusal:
        model.run({"x": X, "pairs": PAIRS, "same": [9], "order": np.array(order)})
    assert refusal.value.code == code
    assert ("V339" in refusal.value.what) == (code == "row-selection")


# ---- V340 ------------------------------------------------------------------------------------------------------------


def copying(made: Made, port: str) -> Any:
    """A binding component with an input `a`, of which a step binds the output `port`."""
    ports = {"inputs": {"a": of(ROW)}, "outputs": {port: of(ROW)}}
    steps = [invoke("join", {"a": "x"}, {port: "y"}), emit("y", "out")]
    components = {"join": {"implementation": {"kind": "binding"}, "ports": ports}}
    return made.subject({"x": application(of(ROW), "x")}, {"out": ROW}, components, steps)


def test_a_binding_copies_what_is_bound_under_the_same_name(made: Made) -> None:
    assert copying(made, "a").judge(given(x=[1, 2])) is not None
    with pytest.raises(CompileError) as refusal:
        copying(made, "b")
    assert [each.code for each in refusal.value.problems] == ["binding-without-source"]
