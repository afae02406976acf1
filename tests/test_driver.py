"""The compiler's stages joined: what they find out reaches the caller."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError, Problem, cli, compile_package, convert, driver
from genai_compiler.cli import main
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Emit, Plan
from genai_compiler.problem import InternalError, Place, Severity
from genai_compiler.read.load import load_package

from tests.conftest import FIXTURES

PACKAGE = FIXTURES / "session-counter"
DOUBT = Problem("a-doubt", Place("inference_metadata.yaml", 3), "x", "something is odd", "", Severity.WARNING)
FAULT = Problem("a-fault", Place("model.onnx"), "y", "something is wrong")


def test_a_warning_about_the_document_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "check_document", lambda *_: (DOUBT,))
    assert compile_package(PACKAGE, tmp_path / "made").problems == (DOUBT,)
    assert main([str(PACKAGE), "-o", str(tmp_path / "again")]) == 0
    assert "warning: a-doubt: something is odd" in capsys.readouterr().err


def test_a_warning_about_the_document_hides_no_fault_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "check_document", lambda *_: (DOUBT,))
    monkeypatch.setattr(driver, "check_admission", lambda *_: (FAULT,))
    with pytest.raises(CompileError) as refused:
        compile_package(PACKAGE, tmp_path / "made")
    assert refused.value.problems == (DOUBT, FAULT)


def test_a_pass_that_changes_the_order_of_effects_is_our_fault_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reverse(plan: Plan, profile: Profile) -> Plan:
        """Every value of this fixture's emits is there before the first of them."""
        emits = [op for op in plan.body if isinstance(op, Emit)]
        others = [op for op in plan.body if not isinstance(op, Emit)]
        return replace(plan, body=(*others, *reversed(emits)))

    monkeypatch.setattr(driver, "PASSES", (reverse,))
    with pytest.raises(InternalError, match="internal error in reverse: the order of effects has changed"):
        compile_package(PACKAGE, tmp_path / "made")


def raising(failure: Exception) -> Callable[..., Any]:
    def fails(*_: object, **__: object) -> Any:
        raise failure

    return fails


STAGES_WITHIN = {"load_package": "read", "build": "build", "emit_executor": "emit", "graph_files": "emit"}
"""Function of the driver -> the stage that it belongs to."""


@pytest.mark.parametrize("name", STAGES_WITHIN)
@pytest.mark.parametrize(
    "bug", [KeyError("x"), ModuleNotFoundError("No module named 'genai_compiler.lost'", name="genai_compiler.lost")]
)
def test_a_bug_of_any_stage_is_told_as_ours(
    name: str, bug: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, name, raising(bug))
    assert cli.main([str(PACKAGE), "-o", str(tmp_path / "made")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"internal error in {STAGES_WITHIN[name]}: {type(bug).__name__}: {bug}\nThis is a bug of")
    assert ("The plan it had:\nplan" in said) == (STAGES_WITHIN[name] == "emit")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("lost", ["genai_compiler.passes.lost", "genai_runtime", "resource"])
def test_a_missing_module_of_ours_is_told_with_the_pass_and_its_plan(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fuse(plan: Plan, profile: Profile) -> Plan:
        raise ModuleNotFoundError(f"No module named {lost!r}", name=lost)

    monkeypatch.setattr(driver, "PASSES", (fuse,))
    with pytest.raises(InternalError, match=f"internal error in fuse: .*{lost}") as bug:
        driver.plan_package(load_package(PACKAGE), "emit", lambda _stage, _text: None)
    assert bug.value.plan_text.startswith("plan ")


@pytest.mark.parametrize("lost", ["onnx_ir", "onnx.reference", "ml_dtypes"])
def test_a_missing_library_names_the_extra_wherever_it_is_missed(
    lost: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "build", raising(ModuleNotFoundError(f"No module named {lost!r}", name=lost)))
    assert cli.main([str(PACKAGE), "--check"]) == 2
    said = capsys.readouterr().err
    assert said == (
        f"genai-compile needs its 'compile' extra ({lost.partition('.')[0]} is not installed): "
        "pip install 'genai-compile[compile]'\n"
    )


def test_a_damaged_installation_is_told_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = ModuleNotFoundError("No module named 'genai_compiler.driver'", name="genai_compiler.driver")
    monkeypatch.setattr(cli, "parse", raising(lost))
    assert cli.main([str(PACKAGE)]) == 1
    assert capsys.readouterr().err.startswith("a module is missing, genai_compiler.driver: ")


def test_a_bug_in_convert_is_told_as_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(convert, "document_text", raising(KeyError("x")))
    assert cli.main(["convert", str(FIXTURES / "tiny-gqa-v1")]) == 1
    assert capsys.readouterr().err.startswith("internal error in convert: KeyError: 'x'\nThis is a bug of")
