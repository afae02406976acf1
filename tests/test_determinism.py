"""Same package, same bytes: every stage and the executor, under any hash seed, from any folder, by any Python.

The golden files prove the last for whatever Python runs these tests; further interpreters in which the distribution is
installed are found by name (python3.11 ...), or named in GENAI_COMPILE_PYTHONS, separated like PATH.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import CASES, FIXTURES, Traced
from tests.data import ROOT

SCRIPT = """
import hashlib, json, sys
from pathlib import Path
from genai_compiler import CompileError, compile_package

digests = {}
for package in sorted(Path(sys.argv[1]).iterdir()):
    texts = {}
    try:
        compile_package(package, out=Path(sys.argv[2]) / package.name, trace=texts.__setitem__)
    except CompileError as refused:
        texts["problems"] = f"{refused}\\n"
    else:
        for name in ("plan.txt", "executor.py"):
            texts[name] = (Path(sys.argv[2]) / package.name / name).read_text("utf-8")
    digests[package.name] = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
print(json.dumps(digests))
"""
Digests = dict[str, dict[str, str]]


def digests(python: str, packages: Path, out: Path, cwd: Path, seed: str) -> Digests:
    """What a fresh interpreter makes of every fixture."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(_sources())}
    command = [python, "-c", SCRIPT, str(packages), str(out)]
    run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found: Digests = json.loads(run.stdout)
    return found


def _sources() -> list[str]:
    return [str(ROOT / "compiler"), str(ROOT / "runtime")]


@pytest.fixture(scope="module")
def here(compiled: Callable[[str], tuple[Path, Traced]]) -> Digests:
    """The digests of this process."""
    found: Digests = {}
    for case in CASES:
        folder, traced = compiled(case)
        texts = dict(traced.stages)
        if traced.problems:
            texts["problems"] = traced.problems
        else:
            texts |= {name: (folder / name).read_text("utf-8") for name in ("plan.txt", "executor.py")}
        found[case] = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return found


@pytest.mark.parametrize("seed", ["0", "1"])
def test_hash_seeds(here: Digests, tmp_path: Path, seed: str) -> None:
    assert digests(sys.executable, FIXTURES, tmp_path, ROOT, seed) == here


def test_another_folder_and_working_directory(here: Digests, tmp_path: Path) -> None:
    elsewhere = tmp_path / "some where" / "packages"
    shutil.copytree(FIXTURES, elsewhere)
    assert digests(sys.executable, elsewhere, tmp_path / "out", tmp_path, "2") == here


@cache
def other_pythons() -> list[str]:
    """Interpreters of other versions on this machine, named first, found after."""
    named = [each for each in os.environ.get("GENAI_COMPILE_PYTHONS", "").split(os.pathsep) if each]
    versions = [f"python3.{minor}" for minor in range(11, 16) if minor != sys.version_info.minor]
    return named or [path for each in versions if (path := shutil.which(each))]


def test_other_versions_of_python(here: Digests, tmp_path: Path) -> None:
    tried: list[str] = []
    for number, python in enumerate(other_pythons()):
        ready = [python, "-c", "import importlib.metadata, genai_compiler; importlib.metadata.version('genai-compile')"]
        if subprocess.run(ready, capture_output=True).returncode == 0:
            tried.append(python)
            assert digests(python, FIXTURES, tmp_path / str(number), tmp_path, "0") == here, python
    if not tried:
        pytest.skip(f"no Python of another version has genai-compile installed (found {other_pythons() or 'none'})")
