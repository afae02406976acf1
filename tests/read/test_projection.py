"""Where the positions of a decoder can be thinned out: on graphs of a few nodes, and against what they compute."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from genai_compiler.emit.edited_graph import edited_bytes
from genai_compiler.plan.edits import Edited, SelectLast
from genai_compiler.read.package import Graph
from genai_compiler.read.projection import Projection, logits_projection
from genai_compiler.read.signature import load_graph, read_signature
from onnx import TensorProto, helper, numpy_helper

ROWS, WIDTH, SIZE, IDS = 2, 5, 64, 96
RANDOM = np.random.default_rng(7)
CONSTANTS = {
    "head": RANDOM.standard_normal((SIZE, IDS)).astype(np.float32),
    "embed": RANDOM.standard_normal((IDS, SIZE)).astype(np.float32),
    "mix": RANDOM.standard_normal((WIDTH, WIDTH)).astype(np.float32),
    "scale": RANDOM.standard_normal(SIZE).astype(np.float32),
    "bias": RANDOM.standard_normal(IDS).astype(np.float32),
    "bias3": RANDOM.standard_normal((1, 1, IDS)).astype(np.float32),
    "by_position": RANDOM.standard_normal((1, WIDTH, IDS)).astype(np.float32),
    "cap": np.float32(3.0),
    "blocks": np.array([0, 0, -1, 32]),
    "whole": np.array([0, 0, -1]),
    "again": np.array([2, 2, 2]),
    "flat": np.array([-1, SIZE]),
    "three": np.array([ROWS, WIDTH, SIZE]),
    "last_axis": np.array([-1]),
    "position_axis": np.array([1]),
}
FIRST = "mixed = MatMul mix embedded; hidden = Mul mixed scale; "
"""Every position from all of them, then what a norm does."""

THINNED = {
    "a product": FIRST + "logits = MatMul hidden head",
    "a product with a bias": FIRST + "raw = MatMul hidden head; logits = Add raw bias",
    "a bias of three axes": FIRST + "raw = MatMul hidden head; logits = Add bias3 raw",
    "a soft cap": FIRST + "raw = MatMul hidden head; low = Div raw cap; bent = Tanh low; logits = Mul cap bent",
    "an exchanged matrix": FIRST + "turned = Transpose embed; logits = MatMul hidden turned",
    "blocks beside the whole": FIRST
    + "blocks4 = Reshape hidden blocks; squares = Mul blocks4 blocks4; back = Reshape squares whole; "
    + "both = Concat:axis=0 hidden back; products = MatMul both head; one two = Split:axis=0,num_outputs=2 products; "
    + "logits = Add one two",
    "a norm behind the product": FIRST + "raw = MatMul hidden head; logits = LayerNormalization raw bias",
    "a sum over features": FIRST
    + "total = ReduceSum hidden last_axis; less = Sub hidden total; logits = MatMul less head",
}
LEFT = {
    "positions are mixed behind": FIRST + "raw = MatMul hidden head; logits = MatMul mix raw",
    "a bias by position": FIRST
    + "raw = MatMul hidden head; again = Add raw by_position; logits = Softmax:axis=1 again",
    "a sum over positions": FIRST
    + "raw = MatMul hidden head; total = ReduceSum raw position_axis; logits = Sub raw total",
    "a norm from positions on": FIRST + "raw = MatMul hidden head; logits = LayerNormalization:axis=1 raw bias",
    "a norm scaled by position": FIRST + "raw = MatMul hidden head; logits = LayerNormalization raw by_position",
    "flattened rows": FIRST + "flat2 = Reshape hidden flat; raw = MatMul flat2 head; logits = Reshape raw three2",
    "the product is read elsewhere": FIRST + "raw = MatMul hidden head; logits = Tanh raw; other = Neg raw",
    "logits are read elsewhere": FIRST + "logits = MatMul hidden head; other = Neg logits",
    "a norm over positions": FIRST + "raw = MatMul hidden head; logits = LayerNormalization:axis=1 raw bias",
    "a norm with a scale by position": FIRST
    + "raw = MatMul hidden head; logits = LayerNormalization:axis=2 raw by_position",
    "an overridable bias": FIRST + "raw = MatMul hidden head; logits = Add raw given",
    "axes named again": FIRST
    + "raw = MatMul hidden head; less = ReduceSum:keepdims=0 raw again; logits = Concat:axis=0 less less",
    "no constant": FIRST
    + "turned = Transpose:perm=0,2,1 hidden; square = MatMul hidden turned; logits = MatMul square mixed",
}


def model_of(text: str) -> onnx.ModelProto:
    """`out out = Op:attribute=value operand operand; ...` as a model with ids int64 [rows, positions] as input."""
    nodes = [helper.make_node("Gather", ["embed", "ids"], ["embedded"])]
    for line in filter(None, map(str.strip, text.split(";"))):
        made, _, call = line.partition(" = ")
        head, *operands = call.split()
        op, _, stated = head.partition(":")
        attributes: dict[str, object] = {}
        for each in filter(None, stated.replace("0,2,1", "0+2+1").split(",")):
            key, _, value = each.partition("=")
            attributes[key] = [int(one) for one in value.split("+")] if "+" in value else int(value)
        nodes.append(helper.make_node(op, operands, made.split(), **attributes))
    outputs = ["logits", *(["other"] if "other" in text else [])]
    constants = {**CONSTANTS, "three2": np.array([ROWS, WIDTH, IDS]), "given": CONSTANTS["bias3"]}
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "positions"]),
            helper.make_tensor_value_info("given", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["rows", "positions", IDS]) for each in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("external", [False, True], ids=["weights inside", "weights beside"])
@pytest.mark.parametrize("text", THINNED.values(), ids=THINNED.keys())
def test_one_position_a_row_is_the_same_as_all_of_them(text: str, external: bool, tmp_path: Path) -> None:
    file = tmp_path / "package" / "model.onnx"
    file.parent.mkdir()
    onnx.save(model_of(text), file, save_as_external_data=external, location="model.bin", size_threshold=1024)
    model = load_graph(file, file.parent)
    found = logits_projection(model, "logits")
    assert isinstance(found, Projection)
    assert found.hidden == "mixed"
    graph = Graph("model.onnx", read_signature(file, file.parent), model, textproto=False)
    content = edited_bytes(graph, file.parent, Edited((SelectLast("place", found.hidden, found.behind, found.label),)))
    assert len(content) < 12_000, "weights were copied"
    (tmp_path / "edited.onnx").write_bytes(content)
    ids = RANDOM.integers(0, IDS, (ROWS, WIDTH))
    (every,) = ort.InferenceSession(file).run(["logits"], {"ids": ids})
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.parent))
    edited = ort.InferenceSession(tmp_path / "edited.onnx", options)
    for places in ([4, 4], [0, 3]):
        (one,) = edited.run(["logits"], {"ids": ids, "place": np.array(places).reshape(ROWS, 1, 1)})
        assert one.shape == (ROWS, 1, IDS)
        np.testing.assert_allclose(one[:, 0], every[[0, 1], places], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT.keys())
def test_a_graph_that_may_mix_positions_is_left_alone(text: str) -> None:
    assert isinstance(logits_projection(model_of(text), "logits", {"ids", "given"}), str)


def test_logits_that_come_from_no_input_are_left_alone() -> None:
    assert "do not depend" in str(logits_projection(model_of("logits = Neg by_position"), "logits"))


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_random_numbers_are_left_alone(domain: str) -> None:
    model = model_of(FIRST + "raw = MatMul hidden head; noise = RandomNormalLike raw; logits = Add raw noise")
    next(each for each in model.graph.node if each.op_type == "RandomNormalLike").domain = domain
    assert "random" in str(logits_projection(model, "logits"))


@pytest.mark.parametrize(("extent", "found"), [(1, True), ("positions", False)])
def test_an_input_with_a_default_is_what_the_graph_declares_of_it(extent: int | str, found: bool) -> None:
    """What is bound there may have other extents than the default, as far as its declaration lets them open."""
    model = model_of(FIRST + "raw = MatMul hidden head; logits = Add raw bias3")
    model.graph.input.append(helper.make_tensor_value_info("bias3", TensorProto.FLOAT, [1, extent, IDS]))
    assert isinstance(logits_projection(model, "logits"), Projection) == found


def test_an_input_with_a_default_and_no_declared_shape_may_be_anything() -> None:
    model = model_of(FIRST + "raw = MatMul hidden head; logits = Add raw bias3")
    model.graph.input.append(helper.make_tensor_value_info("bias3", TensorProto.FLOAT, None))
    assert isinstance(logits_projection(model, "logits"), str)


def test_a_constant_behind_many_nodes() -> None:
    """Each was a call of its own, which Python gives up at a thousand."""
    passed = "; ".join(f"c{at + 1} = Identity c{at}" for at in range(1200))
    model = model_of(FIRST + f"raw = MatMul hidden head; c0 = Identity bias; {passed}; logits = Add raw c1200")
    assert isinstance(logits_projection(model, "logits"), Projection)
