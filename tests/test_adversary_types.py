"""Graphs that say neither the element types nor the ranks of what they give: legal, and what they give may be wrong.

The interpreter of documents looks at every value it has; what it refuses, the executor refuses, by the step's name.
"""

import re
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
from tools.fixtures.document import (
    onnx as component,
)

CAPABILITIES = ["workflow_ssa", "typed_emit", "linear_effects", "nested_control_flow", "bounded_state_recurrence",
                "emit_valid_length", "streaming_emit"]  # fmt: skip
ONE, ROW, WIDE = tensor("int64"), tensor("int64", "batch", rows=True), tensor("int64", "batch", "width", rows=True)
LIVE = tensor("bool", "batch", rows=True)
X = np.arange(6).reshape(2, 3)
FLOAT = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
WHOLE = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT64)]
SIZE = [helper.make_node("Size", ["x"], ["y"])]
DEEPER = [helper.make_node("Unsqueeze", ["x", "last"], ["y"])]
ODDLY: Document = {
    "x": application(WIDE, "x"), "row": application(ROW, "row"), "one": application(ONE, "one"),
    "live": literal(tensor("bool"), True), "two": literal(ONE, 2), "most": literal(ONE, 99),
}  # fmt: skip


def graph(folder: Path, name: str, nodes: Sequence[onnx.NodeProto]) -> None:
    """A graph from x, int64 of any rank, to y, of which it says nothing at all."""
    x, y = helper.make_tensor_value_info("x", TensorProto.INT64, None), helper.make_empty_tensor_value_info("y")
    last = helper.make_tensor("last", TensorProto.INT64, [1], [-1])
    made = helper.make_graph(list(nodes), name, [x], [y], [last])
    onnx.save(
        helper.make_model(made, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), folder / f"{name}.onnx"
    )


def written(folder: Path, steps: Sequence[Document], state: Document | None = None, **more: Document) -> Path:
    """A package of `float`, `whole`, `deeper` and `size`, whose ports nothing declares, and of components in `more`."""
    folder.mkdir()
    for name, nodes in (("float", FLOAT), ("whole", WHOLE), ("deeper", DEEPER), ("size", SIZE)):
        graph(folder, name, nodes)
    components: Document = {
        name: {"implementation": {"kind": "onnx", "artifact": f"{name}.onnx"}}
        for name in ("float", "whole", "deeper", "size")
    }
    outputs = {"wide": output(WIDE), "rows": output(ROW), "single": output(ONE)}
    document = package(CAPABILITIES, ODDLY, outputs, {**components, **more}, steps, state=state or {})
    write_document(folder, document)
    return folder


def given(**changed: Any) -> dict[str, Any]:
    return {"x": X, "row": np.array([1, 2]), "one": np.array(1), **changed}


def refused(package: Path, code: str, said: str, **changed: Any) -> None:
    """Both routes refuse, whatever passes are on."""
    with pytest.raises((ReferenceError, ValueError, IndexError)):
        interpret(package, given(**changed))
    for without in ((), ("fuse_islands", "prove_extents")):
        out = compile_package(package, options=Options(force=True, without=without)).out
        assert out is not None
        with genai_runtime.load(out, threads=1) as model, pytest.raises(ExecutionError, match=said) as failure:
            model.run(given(**changed))
        assert failure.value.code == code
        assert re.match(r"inference_metadata\.\w+:\d+ pipeline\.workflow\.steps\[", failure.value.origin)


def test_what_is_as_it_should_be_passes(tmp_path: Path) -> None:
    port = component("whole.onnx", {"x": WIDE}, {"y": WIDE})
    steps = [
        invoke("whole", {"x": "x"}, {"y": "y"}),
        invoke("typed", {"x": "y"}, {"y": "z"}),
        loop([invoke("whole", {"x": "c"}, {"y": "next"})], "live", "two", {"c": "next"}),
        emit("c", "wide"),
    ]
    made = written(tmp_path / "p", steps, {"c": cell(WIDE, "z")}, typed=port)
    out = compile_package(made).out
    assert out is not None
    with genai_runtime.load(out, threads=1) as model:
        np.testing.assert_array_equal(TwoRoutes(model, made).agree(given())["wide"], X)


CELL = {"c": cell(WIDE, "x")}
AS_FLOAT = invoke("float", {"x": "x"}, {"y": "y"})


def test_a_cell_does_not_start_as_another_type(tmp_path: Path) -> None:
    steps = [AS_FLOAT, loop([invoke("whole", {"x": "x"}, {"y": "n"})], "live", "two", {"c": "n"}), emit("x", "wide")]
    refused(written(tmp_path / "p", steps, {"c": cell(WIDE, "y")}), "cell-contract", "starts as float32")


def test_a_cell_does_not_become_another_type(tmp_path: Path) -> None:
    steps = [loop([invoke("float", {"x": "x"}, {"y": "n"})], "live", "two", {"c": "n"}), emit("x", "wide")]
    refused(written(tmp_path / "p", steps, CELL), "wrong-dtype", "cell 'c' is float32")


def test_nor_by_way_of_a_branch_of_which_one_case_is_known(tmp_path: Path) -> None:
    cases = {"0": invoke("whole", {"x": "x"}, {"y": "a"}), "1": invoke("float", {"x": "x"}, {"y": "b"})}
    for at, sources in enumerate(({"0": "x", "1": "b"}, {"0": "a", "1": "b"})):
        body = [branch("one", cases, outputs={"n": {"cases": sources}})]
        steps = [loop(body, "live", "two", {"c": "n"}), emit("x", "wide")]
        refused(written(tmp_path / str(at), steps, CELL), "wrong-dtype", "cell 'c' is float32")


@pytest.mark.parametrize("mode", ["replace", "append", "event"])
def test_an_output_is_not_given_another_type(mode: str, tmp_path: Path) -> None:
    steps = [AS_FLOAT, emit("y", "wide", mode)]
    refused(written(tmp_path / "p", steps), "emit-contract", "was given float32, it declares int64")


@pytest.mark.parametrize(
    ("nodes", "contract", "code", "said"),
    [
        (FLOAT, WIDE, "wrong-dtype", "is float32, its contract says int64"),
        (DEEPER, WIDE, "wrong-rank", "has rank 3, its contract says 2"),
        (WHOLE, tensor("int64", "n", "m", "k"), "wrong-rank", "has rank 2, its contract says 3"),
    ],
    ids=["dtype", "too deep", "too flat"],
)
def test_a_port_gives_what_its_contract_says(
    nodes: list[onnx.NodeProto], contract: Document, code: str, said: str, tmp_path: Path
) -> None:
    """3.3, V327: nothing else looks at the value's rank, for the component behind it takes any."""
    steps = [invoke("typed", {"x": "x"}, {"y": "y"}), invoke("size", {"x": "y"}, {"y": "n"}), emit("n", "single")]
    made = written(tmp_path / "p", steps, typed=component("typed.onnx", {"x": WIDE}, {"y": contract}))
    graph(made, "typed", nodes)
    refused(made, code, said)


@pytest.mark.parametrize(
    ("before", "contract", "said"),
    [
        ("deeper", WIDE, "has rank 3, its contract says 2"),
        ("whole", tensor("int64", "n", "m", "k"), "has rank 2, its contract says 3"),
    ],
)
def test_a_port_takes_what_its_contract_says(before: str, contract: Document, said: str, tmp_path: Path) -> None:
    steps = [invoke(before, {"x": "x"}, {"y": "y"}), invoke("typed", {"x": "y"}, {"y": "z"}),
             invoke("size", {"x": "z"}, {"y": "n"}), emit("n", "single")]  # fmt: skip
    typed = component("whole.onnx", {"x": contract}, {"y": contract})
    refused(written(tmp_path / "p", steps, typed=typed), "wrong-rank", said)


# ---- controls --------------------------------------------------------------------------------------------------------

SCALAR = invoke("float", {"x": "one"}, {"y": "y"})
ROWS = invoke("float", {"x": "row"}, {"y": "y"})
BODY = [invoke("whole", {"x": "c"}, {"y": "n"})]


@pytest.mark.parametrize(
    ("steps", "code", "said"),
    [
        ([SCALAR, loop(BODY, "live", "y", {"c": "n"})], "loop-bound", "not one non-negative integer"),
        ([ROWS, loop(BODY, "y", "two", {"c": "n"})], "loop-predicate", "is float32, not bool"),
        ([invoke("whole", {"x": "row"}, {"y": "y"}), loop(BODY, "y", "two", {"c": "n"})], "loop-predicate", "int64"),
        ([SCALAR, branch("y", {"1.0": BODY[0] | {"inputs": {"x": "x"}}})], "branch-predicate", "is float32"),
        ([ROWS, emit("row", "rows", when="y")], "emit-rows", "guard is float32"),
        ([invoke("whole", {"x": "one"}, {"y": "y"}), emit("row", "rows", when="y")], "emit-rows", "guard is int64"),
        ([SCALAR, emit("x", "wide", valid_length="y")], "emit-rows", "valid_length is float32"),
    ],
    ids=["bound", "float mask", "number mask", "key", "guard", "number guard", "length"],
)
def test_a_control_is_of_the_type_that_controls_have(
    steps: list[Document], code: str, said: str, tmp_path: Path
) -> None:
    refused(written(tmp_path / "p", [*steps, emit("x", "wide")], CELL), code, said)


@pytest.mark.parametrize("law", [{"kind": "bounded", "max": "y"}, {"kind": "growing", "max": "most", "increment": "y"}],
                         ids=["max", "increment"])  # fmt: skip
def test_so_is_what_controls_a_cell(law: Document, tmp_path: Path) -> None:
    steps = [SCALAR, loop(BODY, "live", "two", {"c": "n"}), emit("x", "wide")]
    refused(written(tmp_path / "p", steps, {"c": cell(WIDE, "x", {"axis": 1, **law})}), "recurrence", "whole numbers")
