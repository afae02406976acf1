"""Where attention operators take their lengths from, on graphs of a few nodes; each wrong turn ends the trail."""

from typing import Any

import pytest
from genai_compiler.read.token_axis import new_token_source
from genai_compiler.read.total_length import total_length_sources, valid_length_source
from onnx import ModelProto, NodeProto, TensorProto, helper

WHOLE, HALF, FLOAT = TensorProto.INT64, TensorProto.FLOAT16, TensorProto.FLOAT
CONSTANTS = {
    "zero": [0],
    "one": [1],
    "minus": [-1],
    "two": [2],
    "both": [0, 1],
    "shape": [0, 0, -1],
    "flat": [-1, 0, 8],
}
SQUARE = ("table", "w", "wide2")


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node of space-separated names; `-` is an absent input."""
    domain = "com.microsoft" if op in ("GroupQueryAttention", "MatMulNBits", "SkipSimplifiedLayerNormalization") else ""
    names = [name if name != "-" else "" for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), domain=attributes.pop("domain", domain), **attributes)


def attention(query: str = "x", last: str = "last", total: str = "total", number: int = 0) -> NodeProto:
    past, present = f"pk{number} pv{number}", f"y{number} k{number} v{number}"
    return node("GroupQueryAttention", f"{query} - - {past} {last} {total}", present, num_heads=1, kv_num_heads=1)


def model(*nodes: NodeProto, mask: int = WHOLE) -> ModelProto:
    """Inputs: ids, mask and other [b, s]; h [b, s, 8]; u [b, c, s, 8]."""
    ranks = {"ids": (WHOLE, 2), "mask": (mask, 2), "other": (WHOLE, 2), "h": (FLOAT, 3), "u": (FLOAT, 4)}
    inputs = [helper.make_tensor_value_info(name, kind, ["d"] * rank) for name, (kind, rank) in ranks.items()]
    held = [helper.make_tensor(name, WHOLE, [len(values)], values) for name, values in CONSTANTS.items()]
    held += [helper.make_tensor(name, FLOAT, [2, 2], [0.0] * 4) for name in SQUARE]
    held.append(helper.make_tensor("bias", FLOAT, [2], [0.0] * 2))
    held.append(helper.make_tensor("tall", FLOAT, [2, 1], [0.0] * 2))
    return helper.make_model(helper.make_graph(list(nodes), "g", inputs, [], held))


# ---- total length ----------------------------------------------------------------------------------------------------


def total(*nodes: NodeProto, mask: int = WHOLE) -> tuple[tuple[str, str], ...]:
    return total_length_sources(model(*nodes, attention(), mask=mask))


SUM = node("ReduceSum", "mask one", "sums", keepdims=0)
MOST = node("ReduceMax", "sums zero", "most")


def test_a_width() -> None:
    assert total(node("Shape", "mask", "total", start=1, end=2)) == (("width", "mask"),)
    assert total(node("Shape", "mask", "total", start=-1)) == (("width", "mask"),)
    shape, gather = node("Shape", "mask", "shape"), node("Gather", "shape one", "picked")
    assert total(shape, gather, node("Cast", "picked", "total", to=TensorProto.INT32)) == (("width", "mask"),)
    assert total(shape, node("Gather", "shape minus", "total")) == (("width", "mask"),)


def test_a_sum_and_the_larger_of_two() -> None:
    assert total(SUM, node("ReduceMax", "sums zero", "total")) == (("sum", "mask"),)
    wide = node("Shape", "ids", "wide", start=1, end=2)
    assert total(SUM, MOST, wide, node("Max", "most wide", "total")) == (("sum", "mask"), ("width", "ids"))


def test_values_that_many_maxima_share() -> None:
    """Each was followed once a reader of it: a chain of 64 would have taken 2^64 steps."""
    chain = [node("Max", f"m{at} m{at}", f"m{at + 1}") for at in range(64)]
    wide, last = node("Shape", "mask", "m0", start=1, end=2), node("Identity", "m64", "total")
    assert total(wide, *chain, last) == (("width", "mask"),)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Shape", "mask", "total", start=0, end=1)],
        [node("Shape", "mask", "total", start=1, end=3)],
        [node("Shape", "h", "total", start=1, end=2)],
        [node("Shape", "mask", "shape", end=1), node("Gather", "shape minus", "total")],
        [node("Shape", "mask", "shape"), node("Gather", "shape zero", "total")],
        [node("Shape", "mask", "wide", start=1, end=2), node("Add", "wide one", "total")],
        [node("Shape", "mask", "wide", start=1, end=2), node("Max", "wide one", "total")],
        [node("Shape", "mask", "w8", start=1, end=2), node("Cast", "w8", "total", to=TensorProto.INT8)],
        [node("Shape", "mask", "wide", start=1, end=2), node("Identity", "wide", "total", domain="own")],
        [node("ReduceSum", "mask zero", "sums"), node("ReduceMax", "sums zero", "total")],
        [node("Cast", "mask", "flags", to=TensorProto.BOOL), node("ReduceSum", "flags one", "sums"), MOST,
         node("Identity", "most", "total")],
        [node("Identity", "other", "total"), node("Neg", "total", "unused")],
        [],
    ],
)  # fmt: skip
def test_what_is_no_width_and_no_sum(nodes: list[NodeProto]) -> None:
    assert total(*nodes) == ()


def test_sums_of_a_type_that_rounds() -> None:
    nodes = [SUM, node("ReduceMax", "sums zero", "total")]
    assert total(*nodes, mask=HALF) == ()
    assert total(node("Shape", "mask", "total", start=1, end=2), mask=HALF) == (("width", "mask"),)


def test_all_operators_must_agree() -> None:
    wide = [node("Shape", name, f"wide.{name}", start=1, end=2) for name in ("mask", "other")]
    same = [node("Identity", "wide.mask", "again"), attention(total="wide.mask"), attention(total="again", number=1)]
    assert total_length_sources(model(*wide, *same)) == (("width", "mask"),)
    differ = [attention(total="wide.mask"), attention(total="wide.other", number=1)]
    assert total_length_sources(model(*wide, *differ)) == ()


def test_an_operator_in_a_nested_graph_is_not_followed() -> None:
    wide = node("Shape", "mask", "total", start=1, end=2)
    inner = helper.make_graph(
        [attention(number=1)], "then", [], [helper.make_tensor_value_info("y1", FLOAT, ["d"] * 3)]
    )
    branch = node("If", "flag", "z", then_branch=inner, else_branch=inner)
    assert total_length_sources(model(wide, attention(), branch)) == ()
    assert valid_length_source(model(SUM, node("Sub", "sums one", "last"), attention(), branch)) == ""
    assert total_length_sources(model(wide)) == (), "no attention, no length"


# ---- valid lengths ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([SUM, node("Sub", "sums one", "last")], "mask"),
        ([SUM, node("Add", "sums minus", "less"), node("Cast", "less", "last", to=TensorProto.INT32)], "mask"),
        ([SUM, node("Sub", "sums two", "last")], ""),
        ([SUM, node("Sub", "one sums", "last")], ""),
        ([SUM, node("Identity", "sums", "last")], ""),
        ([node("ReduceSum", "mask zero", "sums"), node("Sub", "sums one", "last")], ""),
        ([SUM, node("Sub", "sums one", "less"), node("Cast", "less", "last", to=TensorProto.INT8)], ""),
        ([node("ReduceSum", "h one", "sums"), node("Sub", "sums one", "last")], ""),
        ([], ""),
    ],
)
def test_valid_lengths_are_row_sums_less_one(nodes: list[NodeProto], wanted: str) -> None:
    assert valid_length_source(model(*nodes, attention())) == wanted


# ---- new tokens ------------------------------------------------------------------------------------------------------

EMBED = node("Gather", "table ids", "e")


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Identity", "e", "x")],
        [node("MatMul", "e w", "x")],
        [node("MatMulNBits", "e quants", "x")],
        [node("Add", "e bias", "x")],
        [node("Mul", "e e", "x")],
        [node("ReduceMean", "e minus", "m"), node("Div", "e m", "x")],
        [node("Reshape", "e shape", "x")],
        [node("Split", "e", "x rest", axis=-1, num_outputs=2)],
        [node("Split", "e", "rest x", axis=0, num_outputs=2)],
        [node("Concat", "h2 e", "x", axis=2)],
        [node("SkipSimplifiedLayerNormalization", "e h2 w", "n - - x")],
        [node("Constant", "", "c", value_float=1.0), node("CastLike", "c e", "d"), node("Mul", "d e", "x")],
    ],
    ids=lambda nodes: nodes[-1].op_type,
)
def test_operators_that_leave_the_axis_alone(nodes: list[NodeProto]) -> None:
    assert new_token_source(model(EMBED, *nodes, attention())) == "ids"


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Slice", "e zero one one", "x")],
        [node("MatMul", "w e", "x")],
        [node("MatMul", "e e", "x")],
        [node("Add", "e tall", "x")],
        [node("Add", "e h", "x")],
        [node("Add", "e unknown", "x")],
        [node("ReduceMean", "e one", "x")],
        [node("ReduceMean", "e minus", "x", keepdims=0)],
        [node("ReduceMean", "e", "x")],
        [node("Reshape", "e both", "x")],
        [node("Reshape", "e shape", "x", allowzero=1)],
        [node("Split", "e", "x rest", axis=1, num_outputs=2)],
        [node("Concat", "e e", "x", axis=1)],
        [node("Concat", "e e", "x", axis=-2)],
        [node("Transpose", "e", "x", perm=[0, 2, 1])],
        [node("Gather", "table other2", "x")],
        [node("Gather", "table ids", "x", axis=1)],
        [node("Gather", "e ids", "x")],
        [node("Identity", "u", "x")],
        [node("Identity", "e", "x", domain="own")],
    ],
    ids=lambda nodes: nodes[-1].op_type,
)
def test_operators_that_may_change_the_axis(nodes: list[NodeProto]) -> None:
    assert new_token_source(model(EMBED, *nodes, attention())) == ""


def test_a_reshape_that_keeps_only_the_sequence() -> None:
    assert new_token_source(model(EMBED, node("Reshape", "e flat", "x"), attention())) == "ids"


def test_embeddings_as_an_input_and_the_layers_after_the_first() -> None:
    layers = [attention("h"), node("MatMul", "y0 w", "o"), node("Add", "h o", "x"), attention(number=1)]
    assert new_token_source(model(*layers)) == "h"
    assert new_token_source(model(EMBED, attention("e"), attention("h", number=1))) == ""
    assert new_token_source(model(EMBED)) == ""
