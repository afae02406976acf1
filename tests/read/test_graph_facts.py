"""Facts of hand-made graphs: caches, the use of a mask, length switches, cut logits, random operators."""

from typing import Any

import numpy as np
import pytest
from genai_compiler.read.attention import CacheOp, cache_ops, writes_in_place
from genai_compiler.read.graph_facts import (
    LengthSwitch,
    last_token_only,
    length_switches,
    mask_use,
    random_ops,
    scale_of_all,
)
from genai_compiler.read.nodes import Constants
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

CONTRIB = "com.microsoft"
CONSTANTS = {"zero": 0, "one": 1, "minus": -1, "eight": 8, "axis": [1], "all": [0, 1], "last": [-1], "end": [2**31 - 1]}


def model(nodes: list[NodeProto], inputs: str, outputs: str) -> ModelProto:
    """A graph over named values; all int64, with the constants above as initializers."""
    held = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in CONSTANTS.items()]
    ports = [[any_value(name) for name in names.split()] for names in (inputs, outputs)]
    return helper.make_model(helper.make_graph(nodes, "g", *ports, held))


def any_value(name: str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, None)


def node(op: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> NodeProto:
    """`-` stands for an omitted input or output."""
    names = [["" if name == "-" else name for name in each.split()] for each in (inputs, outputs)]
    return helper.make_node(op, *names, domain=domain, **attributes)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (node("GroupQueryAttention", "q k v pk pv s t", "y nk nv", CONTRIB, local_window_size=8), (8, False, True)),
        (
            node("GroupQueryAttention", "q k v pk pv s t", "y nk nv", CONTRIB, sliding_window_cache=1),
            (None, True, True),
        ),
        (node("MultiHeadAttention", "q k v - - - pk pv", "y nk nv", CONTRIB), (None, False, False)),
        (node("DecoderMaskedMultiHeadAttention", "q k v - - pk pv", "y nk nv", CONTRIB), (None, False, False)),
        (node("Attention", "q k v - pk pv", "y nk nv"), (None, False, False)),
        (node("Attention", "q k v - pk pv", "y nk nv", "ai.onnx"), (None, False, False)),
    ],
)
def test_cache_operators(made: NodeProto, wanted: tuple[int | None, bool, bool]) -> None:
    window, bounded, in_place = wanted
    (found,) = cache_ops(model([made], "q k v pk pv s t", "y nk nv").graph)
    domain = "" if made.domain == "ai.onnx" else made.domain
    assert found == CacheOp(made.op_type, domain, "pk", "pv", "nk", "nv", window, bounded)
    assert writes_in_place(found) == in_place


def test_one_tensor_for_keys_and_values() -> None:
    made = node("Attention", "x w b m p", "y n", CONTRIB)
    assert cache_ops(model([made], "x w b m p", "y n").graph) == (
        CacheOp("Attention", CONTRIB, "p", "", "n", "", None),
    )


def test_scattered_caches() -> None:
    scatter = [node("TensorScatter", "pk k at", "nk"), node("TensorScatter", "pv v at", "nv")]
    attention = node("Attention", "q nk nv - - - n", "y")
    (found,) = cache_ops(model([*scatter, attention], "q k v pk pv at n", "y nk nv").graph)
    assert (found.op_type, found.past_key, found.past_value) == ("TensorScatter", "pk", "pv")
    assert (found.present_key, found.present_value) == ("nk", "nv")
    assert writes_in_place(found)


@pytest.mark.parametrize(
    ("extra", "inputs", "outputs"),
    [
        (node("Identity", "pk", "z"), "q k v pk pv", "y nk nv z"),  # a second reader of the past
        (node("Identity", "x", "pk"), "q k v x pv", "y nk nv"),  # the past is computed
        (node("Identity", "nk", "z"), "q k v pk pv", "y nv z"),  # the present is no output
    ],
)
def test_indirect_caches_are_none(extra: NodeProto, inputs: str, outputs: str) -> None:
    made = node("Attention", "q k v - pk pv", "y nk nv")
    assert cache_ops(model([extra, made], inputs, outputs).graph) == ()


def test_a_nested_graph_reads_too() -> None:
    inner = helper.make_graph([node("Identity", "pk", "z")], "inner", [], [any_value("z")])
    branch = helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=inner)
    made = node("Attention", "q k v - pk pv", "y nk nv")
    assert cache_ops(model([made, branch], "q k v pk pv c", "y nk nv w").graph) == ()


@pytest.mark.parametrize(
    ("nodes", "use"),
    [
        ([node("ReduceSum", "mask axis", "s"), node("Sub", "s one", "y")], "lengths"),
        ([node("Cast", "mask", "m", to=6), node("ReduceSum", "m last", "y")], "lengths"),
        ([node("Shape", "mask", "y")], "lengths"),
        ([node("ReduceSum", "mask all", "y")], "columns"),
        ([node("ReduceSum", "mask zero", "y")], "columns"),
        ([node("ReduceSum", "mask", "y")], "columns"),
        ([node("ReduceSum", "mask axis", "s"), node("Mul", "mask one", "y")], "columns"),
        ([node("CumSum", "mask one", "y")], "columns"),
        ([node("Identity", "mask", "y")], "columns"),
        ([node("ReduceMax", "mask axis", "y")], "columns"),
        ([node("Cast", "mask", "y", "custom", to=6)], "columns"),
    ],
)
def test_mask_use(nodes: list[NodeProto], use: str) -> None:
    assert mask_use(model(nodes, "mask", "y"), "mask") == use


def test_many_readers_of_a_mask() -> None:
    """Each looked through all constants and nodes for its axis: hours for so many."""
    constants = [node("Constant", "", f"axis{at}", value_ints=[1]) for at in range(8_000)]
    sums = [node("ReduceSum", f"mask axis{at}", f"s{at}") for at in range(8_000)]
    assert mask_use(model([*constants, *sums], "mask", "s0"), "mask") == "lengths"


def test_a_branch_that_uses_columns() -> None:
    inner = helper.make_graph([node("Mul", "mask mask", "z")], "inner", [], [any_value("z")])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    assert mask_use(model([branch], "mask c", "y"), "mask") == "columns"


LENGTH = [node("Shape", "mask", "shape"), node("Gather", "shape one", "length")]


@pytest.mark.parametrize("comparison", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
@pytest.mark.parametrize("swapped", [False, True])
def test_length_switches(comparison: str, swapped: bool) -> None:
    compare = node(comparison, "eight length" if swapped else "length eight", "c")
    made = model([*LENGTH, compare, node("Where", "c a b", "y")], "mask a b", "y")
    assert length_switches(made) == (LengthSwitch(8, comparison, ("mask",)),)


def test_a_switch_by_the_largest_position() -> None:
    steps = [node("ReduceMax", "positions", "m"), node("Add", "m one", "n"), node("Greater", "n eight", "c")]
    inner = helper.make_graph([], "inner", [], [any_value("a")])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    assert length_switches(model([*steps, branch], "positions a", "y")) == (LengthSwitch(8, "Greater", ("positions",)),)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Greater", "x eight", "c"), node("Where", "c a b", "y")],  # element-wise, no length
        [*LENGTH, node("Greater", "length other", "c"), node("Where", "c a b", "y")],  # no constant
        [*LENGTH, node("Add", "length x", "n"), node("Greater", "n eight", "c"), node("Where", "c a b", "y")],
    ],
)
def test_what_is_no_length_switch(nodes: list[NodeProto]) -> None:
    assert length_switches(model(nodes, "mask x a b other", "y")) == ()


@pytest.mark.parametrize(
    ("nodes", "cut"),
    [
        ([node("Gather", "x minus", "g", axis=1), node("Unsqueeze", "g axis", "u"), node("MatMul", "u w", "y")], True),
        ([node("Slice", "x last end axis", "s"), node("MatMul", "s w", "m"), node("Cast", "m", "y", to=1)], True),
        ([node("Gather", "x zero", "g", axis=1), node("MatMul", "g w", "y")], False),
        ([node("MatMul", "x w", "y")], False),
        ([node("Gather", "x minus", "g", axis=1), node("Conv", "g w", "y")], False),
    ],
)
def test_logits_of_the_last_position(nodes: list[NodeProto], cut: bool) -> None:
    assert last_token_only(model(nodes, "x w", "y"), "y") == cut


@pytest.mark.parametrize(("shape", "cut"), [(["b", 1, 9], True), (["b", 9], True), (["b", "s", 9], False)])
def test_logits_cut_by_their_shape(shape: list[Any], cut: bool) -> None:
    made = model([node("Relu", "x", "y")], "x", "y")
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, shape))
    assert last_token_only(made, "y") == cut


def test_random_operators() -> None:
    inner = helper.make_graph(
        [helper.make_node("RandomUniform", [], ["z"], name="inside", shape=[1])],
        "inner",
        [],
        [helper.make_tensor_value_info("z", 1, None)],
    )
    nodes = [
        node("RandomNormalLike", "x", "n"),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
    ]
    assert random_ops(model(nodes, "x c", "y n")) == ("RandomNormalLike", "inside", "inside")


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (node("DynamicQuantizeLinear", "x", "n s z"), "DynamicQuantizeLinear"),
        (node("DynamicQuantizeLinear", "x", "n s z", "ai.onnx"), "DynamicQuantizeLinear"),
        (node("DynamicQuantizeMatMul", "x c x x", "n", CONTRIB), "DynamicQuantizeMatMul"),
        (node("QuantizeLinear", "x c c", "n"), ""),
        (node("MatMulNBits", "x c c", "n", CONTRIB, accuracy_level=4), ""),
        (node("DynamicQuantizeLinear", "x", "n s z", "somebody.else"), ""),
    ],
)
def test_one_scale_for_all(made: NodeProto, wanted: str) -> None:
    assert scale_of_all(model([made], "x c", "n")) == wanted
    inner = helper.make_graph([made], "inner", [], [helper.make_tensor_value_info("n", 1, None)])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    assert scale_of_all(model([branch], "x c", "y")) == wanted


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(name="c", data_type=TensorProto.INT64, dims=[1], raw_data=b"abc"),
        TensorProto(name="c", data_type=255, dims=[1], raw_data=b"abcd"),
        TensorProto(name="c", dims=[1], raw_data=b"abcd"),
        TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[3], float_data=[1.0]),
        TensorProto(name="c", data_type=TensorProto.INT64, dims=[-3, 2], int64_data=[1]),
        helper.make_tensor("c", TensorProto.FLOAT, [1], [float("-inf")]),
        helper.make_tensor("c", TensorProto.FLOAT, [2], [1.0, float("nan")]),
        helper.make_tensor("c", TensorProto.FLOAT, [1], [1.5]),
    ],
    ids=[
        "half an element",
        "no such type",
        "no type",
        "fewer",
        "extents below 0",
        "infinite",
        "no number",
        "a fraction",
    ],
)
def test_a_constant_that_holds_no_integers_tells_none(tensor: TensorProto) -> None:
    graph = helper.make_graph([], "g", [], [], [tensor])
    assert Constants(graph).ints("c") is None
