"""A decoder that gives [rows, vocab] instead of [rows, positions, vocab], beside a shared buffer and growing caches."""

import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import FIXTURES


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
