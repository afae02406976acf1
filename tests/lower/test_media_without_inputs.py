"""A model of pictures that takes nothing of a request: in every dialect it is refused by name."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from genai_compiler import CompileError, compile_package
from onnx import ModelProto, helper, numpy_helper

from tests.conftest import FIXTURES
from tests.data import needs_data
from tests.real_packages import PACKAGES


def closed(model: ModelProto) -> None:
    """Every input becomes a constant of ones, open axes of length 1."""
    for each in model.graph.input:
        tensor = each.type.tensor_type
        shape = [axis.dim_value or 1 for axis in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, dtype), each.name))
    del model.graph.input[:]


def refusal(package: Path, graph: str, folder: Path) -> list[str]:
    shutil.copytree(package, folder / "p")
    model = onnx.load(folder / "p" / graph, load_external_data=False)
    closed(model)
    (folder / "p" / graph).write_bytes(model.SerializeToString())
    with pytest.raises(CompileError) as caught:
        compile_package(folder / "p", out=folder / "out")
    assert not (folder / "out").exists()
    return [each.code for each in caught.value.problems if "takes no tensor that a request brings" in each.what]


@pytest.mark.parametrize("name", ["tiny-media-v2", "tiny-budget-v1"])
def test_pipelines_and_version_1(name: str, tmp_path: Path) -> None:
    assert refusal(FIXTURES / name, "vision.onnx", tmp_path) == ["wrong-port"]


@needs_data
@pytest.mark.parametrize("name", ["mobius-gemma3_vl-og", "mobius-llava-comp"])
def test_packages_of_an_exporter(name: str, tmp_path: Path) -> None:
    (graph,) = [each.relative_to(PACKAGES / name) for each in (PACKAGES / name).glob("vision*/model.onnx")]
    assert refusal(PACKAGES / name, graph.as_posix(), tmp_path) == ["wrong-port"]
