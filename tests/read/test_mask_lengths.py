"""What of a mask attention asks for: graphs in the forms of exporters, and graphs that ask for more."""

import numpy as np
import onnxruntime
import pytest
from genai_compiler.plan.edits import FeedLengths
from genai_compiler.plan.fed_lengths import feed_lengths
from genai_compiler.read.mask_lengths import MaskLengths, mask_lengths
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.read.test_graph_facts import CONTRIB, model, node

SUMS = [node("ReduceSum", "mask axis", "sum"), node("Sub", "sum axis", "less"), node("Cast", "less", "seqlens", to=6)]
WIDTH = [
    node("Shape", "mask", "extents"),
    node("Gather", "extents one", "total64"),
    node("Cast", "total64", "total", to=6),
]
SLICED = [
    node("Shape", "mask", "extents", start=1, end=2),
    node("Squeeze", "extents", "total64"),
    node("Cast", "total64", "total", to=6),
]
FLAT = [
    node("Cast", "mask", "whole", to=7),
    node("ReduceSum", "whole axis", "sum", keepdims=0),
    node("Sub", "sum one", "less"),
    node("Cast", "less", "seqlens", to=6),
]
ATTENTION = node("GroupQueryAttention", "q - - pk pv seqlens total", "y nk nv", CONTRIB)
NAMES = ("q pk pv mask", "y nk nv")


def lengths_in(*nodes: NodeProto, outputs: str = NAMES[1]) -> MaskLengths | str:
    return mask_lengths(model(list(nodes), NAMES[0], outputs), "mask")


@pytest.mark.parametrize(
    "nodes",
    [[*SUMS, *WIDTH], [*SUMS, *SLICED], [*FLAT, *SLICED], [*WIDTH, *SUMS]],
    ids=["whole", "sliced", "flat", "other"],
)
def test_lengths_of_exporters_forms(nodes: list[NodeProto]) -> None:
    made = tuple(name for each in nodes for name in each.output)
    found = lengths_in(*nodes, ATTENTION, ATTENTION)
    assert found == MaskLengths(("seqlens",), ("total",), made)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([*SUMS, *WIDTH, ATTENTION, node("Mul", "mask one", "z")], "Mul takes more"),
        ([*SUMS, *WIDTH, ATTENTION, node("ReduceMax", "sum one", "z")], "ReduceMax takes more"),
        ([*SUMS, *WIDTH, ATTENTION, node("Gather", "extents zero", "z")], "Gather takes more"),
        ([*SUMS, *WIDTH, ATTENTION, node("Identity", "seqlens", "z"), node("Add", "q z", "zz")], "Add takes more"),
        ([node("ReduceSum", "mask all", "sum"), *SUMS[1:], *WIDTH, ATTENTION], "ReduceSum takes more"),
        ([SUMS[0], node("Sub", "sum eight", "less"), SUMS[2], *WIDTH, ATTENTION], "Sub takes more"),
        ([SUMS[0], SUMS[1], node("Cast", "less", "seqlens", to=10), *WIDTH, ATTENTION], "Cast takes more"),
        (
            [*SUMS, *WIDTH, node("GroupQueryAttention", "q - - pk pv total seqlens", "y nk nv", CONTRIB)],
            "attention takes more",
        ),
        (
            [*SUMS, *WIDTH, node("GroupQueryAttention", "q - - pk pv seqlens total seqlens", "y nk nv", CONTRIB)],
            "attention takes more",
        ),
        ([*SUMS, *WIDTH], "no attention"),
        ([*SUMS, *WIDTH, node("GroupQueryAttention", "q - - pk pv seqlens s", "y nk nv", CONTRIB)], "no attention"),
    ],
)  # fmt: skip
def test_a_mask_that_is_asked_for_more_stays(nodes: list[NodeProto], why: str) -> None:
    found = lengths_in(*nodes)
    assert isinstance(found, str)
    assert why in found


def test_what_is_read_outside_or_inside_another_graph_stays() -> None:
    assert "outside" in str(lengths_in(*SUMS, *WIDTH, ATTENTION, outputs="y nk nv sum"))
    inner = helper.make_graph([node("Identity", "less", "z")], "inner", [], [helper.make_empty_tensor_value_info("z")])
    held = node("If", "one", "z", then_branch=inner, else_branch=inner)
    assert "nested" in str(lengths_in(*SUMS, *WIDTH, ATTENTION, held))


def test_masks_of_other_types_stay() -> None:
    made = model([*SUMS, *WIDTH, ATTENTION], *NAMES)
    assert mask_lengths(made, "absent") == "'absent' is no input of whole numbers"
    for port in made.graph.input:
        port.type.tensor_type.elem_type = TensorProto.FLOAT16
    assert mask_lengths(made, "mask") == "'mask' is no input of whole numbers"


def reading(nodes: list[NodeProto]) -> ModelProto:
    """A graph that gives what attention would get; the operator is in its place only while lengths are looked for."""
    made = model([*nodes, ATTENTION], *NAMES)
    found = mask_lengths(made, "mask")
    assert isinstance(found, MaskLengths)
    edited = ModelProto.FromString(made.SerializeToString())
    feed_lengths(edited, FeedLengths("mask", "last", "width", found))
    assert [each.op_type for each in edited.graph.node] == ["GroupQueryAttention"]
    assert list(edited.graph.node[0].input)[5:] == ["last", "width"]
    assert [each.name for each in edited.graph.input] == ["q", "pk", "pv", "last", "width"]
    return made


@pytest.mark.parametrize("nodes", [[*SUMS, *WIDTH], [*FLAT, *SLICED]], ids=["whole", "flat"])
@pytest.mark.parametrize("lengths", [[1], [5], [3, 7, 1]])
def test_the_numbers_are_those_that_the_graph_computes(nodes: list[NodeProto], lengths: list[int]) -> None:
    """ONNX Runtime computes them from masks; by arithmetic each row's is its length less one."""
    made = reading(nodes)
    del made.graph.node[-1]
    for held in (made.graph.input, made.graph.output):
        del held[:]
    made.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["rows", "width"]))
    made.graph.output.extend(
        helper.make_tensor_value_info(each, TensorProto.INT32, None) for each in ("seqlens", "total")
    )
    made.opset_import[0].version, made.ir_version = 18, 9
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    mask = (np.arange(9) < np.array(lengths)[:, None]).astype(np.int64)
    last, width = session.run(["seqlens", "total"], {"mask": mask})
    assert np.ravel(last).tolist() == [each - 1 for each in lengths]
    assert np.ravel(width).tolist() == [9]
