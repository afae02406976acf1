"""The compiler's stages joined: what they find out reaches the caller."""

from dataclasses import replace
from pathlib import Path

import pytest
from genai_compiler import CompileError, Problem, compile_package, driver
from genai_compiler.cli import main
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Emit, Plan
from genai_compiler.problem import InternalError, Place, Severity

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
