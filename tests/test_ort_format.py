"""Graphs in ONNX Runtime's own format: refused with the command that converts them, and what that command writes runs.

Expected tokens are those of a plain ONNX Runtime loop over the graph that the file was made from.
"""

import json
import shlex
import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import onnx
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main
from genai_compiler.read.ort_format import way_out
from onnx import TensorProto, helper

from tests.conftest import FIXTURES
from tests.real_packages import GREEDY
from tests.reference.plain_loop import greedy

PROMPT = [1, 9, 14]


def write_ort(source: Path, target: Path) -> None:
    """The graph in ONNX Runtime's own format, nothing optimised."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A version 1 package whose graph is an .ort file."""
    folder = tmp_path / "p"
    shutil.copytree(FIXTURES / "tiny-gqa-v1", folder)
    write_ort(folder / "model.onnx", folder / "model.ort")
    (folder / "model.onnx").unlink()
    _name(folder, "model.ort")
    return folder


def _name(folder: Path, graph: str) -> None:
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["filename"] = graph
    (folder / "genai_config.json").write_text(json.dumps(config))


def test_such_a_graph_is_refused_and_the_help_is_a_command_that_works(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CompileError) as caught:
        compile_package(package, out=tmp_path / "out")
    (problem,) = [each for each in caught.value.problems if each.code == "ort-format"]
    command = shlex.split(problem.help.split("`")[1])
    monkeypatch.chdir(package)
    assert main(command[1:]) == 0
    _name(package, command[-1])
    compile_package(package, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate(PROMPT, max_new_tokens=8, **GREEDY).tokens
    assert made == greedy(FIXTURES / "tiny-gqa-v1" / "model.onnx", PROMPT, 8)


def test_a_folder_that_declares_nothing_names_every_such_file(package: Path, tmp_path: Path) -> None:
    (package / "genai_config.json").unlink()
    (package / "onnx").mkdir()
    shutil.copy(package / "model.ort", package / "onnx" / "encoder.ort")
    with pytest.raises(CompileError) as caught:
        compile_package(package, out=tmp_path / "out")
    found = {each.where.file: each.code for each in caught.value.problems}
    assert found == {"model.ort": "ort-format", "onnx/encoder.ort": "ort-format"}


def test_networks_inside_a_graph_survive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A graph with two branches, whose names the format drops: ONNX's checker takes it, and it computes the same."""
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    arms = [
        helper.make_graph([helper.make_node(op, ["x", "x"], ["y"])], f"arm.{op}", [], [value]) for op in ("Add", "Mul")
    ]
    node = helper.make_node("If", ["flag"], ["y"], then_branch=arms[0], else_branch=arms[1])
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph([node], "two", [flag, taken], [value])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "a.onnx")
    write_ort(tmp_path / "a.onnx", tmp_path / "a.ort")
    assert main(["convert", str(tmp_path / "a.ort"), "-o", str(tmp_path / "b.onnx")]) == 0
    onnx.checker.check_model(str(tmp_path / "b.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "b.onnx"), providers=["CPUExecutionProvider"])
    x = np.array([3, 5], np.float32)
    assert session.run(None, {"flag": np.array(True), "x": x})[0].tolist() == [6, 10]
    assert session.run(None, {"flag": np.array(False), "x": x})[0].tolist() == [9, 25]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.onnx", "a.ort", "b.onnx"]
    capsys.readouterr()


@pytest.mark.parametrize("damage", ["cut", "scrambled"])
def test_a_damaged_file_is_refused_and_nothing_is_written(
    damage: str, package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (package / "model.ort").read_bytes()
    torn = content[: len(content) // 2] if damage == "cut" else content[:8] + bytes(len(content) - 8)
    (package / "model.ort").write_bytes(torn)
    with pytest.raises(CompileError) as caught:
        compile_package(package, out=tmp_path / "out")
    assert "ort-format" in {each.code for each in caught.value.problems}
    assert main(["convert", str(package / "model.ort"), "-o", str(package / "model.onnx")]) == 2
    assert "unreadable-graph" in capsys.readouterr().err
    assert not (package / "model.onnx").exists()


def test_no_file_is_replaced_and_a_target_is_asked_for(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "model.onnx").write_text("mine")
    assert main(["convert", str(package / "model.ort"), "-o", str(package / "model.onnx")]) == 2
    assert "output-exists" in capsys.readouterr().err
    assert (package / "model.onnx").read_text() == "mine"
    assert main(["convert", str(package / "model.ort"), "-o", str(package / "absent" / "model.onnx")]) == 2
    assert "bad-output" in capsys.readouterr().err
    assert main(["convert", str(package / "model.ort")]) == 2
    assert "-o" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b.ort", "x;echo $(id) `id`.ort", "it's.ort"])
def test_the_command_for_a_file_of_any_name_is_one_command_with_that_file(name: str) -> None:
    """The name is the package's; the line is for pasting into a shell."""
    command = way_out(name).removeprefix("if you trust the file, run `").partition("` in the package's folder")[0]
    assert shlex.split(command) == ["genai-compile", "convert", name, "-o", name.removesuffix(".ort") + ".onnx"]
