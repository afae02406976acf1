"""Odd places on both command lines: `-`, folders for files, files for folders, endless names, places one may not write.

Each is told by its option before anything is read or loaded, in a message that stays short; nothing is left behind.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import driver
from genai_compiler.cli import main as compile_main
from genai_compiler.emit import target as target_module
from genai_runtime.cli import main as run_main

from tests.conftest import FIXTURES

ENDLESS = "x" * 5000
STREAM = "argument -o/--output: '-' is no file: nothing goes over standard streams; ./- is one called so"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in a folder where the command is run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    return shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")


def refused(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], *words: object) -> str:
    before = sorted(Path.cwd().rglob("*"))
    try:
        code: object = main([str(each) for each in words])
    except SystemExit as left:
        code = left.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert len(err) < 1200
    assert sorted(Path.cwd().rglob("*")) == before
    assert Path("file").read_text() == "kept"
    return err


# ---- genai-compile ---------------------------------------------------------------------------------------------------

FOLDERS = [
    ("-", STREAM),
    ("file/below", "disk-failed: can't read or write: Not a directory"),
    (ENDLESS, "disk-failed: can't read or write: File name too long"),
    (f"folder/{ENDLESS}", "File name too long"),
    ("file", "output-exists: 'file' exists and is no folder"),
]


@pytest.mark.parametrize(("place", "said"), FOLDERS, ids=[each[:8] for each, _ in FOLDERS])
@pytest.mark.parametrize("more", [[], ["--bundle", "--force"], ["--memory"]], ids=str)
def test_a_compiled_folder(
    package: Path,
    place: str,
    said: str,
    more: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "load_package", read)
    assert said in refused(compile_main, capsys, package, "-o", place, *more)


def read(*_: object, **__: object) -> None:
    raise AssertionError("the package was read first")


@pytest.mark.parametrize("place", ["-", "file/below", ENDLESS], ids=lambda each: each[:8])
def test_a_plan_alone(package: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(compile_main, capsys, package, "--no-artifacts", "-o", place)
    assert STREAM in said if place == "-" else "disk-failed" in said


FILES = [
    ("-", STREAM),
    ("folder", "bad-output: 'folder' is a folder"),
    ("none/x", "bad-output: 'none/x' lies in a folder that is not there"),
    ("file/x", "disk-failed: can't read or write: Not a directory"),
    (ENDLESS, "disk-failed: can't read or write: File name too long"),
]


@pytest.mark.parametrize(("place", "said"), FILES, ids=[each[:8] for each, _ in FILES])
@pytest.mark.parametrize("force", [[], ["--force"]], ids=str)
def test_a_converted_document(
    package: Path,
    place: str,
    said: str,
    force: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("genai_compiler.convert.load_package", read)
    assert said in refused(compile_main, capsys, "convert", package, "-o", place, *force)


@pytest.mark.parametrize("place", ["-", "folder", "file/x", ENDLESS], ids=lambda each: each[:8])
def test_a_table_of_costs(
    package: Path, place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genai_compiler.costs.calibrate._measured", read)
    refused(compile_main, capsys, "--calibrate", "-o", place)


@pytest.mark.parametrize("option", ["--hints", "--costs"])
@pytest.mark.parametrize("place", ["-", "folder", "none", ENDLESS], ids=lambda each: each[:8])
def test_a_file_to_read(
    package: Path,
    option: str,
    place: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "load_package", read)
    refused(compile_main, capsys, package, option, place)


@pytest.mark.parametrize("command", [[], ["convert"]], ids=str)
@pytest.mark.parametrize("name", ["-", ENDLESS, f"{ENDLESS}/below"], ids=lambda each: each[:8])
def test_a_package_that_can_be_none(
    package: Path, command: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(compile_main, capsys, *command, name)
    assert "argument PACKAGE: '-' is no file" in said if name == "-" else "no-package" in said


def test_a_folder_without_permission(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere: the operating system's refusal is put in its place."""
    monkeypatch.setattr(driver, "load_package", read)
    monkeypatch.setattr(target_module, "clear_leftovers", read)
    real = os.open

    def denied(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", denied)
    said = refused(compile_main, capsys, package, "-o", "made")
    assert "disk-failed: can't read or write: Permission denied" in said


def test_as_data_it_has_the_code_too(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_main([str(package), "-o", "file/below", "--format", "json"]) == 2
    (told,) = json.loads(capsys.readouterr().out)["problems"]
    assert (told["code"], told["file"]) == ("disk-failed", "file/below")


def test_dot_slash_dash_is_a_name(package: Path) -> None:
    assert compile_main([str(package), "-o", "./-", "-q"]) == 0
    assert (package.parent / "-" / "executor.py").is_file()
    assert compile_main(["convert", str(package), "-o", "folder/-", "-q"]) == 0
    assert (package.parent / "folder" / "-").is_file()


# ---- genai-run -------------------------------------------------------------------------------------------------------

WRITTEN = ["-o", "--save", "--profile"]
READ = ["--image", "--audio"]


@pytest.mark.parametrize("option", [*WRITTEN, *READ])
@pytest.mark.parametrize("place", ["-", "folder", "none/x", "file/x", ENDLESS], ids=lambda each: each[:8])
def test_a_file_of_a_request_is_looked_at_before_the_folder(
    package: Path, option: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no compiled folder."""
    said = refused(run_main, capsys, "absent", "--prompt", "hello", option, place)
    assert option in said
    assert "not-compiled" not in said
    assert said.startswith("genai-run: ") or "'-' is no file" in said


@pytest.mark.parametrize("value", ["-", "none.npy", f"{ENDLESS}.npy"], ids=lambda each: each[:8])
def test_an_array_of_a_request_too(package: Path, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(run_main, capsys, "absent", "--task", "t", "--input", f"x={value}")
    assert "argument --input: '-' is no file" in said if value == "-" else " no-such-file: --input x" in said


def test_speech_without_a_place_or_to_another_form(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert " no-file: " in refused(run_main, capsys, "absent", "--speech", "hello")
    assert " file-ending: " in refused(run_main, capsys, "absent", "--speech", "hello", "-o", "a.mp3")


@pytest.mark.parametrize("name", ["-", ENDLESS, "file", "folder"], ids=lambda each: each[:8])
def test_a_folder_that_is_none(package: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(run_main, capsys, name, "--prompt", "hello")
    assert "argument DIR: '-' is no file" in said if name == "-" else said.startswith("genai-run: ")
