"""A decoder that gives [rows, vocab] instead of [rows, positions, vocab], beside a shared buffer and growing caches.

And decoders that give logits of another width than they declare.
"""

import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from genai_runtime import ExecutionError
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.lower.packages import VOCABULARY, Recipe, decoder, write_package


def last_only(case: str, folder: Path) -> Path:
    """The fixture with one node more: the last position of its logits, without the axis."""
    shutil.copytree(FIXTURES / case, folder)
    model = onnx.load(folder / "model.onnx")
    (port,) = (each for each in model.graph.output if each.name == "logits")
    vocabulary = port.type.tensor_type.shape.dim[2].dim_value
    for node in model.graph.node:
        for at, name in enumerate(node.output):
            if name == "logits":
                node.output[at] = "logits.all"
    model.graph.initializer.append(numpy_helper.from_array(np.array(-1), "minus one"))
    model.graph.node.append(helper.make_node("Gather", ["logits.all", "minus one"], ["logits"], axis=1))
    rows = port.type.tensor_type.shape.dim[0].dim_param
    port.CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, [rows, vocabulary]))
    onnx.save(model, folder / "model.onnx")
    compile_package(folder, out=folder.with_suffix(".compiled"))
    return folder.with_suffix(".compiled")


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1"])
def test_the_tokens_are_those_of_the_whole_logits(
    case: str, tmp_path: Path, model: "object", compiled: "object"
) -> None:
    with genai_runtime.load(last_only(case, tmp_path / case)) as short, genai_runtime.load(compiled(case)[0]) as whole:  # type: ignore[operator]
        for batch in ([[1, 9, 14]], [[1, 9, 14], [7, 3, 2]], [[1, 9, 14], [7]]):
            said = [
                [row.tokens for row in each.generate(batch=batch, max_new_tokens=8, stop_on_eos=False).rows]
                for each in (short, whole)
            ]
            assert said[0] == said[1]
            assert len(said[0][0]) == 8


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("op", ["gqa", "attention"])
@pytest.mark.parametrize("width", [1, VOCABULARY - 1, VOCABULARY + 1])
def test_logits_of_another_width_than_declared_fail_by_name(width: int, op: str, drafts: bool, tmp_path: Path) -> None:
    """ONNX Runtime lets them through; numpy would tell of arrays, or repeat a single score for every token."""
    model = decoder(Recipe(op=op))
    graph = model.graph
    (cast,) = (node for node in graph.node if "logits" in node.output)
    cast.output[0] = "right"
    graph.node.append(helper.make_node("Slice", ["right", "none", "wide", "last"], ["logits"]))
    if width > VOCABULARY:
        graph.node[-1].CopyFrom(helper.make_node("Pad", ["right", "pads"], ["logits"]))
    for name, numbers in {"none": [0], "wide": [width], "last": [2], "pads": [0, 0, 0, 0, 0, 1]}.items():
        graph.initializer.append(numpy_helper.from_array(np.array(numbers), name))
    folder = write_package(tmp_path / "p", model, {"model": {"draft": {"filename": "draft.onnx"}}} if drafts else {})
    onnx.save(decoder(Recipe(op=op)), folder / "draft.onnx")
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        for prompts in ([[1, 9, 14]], [[1, 9, 14], [7]]):
            with pytest.raises(ExecutionError, match=f"{width}.* where it declares .*{VOCABULARY}") as caught:
                _ = loaded.generate(batch=prompts, max_new_tokens=8, speculate=drafts).rows
            assert caught.value.code == "step-failed"


def reshaped(file: Path, output: str, shape: list[int]) -> None:
    """The graph with an output of another shape than it declares: what is computed nobody sees before it runs."""
    model = onnx.load(file)
    graph = model.graph
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = ["right" if name == output else name for name in names]
    graph.initializer.append(numpy_helper.from_array(np.array(shape), "shape.stated"))
    graph.initializer.append(numpy_helper.from_array(np.array([0]), "shape.none"))
    part = "right"
    if 0 in shape:
        part = "part"
        graph.initializer.append(numpy_helper.from_array(np.array([-1]), "axis.last"))
        graph.node.append(helper.make_node("Slice", ["right", "shape.none", "shape.none", "axis.last"], [part]))
    graph.node.append(helper.make_node("Shape", ["right"], ["extents"]))
    graph.node.append(helper.make_node("ReduceMin", ["extents"], ["least"], keepdims=1))
    graph.node.append(helper.make_node("Mul", ["least", "shape.none"], ["zero"]))
    graph.node.append(helper.make_node("Add", ["shape.stated", "zero"], ["shape"]))
    graph.node.append(helper.make_node("Reshape", [part, "shape"], [output], allowzero=1))
    onnx.save(model, file)


@pytest.mark.parametrize(
    ("case", "file", "output", "shape"),
    [
        ("tiny-chained-drafts", "draft.onnx", "logits", [1, 1, 0]),
        ("tiny-chained-drafts", "draft.onnx", "carry", [1, 1, 1, -1]),
        ("tiny-chained-drafts", "model.onnx", "hidden_states", [1, 1, 1, -1]),
        ("tiny-stages-v1", "lm_head.onnx", "logits", [1, 1, 0]),
        ("tiny-shifted-v1", "lm_head.onnx", "logits", [1, 1, 0]),
    ],
)
def test_shapes_that_only_numpy_would_see_fail_by_name(
    case: str, file: str, output: str, shape: list[int], tmp_path: Path
) -> None:
    shutil.copytree(FIXTURES / case, tmp_path / "p")
    reshaped(tmp_path / "p" / file, output, shape)
    compile_package(tmp_path / "p", out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded, pytest.raises(ExecutionError) as caught:
        _ = loaded.generate([1, 9, 14], max_new_tokens=8, stop_on_eos=False).rows
    assert caught.value.code == "step-failed"
