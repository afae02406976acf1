"""Each fixture through each stage, text compared with golden/; and the generated code is clean by the usual tools.

After a change meant to alter them: `python -m pytest tests/test_golden.py --snapshot-update`, then read the diff.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from genai_compiler.driver import STAGES
from genai_compiler.passes import PASSES
from syrupy.assertion import SnapshotAssertion

from tests.conftest import CASES, GOLDEN, Traced
from tests.data import ROOT

Compiled = Callable[[str], tuple[Path, Traced]]
TOOLS = [["ruff", "check", "golden"], ["ruff", "format", "--check", "golden"], ["pyright", "golden"]]


@pytest.mark.parametrize("case", CASES)
def test_stages(case: str, compiled: Compiled, golden: Callable[[str], SnapshotAssertion]) -> None:
    for file, text in compiled(case)[1].files.items():
        assert text == golden(file)


@pytest.mark.parametrize("case", CASES)
def test_golden_holds_these_files_and_no_others(case: str, compiled: Compiled) -> None:
    there, made = {each.name for each in (GOLDEN / case).iterdir()}, set(compiled(case)[1].files)
    assert sorted(there - made) == [], f"no stage makes these: remove them from golden/{case}"
    assert sorted(made - there) == []


def test_golden_folders_are_the_fixtures() -> None:
    assert sorted(each.name for each in GOLDEN.iterdir() if each.name != "__pycache__") == CASES


@pytest.mark.parametrize("case", CASES)
def test_every_stage_is_traced(case: str, compiled: Compiled) -> None:
    traced = compiled(case)[1]
    assert traced.problems or tuple(traced.stages) == STAGES


def test_every_pass_changes_some_fixture(compiled: Compiled) -> None:
    files = {file for case in CASES for file in compiled(case)[1].files}
    unseen = [each.__name__ for each in PASSES if f"{STAGES.index(each.__name__)}-{each.__name__}.plan" not in files]
    assert unseen == ["split_opening"]  # weights of 32 MB are no fixture: tests/test_split_opening.py


def test_what_was_written_is_what_was_traced(compiled: Compiled) -> None:
    for case in CASES:
        folder, traced = compiled(case)
        if not traced.problems:
            assert (folder / "executor.py").read_text("utf-8") == traced.stages["emit"]
            assert (folder / "plan.txt").read_text("utf-8") == traced.stages[PASSES[-1].__name__]


@pytest.mark.parametrize("command", TOOLS, ids=" ".join)
def test_generated_code_is_clean(command: list[str]) -> None:
    tool = Path(sys.executable).with_name(command[0])
    found = str(tool) if tool.exists() else shutil.which(command[0])
    if found is None:
        pytest.skip(f"{command[0]} is absent: the style of generated code can't be checked")
    result = subprocess.run([found, *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
