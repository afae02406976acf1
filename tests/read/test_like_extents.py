"""What shape inference is told of ONNX Runtime's operators, held against the shapes that ONNX Runtime really makes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler.read.extents import Extents, output_extents
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

F32, I32, I64, U8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8
MS = {"domain": "com.microsoft"}
Dims = tuple[int | str, ...]


def model(
    nodes: list[NodeProto], inputs: Mapping[str, tuple[int, Dims]], held: Mapping[str, Any], outputs: list[str]
) -> ModelProto:
    """A model whose outputs claim nothing."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, F32, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(made: ModelProto, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shapes of what ONNX Runtime makes with symbols of these sizes."""
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    numpy = {F32: np.float32, I32: np.int32, I64: np.int64, U8: np.uint8}
    feed = {}
    for each in made.graph.input:
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in each.type.tensor_type.shape.dim]
        feed[each.name] = np.ones(shape, numpy[each.type.tensor_type.elem_type])
    return [each.shape for each in session.run(None, feed)]


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


X = {"x": (F32, ("b", "s", 32))}
QUANTS = np.zeros((16, 1, 16), np.uint8)
PAST = {f"past_{each}": (F32, ("b", 1, "p", 16)) for each in "kv"}
LENGTHS = {"seqlens": (I32, ("b",))}
TOTAL = {"total": np.array([5], np.int32)}
LEFT = ["past_k", "past_v", "seqlens", "total"]
GQA = {"num_heads": 2, "kv_num_heads": 1, **MS}
BLOCKS = {"K": 32, "N": 16, "bits": 4, "block_size": 32, **MS}
CASES: dict[str, tuple[list[NodeProto], dict[str, tuple[int, Dims]], dict[str, Any], list[str]]] = {
    "SimplifiedLayerNormalization": (
        [helper.make_node("SimplifiedLayerNormalization", ["x", "w"], ["y"])], X, {"w": ones(32)}, ["y"]),
    "SkipSimplifiedLayerNormalization": (
        [helper.make_node("SkipSimplifiedLayerNormalization", ["x", "x2", "w"], ["y", "", "", "sum"], **MS)],
        {**X, "x2": X["x"]}, {"w": ones(32)}, ["y", "sum"]),
    "SkipLayerNormalization": (
        [helper.make_node("SkipLayerNormalization", ["x", "x2", "w"], ["y", "", "", "sum"], **MS)],
        {**X, "x2": (F32, (1, "s", 32))}, {"w": ones(32)}, ["y", "sum"]),
    "QuickGelu": ([helper.make_node("QuickGelu", ["x"], ["y"], **MS)], X, {}, ["y"]),
    "FastGelu": ([helper.make_node("FastGelu", ["x"], ["y"], **MS)], X, {}, ["y"]),
    "BiasGelu": ([helper.make_node("BiasGelu", ["x", "w"], ["y"], **MS)], X, {"w": ones(32)}, ["y"]),
    "Gelu": ([helper.make_node("Gelu", ["x"], ["y"], **MS)], X, {}, ["y"]),
    "MatMulNBits": (
        [helper.make_node("MatMulNBits", ["x", "q", "scales"], ["y"], **BLOCKS)],
        X, {"q": QUANTS, "scales": ones(16)}, ["y"]),
    "GatherBlockQuantized": (
        [helper.make_node("GatherBlockQuantized", ["q", "ids", "scales"], ["y"], gather_axis=0, quantize_axis=1,
                          block_size=16, **MS)],
        {"ids": (I64, ("b", "s"))}, {"q": np.zeros((4, 16), np.uint8), "scales": ones(4, 2)}, ["y"]),
    "GroupQueryAttention": (
        [helper.make_node("GroupQueryAttention", ["q", "k", "k2", *LEFT], ["y", "pk", "pv"], **GQA)],
        {"q": (F32, ("b", 1, 32)), **dict.fromkeys(("k", "k2"), (F32, ("b", 1, 16))), **PAST, **LENGTHS}, TOTAL,
        ["y"]),
    "GroupQueryAttention packed": (
        [helper.make_node("GroupQueryAttention", ["q", "", "", *LEFT], ["y", "pk", "pv"], **GQA)],
        {"q": (F32, ("b", 1, 64)), **PAST, **LENGTHS}, TOTAL, ["y"]),
    "RotaryEmbedding": (
        [helper.make_node("RotaryEmbedding", ["x", "at", "cos", "sin"], ["y"], num_heads=2, **MS)],
        {**X, "at": (I64, ("b", "s"))}, {"cos": ones(9, 8), "sin": ones(9, 8)}, ["y"]),
    "parts of a product": (
        [helper.make_node("Concat", ["x", "x2"], ["both"], axis=0),
         helper.make_node("MatMulNBits", ["both", "q", "scales"], ["products"], **BLOCKS),
         helper.make_node("Split", ["products"], ["y", "z"], axis=0, num_outputs=2)],
        {**X, "x2": X["x"]}, {"q": QUANTS, "scales": ones(16)}, ["y", "z"]),
}  # fmt: skip


def inferred(made: ModelProto) -> Mapping[str, tuple[int | str | None, ...]]:
    inputs: dict[str, Extents] = {
        each.name: tuple(dim.dim_value or dim.dim_param for dim in each.type.tensor_type.shape.dim)
        for each in made.graph.input
    }
    return output_extents(made, inputs)


@pytest.mark.parametrize("case", CASES)
def test_the_extents_are_those_that_the_kernel_gives(case: str) -> None:
    """Every extent that is found, with symbols of several sizes; the first is always found."""
    made = model(*CASES[case])
    found = inferred(made)
    assert all(found[name][0] == "b" for name in CASES[case][3])
    for sizes in ({"b": 1, "s": 3, "p": 4}, {"b": 3, "s": 2, "p": 4}):
        for name, shape in zip(CASES[case][3], run(made, sizes), strict=True):
            assert len(found[name]) == len(shape)
            for known, extent in zip(found[name], shape, strict=True):
                assert known is None or extent == (sizes[known] if isinstance(known, str) else known)


def test_operands_that_may_differ_have_no_equal_parts() -> None:
    """Three rows and one row laid together and halved are two and two, not three and one."""
    nodes, inputs, held, outputs = CASES["parts of a product"]
    made = model(nodes, {**inputs, "x2": (F32, ("c", "s", 32))}, held, outputs)
    assert run(made, {"b": 3, "c": 1, "s": 2})[0] == (2, 2, 16)
    assert not any("b" in extents or "c" in extents for extents in inferred(made).values())


@pytest.mark.parametrize(
    "change",
    [
        {"axis": 1, "num_outputs": 2},
        {"axis": 0, "num_outputs": 4},
    ],
)
def test_other_splits_are_not_taken_for_equal_parts(change: dict[str, int]) -> None:
    nodes, inputs, held, _ = CASES["parts of a product"]
    names = [f"y{at}" for at in range(change["num_outputs"])]
    made = model([*nodes[:2], helper.make_node("Split", ["products"], names, **change)], inputs, held, names)
    found = inferred(made)
    shapes = run(made, {"b": 2, "s": 4})
    for name, shape in zip(names, shapes, strict=True):
        sizes = {"b": 2, "s": 4}
        for known, extent in zip(found.get(name, ()), shape, strict=bool(found.get(name))):
            assert known is None or extent == (sizes[known] if isinstance(known, str) else known)


def test_a_table_of_another_form_is_left_alone() -> None:
    """Gathered along the second axis: nothing is claimed."""
    node = helper.make_node("GatherBlockQuantized", ["q", "ids", "s"], ["y"], gather_axis=1, quantize_axis=0, **MS)
    made = model([node], {"ids": (I64, ("b",))}, {"q": np.zeros((16, 4), np.uint8), "s": ones(1, 4)}, ["y"])
    assert "y" not in inferred(made)


def test_a_value_of_the_graph_is_no_table() -> None:
    """An input with the name that a table would have kept that table's extents."""
    nodes, inputs, held, _ = CASES["MatMulNBits"]
    for name in ("@0", "@@0"):
        given = {**inputs, name: (F32, ("c", "d")), "@": (F32, ("e",))}
        made = model([*nodes, helper.make_node("Neg", [name], ["z"])], given, held, ["y", "z"])
        assert inferred(made)["z"] == ("c", "d")
        assert len(inferred(made)["y"]) == 3


def test_a_list_of_a_port_that_says_it_is_endless_is_not_followed_entry_by_entry() -> None:
    """A damaged document declares 2**53 entries: inference would write down each."""
    node = helper.make_node("Concat", ["log", "next"], ["longer"], axis=0)
    made = model([node], {"log": (I64, ("n",)), "next": (I64, (1,))}, {}, ["longer"])
    made.graph.output[0].type.tensor_type.elem_type = I64
    assert output_extents(made, {"log": (2**53,), "next": (1,)})["longer"] in ((None,), (2**53 + 1,))
    assert output_extents(made, {"log": (3,), "next": (1,)})["longer"] == (4,)
