"""Hints through the command into plan and manifest, and that a program with them gives what one without gives."""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main
from genai_compiler.driver import Options
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_hints

from tests.conftest import FIXTURES
from tests.hints.packages import package, placing

HINTS: dict[str, Any] = {
    "placement": [placing({"names": ["first"]}, "gpu:0", reason="large")],
    "memory": [{"action": "arena_size", "device": {"type": "cpu"}, "bytes": 0, "selector": {"names": ["second"]}}],
    "scheduling": [{"action": "chunk_size", "chunk_size": 16}],
}


def test_hints_of_a_file_reach_plan_and_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, file, out = package(tmp_path / "package"), tmp_path / "mine.json", tmp_path / "out"
    file.write_text(json.dumps(HINTS, indent=1))
    assert main([str(root), "-o", str(out), "--hints", str(file)]) == 0
    plan = (out / "plan.txt").read_text("utf-8")
    assert "session first: prefers gpu:0\n" in plan
    decisions = [each for each in plan.splitlines() if each.startswith("decision hints: ")]
    assert len(decisions) == 3
    assert all("mine.json:" in each for each in decisions)
    assert json.loads((out / "manifest.json").read_text())["placement"] == {
        "first": {"device": "gpu", "index": 0, "memory": 0, "cpu_arena": True},
        "second": {"device": "", "index": None, "memory": 0, "cpu_arena": False},
    }
    assert str(tmp_path) not in plan


def test_hints_of_a_program_are_plain_data_or_typed(tmp_path: Path) -> None:
    root = package(tmp_path / "package")
    plans = [
        compile_package(root, tmp_path / f"out{at}", Options(hints=each)).plan
        for at, each in enumerate((HINTS, parse_hints(HINTS, Places("any"))))
    ]
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[0].placements == plans[1].placements != ()
    with pytest.raises(CompileError) as refused:
        compile_package(root, tmp_path / "out", Options(hints={"placement": 1}))
    assert [each.where.file for each in refused.value.problems] == ["Options.hints"]


def test_a_contradiction_refuses_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, file = package(tmp_path / "package"), tmp_path / "mine.json"
    forced = [placing({"names": ["first"]}, device, "force") for device in ("gpu", "cpu")]
    file.write_text(json.dumps({"placement": forced}, indent=1))
    assert main([str(root), "-o", str(tmp_path / "out"), "--hints", str(file)]) == 2
    err = capsys.readouterr().err
    assert "conflicting-hints" in err
    lines = [at for at, line in enumerate(file.read_text().splitlines(), 1) if '"selector"' in line]
    assert all(f"mine.json:{line - 1} placement" in err for line in lines)
    assert not (tmp_path / "out").exists()


def test_hints_inside_metadata_have_no_place(tmp_path: Path) -> None:
    root = package(tmp_path / "package")
    file = root / "inference_metadata.yaml"
    file.write_text(file.read_text() + "execution_hints: {placement: []}\n")
    with pytest.raises(CompileError) as refused:
        compile_package(root)
    (problem,) = refused.value.problems
    assert (problem.code, problem.path) == ("unknown-field", "execution_hints")
    assert "--hints" in problem.help


def test_hints_change_no_result(tmp_path: Path) -> None:
    root, values = package(tmp_path / "package"), {"v": np.array([[1.0, -2.0]], np.float32)}
    compile_package(root, tmp_path / "plain")
    compile_package(root, tmp_path / "hinted", Options(hints=HINTS))
    # what hints place has a session of its own, which is all that may differ
    islands = [
        (tmp_path / name / "plan.txt").read_text("utf-8").count("= invoke island_") for name in ("plain", "hinted")
    ]
    assert islands == [1, 0]
    results = []
    for name in ("plain", "hinted"):
        with genai_runtime.load(tmp_path / name, threads=1) as model:
            results.append(model.run(values)["out"].tolist())
    assert results == [[[1.0, -2.0]], [[1.0, -2.0]]]  # eight times Neg


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_tokens_are_the_same(case: str, tmp_path: Path) -> None:
    everything = {"placement": [placing({"pattern": "*"}, "gpu", "force")], "memory": [
        {"action": "arena_size", "device": {"type": "cpu"}, "bytes": 0}]}  # fmt: skip
    compile_package(FIXTURES / case, tmp_path / "plain")
    compile_package(FIXTURES / case, tmp_path / "hinted", Options(hints=everything))
    tokens = []
    for name in ("plain", "hinted"):
        with genai_runtime.load(tmp_path / name, threads=1) as model:
            tokens.append(model.generate([1, 9, 14], max_new_tokens=8, stop_on_eos=False).tokens)
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 8


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this build of ONNX Runtime has CUDA"
)
def test_a_device_that_is_not_there_is_a_notice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compile_package(package(tmp_path / "package"), tmp_path / "out", Options(hints=HINTS))
    genai_runtime.load(tmp_path / "out", threads=1).close()
    assert caplog.messages == [], "compiling has told it once, and no result depends on it"
    with caplog.at_level("INFO", "genai_runtime"), genai_runtime.load(tmp_path / "out", threads=1) as model:
        (notice,) = model.notices
        assert "'first'" in notice
        assert "gpu" in notice
        assert "CPUExecutionProvider" in notice
        assert caplog.messages == [notice]
        assert model.describe()["providers"] == {each: ["CPUExecutionProvider"] for each in ("first", "second")}
    with genai_runtime.load(tmp_path / "out", providers=["cpu"], threads=1) as model:
        assert model.notices == ()  # the user has said where


def test_a_damaged_placement_is_a_damaged_folder(tmp_path: Path) -> None:
    compile_package(package(tmp_path / "package"), tmp_path / "out", Options(hints=HINTS))
    file = tmp_path / "out" / "manifest.json"
    data = json.loads(file.read_text())
    for wrong in (
        [],
        {"first": 3},
        {"first": {"device": "gpu"}},
        {"first": {**data["placement"]["first"], "index": "a"}},
    ):
        file.write_text(json.dumps({**data, "placement": wrong}))
        with pytest.raises(genai_runtime.LoadError) as refused:
            genai_runtime.load(tmp_path / "out")
        assert refused.value.code == "damaged-folder"


def test_hints_work_without_artifacts_too(tmp_path: Path) -> None:
    root = package(tmp_path / "package")
    (root / "first.onnx").unlink()
    hints = {"placement": [placing({"names": ["first"]}, "gpu"), placing({"op_types": ["Neg"]}, "npu")]}
    plan = compile_package(root, options=Options(artifacts=False, hints=hints)).plan
    assert plan is not None
    assert {each.component: each.device for each in plan.placements} == {"first": "gpu", "second": "npu"}


def test_a_file_of_hints_in_the_package_is_not_read_by_itself(tmp_path: Path) -> None:
    root = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    (root / "execution_hints.json").write_text(json.dumps({"placement": [placing({"pattern": "*"}, "gpu")]}))
    plan = compile_package(root, tmp_path / "out").plan
    assert plan is not None
    assert plan.placements == ()
    assert [each for each in plan.decisions if "execution_hints.json" in each and "--hints" in each] != []
