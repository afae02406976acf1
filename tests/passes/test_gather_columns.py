"""Columns in the place of rows of a transposed weight: which weights, and the same results to the last bit."""

import sys
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import Options, compile_package
from genai_compiler.passes import gather_columns as one_pass
from genai_compiler.plan.edits import Edited, GatherColumns
from genai_compiler.plan.gathered_columns import gather_columns as edited
from genai_compiler.read.turned_weights import turned_weights
from onnx import ModelProto, NodeProto, TensorProto, helper, load

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy

CASE = FIXTURES / "tiny-tied-v1"
PROMPT = [1, 9, 14, 3, 60]
N = helper.make_node


@pytest.fixture
def anyhow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small weights count too."""
    monkeypatch.setattr(sys.modules["genai_compiler.passes.gather_columns"], "LEAST", 1)


def test_a_small_weight_stays_as_it_is() -> None:
    plan = compile_package(CASE, options=Options(write=False)).plan
    assert plan is not None
    note = "gather_columns: decoder keeps 'head' turned, too: 4096 bytes more are little"
    assert plan.decisions[-1] == note
    assert "columns" not in str(plan.component("decoder").edit)


@pytest.mark.usefixtures("anyhow")
def test_the_tokens_are_those_of_the_graph_as_it_is(tmp_path: Path) -> None:
    made = compile_package(CASE, tmp_path / "columns")
    compile_package(CASE, tmp_path / "rows", Options(without=("gather_columns",)))
    assert made.plan is not None
    edit = made.plan.component("decoder").edit
    assert isinstance(edit, Edited)
    assert [type(each).__name__ for each in edit.parts] == ["SelectLast", "FeedLengths", "GatherColumns"]
    assert "  edit: columns of head, not rows of head_turned" in (tmp_path / "columns" / "plan.txt").read_text()
    wanted = greedy(CASE / "model.onnx", PROMPT, 30)
    for form in ("columns", "rows"):
        with genai_runtime.load(tmp_path / form, threads=1) as model:
            assert model.generate(PROMPT, max_new_tokens=30, stop_on_eos=False).tokens == wanted
            rows = model.generate(batch=[PROMPT, PROMPT[:2]], max_new_tokens=5, stop_on_eos=False).rows
            assert [row.tokens for row in rows] == [
                greedy(CASE / "model.onnx", each, 5) for each in (PROMPT, PROMPT[:2])
            ]
    graph = load(tmp_path / "columns" / "graphs" / "decoder.edited.onnx", load_external_data=False).graph
    assert not any("head_turned" in (*node.input, *node.output) for node in graph.node)


def tied(kind: int = TensorProto.FLOAT, shape: list[Any] | None = None, *more: NodeProto) -> ModelProto:
    """W [6, 9]: rows of it, turned, are gathered twice; and it is multiplied with."""
    nodes = [
        N("Transpose", ["W"], ["turned"]),
        N("Gather", ["turned", "ids"], ["some"]),
        N("Gather", ["turned", "one"], ["row"], axis=-2),
        N("MatMul", ["x", "W"], ["product"]),
        *more,
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "tokens"] if shape is None else shape),
        helper.make_tensor_value_info("x", kind, ["rows", 6]),
    ]
    values = np.random.default_rng(7).standard_normal((6, 9))
    held = [helper.make_tensor("W", kind, [6, 9], values.reshape(-1)), helper.make_tensor("one", 7, [], [4])]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in ("some", "row", "product")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("shape", [None, ["tokens"], ["rows", 2, "tokens"], []])
def test_results_are_the_same_to_the_last_bit(kind: int, shape: list[Any] | None) -> None:
    """Indices of any rank, from behind too; one that is not there fails either way."""
    plain = tied(kind, shape)
    (found,) = turned_weights(plain)
    rank = 2 if shape is None else len(shape)
    assert (found.weight, found.turned, found.gathers) == ("W", "turned", (("some", rank), ("row", 0)))
    changed = ModelProto.FromString(plain.SerializeToString())
    edited(changed, GatherColumns(found))
    sessions = [ort.InferenceSession(each.SerializeToString()) for each in (plain, changed)]
    draw = np.random.default_rng(rank)
    x = draw.standard_normal((3, 6)).astype(helper.tensor_dtype_to_np_dtype(kind))
    for ids in (draw.integers(-9, 9, [3, 2, 5][:rank] if rank != 1 else [5]), np.full([2] * rank, 8)):
        one, other = (each.run(None, {"ids": np.asarray(ids), "x": x}) for each in sessions)
        assert [(each.dtype, each.shape, each.tobytes()) for each in one] == [
            (each.dtype, each.shape, each.tobytes()) for each in other
        ]
    for each in sessions:
        with pytest.raises(Exception, match="out of"):
            each.run(None, {"ids": np.full([2] * rank, 9), "x": x})


def refused() -> dict[str, ModelProto]:
    unshared, published = tied(), tied()
    unshared.graph.node[3].input[1] = "other"
    published.graph.output.append(helper.make_tensor_value_info("turned", TensorProto.FLOAT, None))
    unknown = tied()
    unknown.graph.input[0].type.tensor_type.ClearField("shape")
    kept, whole = tied(), tied()
    kept.graph.node[0].attribute.append(helper.make_attribute("perm", [0, 1]))
    whole.graph.node[1].attribute.append(helper.make_attribute("axis", 1))
    return {
        "nobody else reads it": unshared,
        "others see it turned": published,
        "another node reads it turned": tied(TensorProto.FLOAT, None, N("Identity", ["turned"], ["all"])),
        "how many axes the indices have is not known": unknown,
        "it is not turned": kept,
        "no rows are gathered": whole,
    }


@pytest.mark.parametrize("why", refused())
def test_other_weights_stay(why: str) -> None:
    assert turned_weights(refused()[why]) == ()


def test_a_weight_that_something_is_bound_to_stays() -> None:
    assert turned_weights(tied(), {"W"}) == ()


def test_only_a_pass_that_carries_edits_out_comes_behind() -> None:
    """No other pass meets an edit that it does not know."""
    from genai_compiler.passes import PASSES

    assert PASSES[-2] is one_pass
    assert PASSES[-1].__name__ == "split_opening"
