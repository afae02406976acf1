"""Graphs that do not say the ranks of their ports: legal, and everything that needs a rank finds it elsewhere.

The interpreter of documents knows no types before it runs; what it publishes, the executor publishes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Options
from genai_runtime import ExecutionError
from onnx import TensorProto, helper

from tests.reference.interpreter import interpret
from tests.reference.values import ReferenceError
from tests.two_routes import TwoRoutes
from tools.fixtures.document import (
    Document,
    application,
    branch,
    cell,
    emit,
    invoke,
    literal,
    loop,
    output,
    package,
    tensor,
    write_document,
)

CAPABILITIES = ["workflow_ssa", "typed_emit", "linear_effects", "nested_control_flow", "bounded_state_recurrence"]
WIDE, ROW, ONE = tensor("int64", "batch", "width", rows=True), tensor("int64", "batch", rows=True), tensor("int64")
X = np.arange(6).reshape(2, 3)


def graph(file: Path, dtype: int, *nodes: onnx.NodeProto) -> None:
    """A graph from x to y, of which nobody knows the ranks; k is [1, 2], s and a are [1]."""
    weights = [helper.make_tensor(n, TensorProto.INT64, [1], [v]) for n, v in (("s", 1), ("e", 99), ("a", 1))]
    ends = [[helper.make_tensor_value_info(name, dtype, None)] for name in "xy"]
    made = helper.make_graph(list(nodes), "g", *ends, weights)
    onnx.save(helper.make_model(made, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), file)


def written(
    folder: Path, inputs: Document, steps: Sequence[Document], state: Document | None = None, **outputs: Document
) -> Path:
    """A package of three graphs that declare no ports: `same`, `flags` (bool), `more` (one column less)."""
    folder.mkdir(exist_ok=True)
    same = helper.make_node("Identity", ["x"], ["y"])
    graph(folder / "same.onnx", TensorProto.INT64, same)
    graph(folder / "flags.onnx", TensorProto.BOOL, same)
    graph(folder / "double.onnx", TensorProto.INT64, helper.make_node("Add", ["x", "x"], ["y"]))
    graph(folder / "drop.onnx", TensorProto.INT64, helper.make_node("Slice", ["x", "s", "e", "a"], ["y"]))
    components: Document = {
        name: {"implementation": {"kind": "onnx", "artifact": f"{name}.onnx"}}
        for name in ("same", "flags", "double", "drop")
    }
    out = {name: output(each) for name, each in outputs.items()}
    write_document(folder, package(CAPABILITIES, inputs, out, components, steps, state=state or {}))
    return folder


def agree(package: Path, inputs: dict[str, Any]) -> genai_runtime.Result:
    """The result of the executor, with islands and without, after holding it against the interpreter's."""
    for without in (("fuse_islands", "prove_extents"), ()):
        out = compile_package(package, options=Options(force=True, without=without)).out
        assert out is not None
        with genai_runtime.load(out, threads=1) as model:
            result = TwoRoutes(model, package).agree(inputs)
    return result


def test_values_without_a_rank_are_appended_on_their_last_axis(tmp_path: Path) -> None:
    steps = [
        invoke("same", {"x": "x"}, {"y": "y"}),
        invoke("double", {"x": "y"}, {"y": "z"}),
        emit("y", "all", "append"),
        emit("z", "all", "append"),
        emit("z", "last"),
    ]
    found = agree(written(tmp_path / "p", {"x": application(WIDE, "x")}, steps, all=tensor("int64", "b", "w"),
                          last=WIDE), {"x": X})  # fmt: skip
    np.testing.assert_array_equal(found["all"], np.concatenate([X, 2 * X], axis=1))


@pytest.mark.parametrize("live", [[True, False], [False, True], [True, True], [False, False]], ids=str)
def test_a_mask_without_a_rank_still_keeps_the_rows_that_are_not_live(tmp_path: Path, live: list[bool]) -> None:
    inputs = {"x": application(WIDE, "x"), "live": application(tensor("bool", "batch", rows=True), "live"),
              "times": application(ONE, "times")}  # fmt: skip
    steps = [
        invoke("flags", {"x": "live"}, {"y": "mask"}),
        loop([invoke("double", {"x": "c"}, {"y": "next"})], "mask", "times", {"c": "next"}),
        emit("c", "out"),
    ]
    package = written(tmp_path / "p", inputs, steps, {"c": cell(WIDE, "x")}, out=WIDE)
    found = agree(package, {"x": X, "live": np.array(live), "times": np.array(3)})
    np.testing.assert_array_equal(found["out"], np.where(np.array(live)[:, None], X * 8, X))


def test_a_mask_whose_graph_knows_no_rank_behind_one_that_does(tmp_path: Path) -> None:
    """Nothing else here is open: such a mask was once taken for one flag, and every row went on."""
    inputs = {"x": application(WIDE, "x"), "live": application(tensor("bool", "batch", rows=True), "live"),
              "times": literal(ONE, 3)}  # fmt: skip
    steps = [
        invoke("flags", {"x": "live"}, {"y": "mask"}),
        loop([invoke("double", {"x": "c"}, {"y": "next"})], "mask", "times", {"c": "next"}),
        emit("c", "out"),
    ]
    package = written(tmp_path / "p", inputs, steps, {"c": cell(WIDE, "x")}, out=WIDE)
    for name, rank, sides in (("flags", 1, ("input",)), ("double", 2, ("input", "output"))):
        model = onnx.load(package / f"{name}.onnx")
        for side in sides:
            for axis in range(rank):
                getattr(model.graph, side)[0].type.tensor_type.shape.dim.add().dim_param = f"d{axis}"
        onnx.save(model, package / f"{name}.onnx")
    found = agree(package, {"x": X, "live": np.array([True, False])})
    np.testing.assert_array_equal(found["out"], [X[0] * 8, X[1]])


def test_a_mask_of_two_axes_is_none(tmp_path: Path) -> None:
    """V330, which a contract would have said before the run."""
    inputs = {"x": application(WIDE, "x"), "live": application(tensor("bool", "batch", 1, rows=True), "live"),
              "times": literal(ONE, 3)}  # fmt: skip
    steps = [
        invoke("flags", {"x": "live"}, {"y": "mask"}),
        loop([invoke("double", {"x": "c"}, {"y": "next"})], "mask", "times", {"c": "next"}),
    ]
    out = compile_package(written(tmp_path / "p", inputs, steps, {"c": cell(WIDE, "x")})).out
    assert out is not None
    with genai_runtime.load(out) as model, pytest.raises(ExecutionError, match="loop-predicate"):
        model.run({"x": X, "live": np.array([[True], [False]])})


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_output_of_values_without_a_rank(tmp_path: Path, flag: bool) -> None:
    inputs = {"x": application(WIDE, "x"), "flag": application(tensor("bool"), "flag")}
    cases = {"true": invoke("double", {"x": "x"}, {"y": "a"}), "false": invoke("same", {"x": "x"}, {"y": "b"})}
    steps = [
        branch("flag", cases, outputs={"y": {"cases": {"true": "a", "false": "x"}}}),
        emit("y", "out", "append"),
        emit("x", "out", "append"),
    ]
    found = agree(written(tmp_path / "p", inputs, steps, out=WIDE | {"shape": ["batch", "wider"]}),
                  {"x": X, "flag": np.array(flag)})  # fmt: skip
    np.testing.assert_array_equal(found["out"], np.concatenate([X * (1 + flag), X], axis=1))


# ---- controls of a recurrence (V329) ---------------------------------------------------------------------------------


def recurring(folder: Path, law: Document, body: str, **controls: Document) -> Path:
    inputs = {"x": application(WIDE, "x"), "go": literal(tensor("bool"), True), "n": literal(ONE, 2),
              "given": application(tensor("int64", "any"), "given"), **controls}  # fmt: skip
    steps = [
        invoke("same", {"x": "given"}, {"y": "control"}),
        loop([invoke(body, {"x": "c"}, {"y": "next"})], "go", "n", {"c": "next"}),
        emit("c", "out"),
    ]
    return written(folder, inputs, steps, {"c": cell(WIDE, "x", law)}, out=WIDE)


def refused(package: Path, given: list[int]) -> None:
    inputs = {"x": X, "given": np.array(given, np.int64)}
    with pytest.raises((ReferenceError, ValueError)):
        interpret(package, inputs)
    out = compile_package(package, options=Options(force=True)).out
    assert out is not None
    with genai_runtime.load(out, threads=1) as model, pytest.raises(ExecutionError) as failure:
        model.run(inputs)
    assert failure.value.code == "recurrence"
    assert "from 0 up" in str(failure.value)


@pytest.mark.parametrize("given", [[], [-1], [-3, 9]], ids=str)
def test_a_maximum_is_a_number_and_not_negative(tmp_path: Path, given: list[int]) -> None:
    refused(recurring(tmp_path / "p", {"kind": "bounded", "axis": 1, "max": "control"}, "same"), given)


def test_a_growing_cell_does_not_shrink(tmp_path: Path) -> None:
    """An increment of -1 takes a column away; with a literal one, too."""
    law = {"kind": "growing", "axis": 1, "increment": "control", "max": "most"}
    refused(recurring(tmp_path / "p", law, "drop", most=literal(ONE, 9)), [-1])
    law = {"kind": "growing", "axis": 1, "increment": "less", "max": "most"}
    refused(recurring(tmp_path / "q", law, "drop", most=literal(ONE, 9), less=literal(ONE, -1)), [0])
