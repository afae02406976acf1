"""Where graphs can be cut: what crosses, what each side arranges; and that both halves together are the whole."""

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler.read.cuts import TWICE, arranged_weights, cuts, halves
from onnx import ModelProto, NodeProto, TensorProto, helper

N = helper.make_node
FLOAT, WIDE = TensorProto.FLOAT, 64
CONTRIB = "com.microsoft"


def norm(at: int, *outputs: str) -> NodeProto:
    """SkipSimplifiedLayerNormalization of what came and what a layer adds."""
    taken = [f"sum{at - 1}" if at > 1 else "embedded", f"layer{at}", "scale"]
    return N("SkipSimplifiedLayerNormalization", taken, [f"normed{at}", *outputs], name=f"norm{at}", domain=CONTRIB)


def stack(*more: NodeProto, shared: bool = False, kinds: bool = True, published: str = "") -> ModelProto:
    """Three layers, a product each, between norms; W1 and W3 may be one. A table is gathered from at both ends."""
    nodes = [
        N("Constant", [], ["one"], name="one", value=helper.make_tensor("c", TensorProto.FLOAT, [1], [1.0])),
        N("Gather", ["table", "ids"], ["embedded"], name="embed"),
        N("Mul", ["embedded", "one"], ["first"], name="first"),
    ]
    for at in (1, 2, 3):
        taken = "first" if at == 1 else f"normed{at - 1}"
        weight = "W1" if shared and at == 3 else f"W{at}"
        nodes += [N("MatMul", [taken, weight], [f"layer{at}"], name=f"layer{at}"), norm(at, "", "", f"sum{at}")]
    nodes += [
        N("Gather", ["table", "ids"], ["again"], name="again"),
        N("Add", ["again", "one"], ["more"], name="more"),
        N("Add", ["normed3", "more"], ["logits"], name="logits"),
        *more,
    ]
    random = np.random.default_rng(3)
    sizes = {"table": [50, WIDE], "scale": [WIDE], **{f"W{at}": [WIDE, WIDE] for at in (1, 2, 3)}}
    held = [
        helper.make_tensor(name, FLOAT, dims, random.standard_normal(dims, np.float32).reshape(-1))
        for name, dims in sizes.items()
        if not (shared and name == "W3")
    ]
    names = [f"{kind}{at}" for at in (1, 2, 3) for kind in ("normed", "sum", "layer") if f"{kind}{at}" != published]
    infos = [helper.make_tensor_value_info(name, FLOAT, None) for name in names] if kinds else []
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("logits", published) if name]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "tokens"])
    unread = helper.make_tensor_value_info("unread", FLOAT, [1])
    graph = helper.make_graph(nodes, "stack", [ids, unread], outputs, held, value_info=infos)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model: ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    taken = {each.name: feeds[each.name] for each in session.get_inputs()}
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, taken), strict=True))


MATRIX, VECTOR = 4 * WIDE * WIDE, 4 * WIDE


def test_a_weight_that_is_gathered_from_takes_no_arranging() -> None:
    found = arranged_weights(stack())
    assert "table" not in found
    assert {name: size for name, (size, _, _) in found.items()} == {
        "scale": VECTOR,
        **dict.fromkeys(("W1", "W2", "W3"), MATRIX),
    }


def test_cuts_lie_behind_norms_and_nowhere_else() -> None:
    """Two values cross: what the next layer takes, and what its norm adds. The constant is on both sides."""
    found = {each.label: each for each in cuts(stack(), 2)}
    assert set(found) == {"norm1", "norm2", "norm3"}
    assert [name for name, _ in found["norm3"].crossing] == ["normed3"]
    assert [name for name, _ in found["norm1"].crossing] == ["normed1", "sum1"]
    assert found["norm1"].weights == (MATRIX, 2 * MATRIX)
    assert found["norm2"].weights == (2 * MATRIX, MATRIX)
    assert {kind for each in found.values() for _, kind in each.crossing} == {FLOAT}


@pytest.mark.parametrize("label", ["norm1", "norm2"])
def test_both_halves_give_what_the_whole_gives(label: str) -> None:
    model = stack()
    place = next(each for each in cuts(model, 2) if each.label == label)
    crossing = [helper.make_tensor_value_info(name, kind, None) for name, kind in place.crossing]
    first, second = halves(model, place.before, crossing)
    assert len(first.graph.node) + len(second.graph.node) == len(model.graph.node) + 1  # the constant
    assert {each.name for each in second.graph.initializer}.isdisjoint({"W1"})
    assert [each.name for each in first.graph.input] == ["ids", "unread"]
    feeds = {"ids": np.array([[3, 9, 4], [1, 0, 49]]), "unread": np.zeros(1, np.float32)}
    handed = run(first, feeds)
    made = run(second, {**feeds, **handed})
    assert np.array_equal(made["logits"], run(model, feeds)["logits"])


@pytest.mark.parametrize(
    ("model", "most", "why"),
    [
        (stack(), 0, "one value or two cross"),
        (stack(kinds=False), 2, "nothing tells the types"),
    ],
    ids=["most", "kinds"],
)
def test_no_cut_is_found(model: ModelProto, most: int, why: str) -> None:
    assert not list(cuts(model, most)), why


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_what_the_optimiser_may_keep_unrounded_crosses_nowhere(kind: int) -> None:
    """On the CPU some nodes of these types run in float32, and hand that on (docs/decisions/0042)."""
    model = stack()
    for each in model.graph.value_info:
        each.type.tensor_type.elem_type = kind
    assert not list(cuts(model, 2))


def test_what_goes_out_crosses_nowhere() -> None:
    assert {each.label for each in cuts(stack(published="sum1"), 2)} == {"norm2", "norm3"}


def test_no_weight_is_arranged_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """W1 is read by the first and the third layer: beyond some bytes no cut between them is one."""
    assert MATRIX <= TWICE
    assert {each.label for each in cuts(stack(shared=True), 2)} == {"norm1", "norm2", "norm3"}
    monkeypatch.setattr("genai_compiler.read.cuts.TWICE", MATRIX - 1)
    assert {each.label for each in cuts(stack(shared=True), 2)} == {"norm3"}


def test_a_weight_in_another_shape_is_that_weight() -> None:
    """Its reader is who reads the other shape: a table that is reshaped and gathered from stays a table."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [25, 2 * WIDE])
    model = stack(N("Reshape", ["table", "shape"], ["other"]), N("Gather", ["other", "ids"], ["rows"]))
    model.graph.initializer.append(shape)
    assert "table" not in arranged_weights(model)


def test_what_a_nested_graph_reads_is_read() -> None:
    """A branch that reads W1 behind the cut: the weight is on both sides."""
    out = [helper.make_tensor_value_info("picked", FLOAT, None)]
    branch = helper.make_graph([N("Identity", ["W1"], ["picked"])], "branch", [], out)
    condition = N("If", ["yes"], ["chosen"], then_branch=branch, else_branch=branch)
    model = stack(condition)
    last = len(model.graph.node) - 1
    assert arranged_weights(model)["W1"][2] == last
