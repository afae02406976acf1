"""genai-compile --memory as a command: what it prints, and that it writes only what was asked for."""

import json
import re
import shutil
from pathlib import Path

import onnx
import pytest
from genai_compiler import compile_package
from genai_compiler.cli import main
from genai_compiler.memory_report import memory_lines
from genai_compiler.plan.memory import MemoryPlan, Term
from genai_compiler.plan.memory_runs import Lengths

from tests.conftest import FIXTURES


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package alone in a folder."""
    return shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")


def test_it_prints_a_table_and_writes_nothing(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package), "--memory", "--batch", "2", "--prompt", "8", "--context", "16"]) == 0
    out = capsys.readouterr().out
    assert "batch 2, prompt 8, context 16 tokens" in out
    assert "one more token of one row costs 512 bytes of state" in out
    assert out.count("<- the peak") == 1
    compile_package(package, package.parent.parent / "compiled")
    graph = onnx.load(next((package.parent.parent / "compiled").rglob("*.onnx")), load_external_data=False).graph
    assert f"1 session, {len(graph.node)} nodes" in out
    sizes = [each for each in out.splitlines() if re.search(r"[0-9.]+ MB", each) and "MB are" not in each]
    assert len({each.index(" MB") for each in sizes}) == 1, "the column of sizes is straight"
    assert [each.name for each in package.parent.iterdir()] == ["package"]


def test_with_an_output_folder_it_compiles_as_well(package: Path, tmp_path: Path) -> None:
    assert main([str(package), "--memory", "-q", "-o", str(tmp_path / "made")]) == 0
    assert (tmp_path / "made" / "executor.py").exists()


def test_as_data_it_is_one_object(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package), "--memory", "--prompt", "8", "--context", "16", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    memory = found["memory"]
    assert memory["bytes_per_token"] == 512
    assert memory["peak"] == max(each["bytes"] for each in memory["phases"])
    assert sum(each["bytes"] for each in memory["terms"]) == memory["phases"][-1]["bytes"]


def test_problems_come_instead(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "model.onnx").unlink()
    assert main([str(package), "--memory", "--format", "json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [each["code"] for each in found["problems"]] == ["missing-file"]
    assert "memory" not in found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--batch", "2"], "--batch says what --memory predicts for"),
        (["--memory", "--prompt", "0"], "--prompt takes a number from 1"),
        (["--memory", "--batch", str(1 << 40)], "--batch takes a number from 1"),
        (["--memory", "--prompt", "9", "--context", "8"], "--context counts the prompt as well"),
        (["--memory", "--no-artifacts"], "it can't go with --no-artifacts"),
        (["--memory", "--format", "sarif"], "it can't go with"),
    ],
)
def test_what_has_no_meaning_is_refused(
    package: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(package), *options])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "asked", "phases"),
    [
        ("tiny-embedder-v2", "batch 1, 512 tokens a row", {"one run"}),
        ("tiny-denoiser", "batch 1, 512 tokens a row", {"before the loop", "the loop"}),
    ],
)
def test_where_no_tokens_come_out_nothing_is_said_of_them(
    case: str, asked: str, phases: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FIXTURES / case), "--memory"]) == 0
    out = capsys.readouterr().out
    assert f"memory of a process: {asked}\n" in out
    assert phases <= {each[4:].split("  ")[0] for each in out.splitlines() if each.startswith("  = ")}
    for words in ("one more token", "context 2048", "up to the context", "= prompt"):
        assert words not in out
    assert "taken as 1 of inputs, as 2048 (--context) of what is made" in out


def test_what_takes_no_tokens_is_said_to_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A graph of pictures alone: pixels in, features out."""
    (tmp_path / "p").mkdir()
    shutil.copyfile(FIXTURES / "tiny-vision-v2" / "vision.onnx", tmp_path / "p" / "model.onnx")
    (tmp_path / "p" / "config.json").write_text("{}")
    assert main([str(tmp_path / "p"), "--memory"]) == 0
    out = capsys.readouterr().out.partition("memory of a process: ")[2]
    assert out.startswith("batch 1\n")
    assert "token" not in out.replace("a tokenizer", "")
    assert "tokenizer" not in out


def test_of_two_phases_as_large_one_is_the_peak() -> None:
    found = MemoryPlan(Lengths(1, 8, 16, 0), 0, (Term("process", 5, "it"),), (("loaded", 5), ("one", 7), ("two", 7)))
    (marked,) = [each for each in memory_lines(found) if "<- the peak" in each]
    assert marked.strip().startswith("= one ")
