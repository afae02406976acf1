"""A compiled folder in the place of a package: said by name, with what runs it and what it was made of."""

import json
import shutil
from pathlib import Path

import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import Problem
from genai_compiler.read.load import load_package

from tests.conftest import FIXTURES


def told(folder: Path) -> Problem:
    with pytest.raises(CompileError) as refused:
        load_package(folder)
    (problem,) = refused.value.problems
    return problem


def test_what_runs_it_and_what_it_was_made_of_are_told(tmp_path: Path) -> None:
    package = Path(shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package"))
    out = tmp_path / "package.compiled"
    compile_package(package, out)
    problem = told(out)
    assert (problem.code, problem.what) == (
        "compiled-folder",
        "'package.compiled' is a folder that genai-compile wrote",
    )
    assert f"genai-run {out.as_posix()} " in problem.help
    assert problem.help.endswith(f" {package.resolve().as_posix()}")
    shutil.rmtree(package)
    assert told(out).help == f"genai-run {out.as_posix()} runs it"


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"components": {"decoder": {"variants": {}}}})])
def test_another_manifest_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text, "utf-8")
    assert told(tmp_path).code == "unsupported-package-class"
