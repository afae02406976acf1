"""A tool that is interrupted says so in one line and ends with 130, wherever the interrupt comes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TOOLS = sorted(
    ".".join(each.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for each in (ROOT / "tools").rglob("*.py")
    if '__name__ == "__main__"' in each.read_text("utf-8")
)
"""All that is run by `python -m`."""

AT_AN_IMPORT = """
import builtins, signal, sys
real = builtins.__import__
def interrupted(*given, **named):
    if getattr(sys, "argv", ["-m"])[0].endswith(".py"):
        builtins.__import__ = real
        signal.raise_signal(signal.SIGINT)
    return real(*given, **named)
builtins.__import__ = interrupted
"""
AT_WORK = """
import argparse, signal
def interrupted(*given):
    signal.raise_signal(signal.SIGINT)
argparse.ArgumentParser.parse_args = interrupted
"""


def run(module: str, moment: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "sitecustomize.py").write_text(moment, "utf-8")
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-m", module]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )


def test_the_list_of_tools_is_not_empty() -> None:
    assert {"tools.bench", "tools.smollm2", "tools.make_rules"} <= set(TOOLS)


@pytest.mark.parametrize("module", TOOLS)
def test_an_interrupt_among_the_imports(module: str, tmp_path: Path) -> None:
    done = run(module, AT_AN_IMPORT, tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


AT_WORK_TOO = [
    "tools.serve_requests",
    "tools.bench",
    "tools.compile_series",
    "tests.property.fuzz",
    "tests.property.walk",
]


@pytest.mark.parametrize("module", AT_WORK_TOO)
def test_an_interrupt_at_work(module: str, tmp_path: Path) -> None:
    done = run(module, AT_WORK, tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("more", ["", " from stop"])
def test_what_fails_on_the_way_out_of_an_interrupt_is_none_of_its_own(more: str, tmp_path: Path) -> None:
    work = AT_WORK.replace(
        "    signal.raise_signal(signal.SIGINT)\n",
        "    try:\n        signal.raise_signal(signal.SIGINT)\n    except KeyboardInterrupt as stop:\n"
        f"        raise RuntimeError('the child has ended'){more}\n",
    )
    assert "the child" in work
    done = run("tools.serve_requests", work, tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_a_fault_still_has_its_traceback(tmp_path: Path) -> None:
    done = run("tools.serve_requests", AT_WORK.replace("signal.raise_signal(signal.SIGINT)", "1 / 0"), tmp_path)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
