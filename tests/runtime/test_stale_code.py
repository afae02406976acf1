"""Compiled code that Python kept of an executor: never taken for that of another one."""

import json
import os
import shutil
import sys
from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import compile_package

from tests.conftest import FIXTURES

PROMPT = [1, 9, 14]


def compiled(folder: Path, context: int) -> Path:
    """A decoder whose texts have so many positions; that number is all that its executor differs in."""
    shutil.copytree(FIXTURES / "tiny-gqa-v1", folder)
    config = json.loads((folder / "genai_config.json").read_text("utf-8"))
    config["model"]["context_length"] = config["search"]["max_length"] = context
    (folder / "genai_config.json").write_text(json.dumps(config), "utf-8")
    compile_package(folder, folder.with_suffix(".compiled"))
    return folder.with_suffix(".compiled")


def iterations(folder: Path) -> int:
    """Of a request that leaves their number to the executor's own default."""
    with genai_runtime.load(folder, threads=1) as model:
        return model.run({"request.input_ids": [PROMPT]}, stop_on_eos=False).iterations


def test_an_executor_of_the_same_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a folder is unpacked over an older one from an archive whose files all have one time stamp."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    first, second = compiled(tmp_path / "first" / "p", 20), compiled(tmp_path / "second" / "p", 30)
    for folder in (first, second):
        os.utime(folder / "executor.py", (1, 1))
    assert (first / "executor.py").stat().st_size == (second / "executor.py").stat().st_size
    before = iterations(first)
    assert list((first / "__pycache__").iterdir()), "there is compiled code that could be taken"
    shutil.copytree(tmp_path / "second", tmp_path / "first", dirs_exist_ok=True)
    assert iterations(first) == iterations(second) == before + 10


def test_code_that_was_kept_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    folder = compiled(tmp_path / "first", 20)
    iterations(folder)
    (kept,) = (folder / "__pycache__").iterdir()
    content, stamp = kept.read_bytes(), kept.stat().st_mtime_ns
    for name in [each for each in sys.modules if each.startswith("genai_executor_")]:
        monkeypatch.delitem(sys.modules, name)
    iterations(folder)
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == (content, stamp)
