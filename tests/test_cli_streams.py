"""genai-compile's streams and environment: terminals, readers that go away, what is not installed."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from genai_compiler.cli import main
from genai_compiler.driver import STAGES

from tests.conftest import FIXTURES
from tests.test_cli import WRITTEN, names, package

__all__ = ["package"]


def command(*arguments: object, script: str = "") -> list[str]:
    """The command line of genai-compile in a process of its own, after `script` has run there."""
    start = f"import sys\n{script}\nfrom genai_compiler.cli import main\nsys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", start, *map(str, arguments)]


def test_characters_that_the_terminal_lacks(package: Path) -> None:
    """A name of the package is escaped; a document that is written is UTF-8, whatever the terminal has."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    named = package.rename(package.parent / "gr\u00fc\u00df")
    ended = subprocess.run(command(named), capture_output=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(rb"gr\xfc\xdf: ")
    written = subprocess.run(command("convert", named), capture_output=True, env=environment)
    assert (written.returncode, b"Traceback" in written.stderr) == (0, False)
    assert "gr\u00fc\u00df" in written.stdout.decode("utf-8")
    assert b"\r" not in written.stdout


def test_a_reader_that_goes_away_is_no_failure_of_ours(package: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        ended = subprocess.run(command(package), stdout=out, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (3, "")
    assert names(package.parent / "package.compiled") == WRITTEN


def test_progress_is_for_terminals(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    assert main([str(package)]) == 0
    assert all(stage in shown.getvalue() for stage in STAGES)
    assert shown.getvalue().endswith("\r\033[K")


@pytest.mark.parametrize("module", ["onnx", "pydantic", "yaml"])
def test_a_missing_dependency_names_the_extra(package: Path, module: str) -> None:
    ended = subprocess.run(command(package, script=f"sys.modules[{module!r}] = None"), capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines() == [
        f"genai-compile needs its 'compile' extra ({module} is not installed): pip install 'genai-compile[compile]'"
    ]


def test_a_missing_library_that_only_some_packages_need(tmp_path: Path) -> None:
    """Graphs are linked here: what does that is asked for in the middle of the passes."""
    linked = command(FIXTURES / "tiny-held-state", "-o", tmp_path / "out", script="sys.modules['onnx_ir'] = None")
    ended = subprocess.run(linked, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines() == [
        "genai-compile needs its 'compile' extra (onnx_ir is not installed): pip install 'genai-compile[compile]'"
    ]
    assert not (tmp_path / "out").exists()
    alone = command(FIXTURES / "tiny-gqa-v1", "-o", tmp_path / "out", script="sys.modules['onnx_ir'] = None")
    assert subprocess.run(alone, capture_output=True, text=True).stderr == ""


def test_compiling_needs_no_onnx_runtime(package: Path) -> None:
    ended = subprocess.run(command(package, script="sys.modules['onnxruntime'] = None"), capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
