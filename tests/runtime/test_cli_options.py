"""genai-run's options that do not fit a package, and files that it can't write: said before anything is loaded."""

import errno
import os
from pathlib import Path

import pytest
from genai_runtime.cli import main

from tests.runtime.test_cli import folder

__all__ = ["folder"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--prompt", "hello", "--save", "x.wav"], "--save"),
        (["--prompt", "hello", "-o", "x.png"], "-o"),
        (["--tokens", "1", "--input", "a=1"], "--input"),
        (["--chat", "hello", "--steps", "3", "--width", "8"], "--steps, --width"),
        (["--negative-prompt", "rain"], "--negative-prompt"),
    ],
)
def test_an_option_of_pictures_is_refused_for_text(
    given: list[str], said: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a package makes is known once it is loaded."""
    assert main([folder, *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"unsupported-option: {said}: this package makes text" in err


UNWRITABLE = [("none/x.out", "no-file", "there is no folder"), ("", "unwritable-file", "that is a folder")]
UNWRITABLE += [("file/x.out", "no-file", "there is no folder"), ("x" * 300, "unwritable-file", "File name too long")]


@pytest.mark.parametrize(("place", "code", "said"), UNWRITABLE)
@pytest.mark.parametrize("option", ["-o", "--save", "--profile"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_loaded(
    option: str, place: str, code: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no package."""
    (tmp_path / "file").touch()
    for asked in (["--speech", "hello"], ["--task", "t"], ["--prompt", "hello"]):
        assert main([str(tmp_path / "p"), *asked, option, str(tmp_path / place)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.split()[1]) == ("", f"{code}:")
        assert f"{option} " in err
        assert said in err
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_permission_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root may write everywhere: the operating system's refusal is put in its place."""
    monkeypatch.setattr("os.open", denied)
    assert main([str(tmp_path / "p"), "--prompt", "hello", "--profile", str(tmp_path / "x.json")]) == 2
    assert "unwritable-file: --profile" in (err := capsys.readouterr().err)
    assert "Permission denied" in err


def denied(*_: object, **__: object) -> int:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--describe", "--temperature", "0"], "--temperature"),
        (["--speech", "hello", "--stop", "x"], "--stop"),
        (["--speech", "hello", "--json"], "--json"),
        (["--task", "t", "-n", "3"], "-n"),
        (["--task", "t", "--max-new-tokens", "3"], "--max-new-tokens"),
        (["--describe", "--no-speculate"], "--no-speculate"),
        (["--describe", "--speculate"], "--speculate"),
        (["--describe", "-o", "x.png"], "-o"),
        (["--prompt", "hello", "--system", "be brief"], "--system"),
        (["--describe", "--save", "x.png"], "--save"),
        (["--speech", "hello", "--steps", "4"], "--steps"),
        (["--chat", "hello", "--instructions", "softly"], "--instructions"),
        (["--chat", "hello", "--task", "t"], "--task"),
    ],
)
def test_an_option_without_effect_is_refused(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the folder is looked at: there is none."""
    with pytest.raises(SystemExit) as left:
        main([str(tmp_path / "none"), *given])
    assert left.value.code == 2
    assert f"error: {said} " in capsys.readouterr().err
