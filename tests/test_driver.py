"""The compiler's stages joined: what they find out reaches the caller."""

from pathlib import Path

import pytest
from genai_compiler import CompileError, Problem, compile_package, driver
from genai_compiler.cli import main
from genai_compiler.problem import Place, Severity

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
