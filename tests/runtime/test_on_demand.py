"""Sessions that only some requests need: opened by the first that does, by `eager`, or where providers are named."""

import gc
import os
import shutil
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from genai_runtime import sessions
from genai_runtime.cli import main

from tests.conftest import FIXTURES, Traced

CASE = "tiny-media-v2"
PICTURE: dict[str, Any] = {
    "request.input_ids": [[1, *[62] * 4, 9]],
    "request.max_iterations": [3],
    "pixel_values": np.ones((1, 4, 8), np.float32),
}
Compiled = Callable[[str], tuple[Path, Traced]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders and names of the graphs whose sessions open, in order."""
    seen = list[str]()
    original = sessions._open

    def noted(graph: sessions.Graph, settings: sessions.Settings) -> Any:
        seen.append(graph.file.name)
        return original(graph, settings)

    monkeypatch.setattr(sessions, "_open", noted)
    return seen


def test_a_request_without_a_picture_opens_no_model_of_pictures(compiled: Compiled, opened: list[str]) -> None:
    with genai_runtime.load(compiled(CASE)[0]) as model:
        model.generate([1, 9, 14], max_new_tokens=3)
        assert set(model.describe()["providers"]) == {"decoder", "embedding"}
        before = len(opened)
        model.run(PICTURE)
        model.run(PICTURE)
        assert set(model.describe()["providers"]) == {"decoder", "embedding", "vision"}
        assert len(opened) == before + 1


@pytest.mark.parametrize("how", [{"eager": True}, {"providers": "cpu"}])
def test_all_of_them_open_where_that_is_asked_for(compiled: Compiled, opened: list[str], how: dict[str, Any]) -> None:
    """A named provider must be checked for every session, so none may open later."""
    with genai_runtime.load(compiled(CASE)[0], **how) as model:
        assert set(model.describe()["providers"]) == {"decoder", "embedding", "speech", "vision"}
        before = len(opened)
        model.run(PICTURE)
        assert len(opened) == before


def test_threads_that_come_at_once_open_one(compiled: Compiled, opened: list[str]) -> None:
    with genai_runtime.load(compiled(CASE)[0]) as model, ThreadPoolExecutor(8) as threads:
        before, together = len(opened), Barrier(8)

        def ask(_: int) -> Any:
            together.wait()
            return model.run(PICTURE).rows("tokens")[0]

        first, *others = threads.map(ask, range(8))
        assert all(np.array_equal(first, each) for each in others)
        assert len(opened) == before + 1


def test_a_model_that_opens_late_and_is_damaged_is_told(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the request that needs it, as loading would; others go on."""
    original = sessions._open

    def failing(graph: sessions.Graph, settings: sessions.Settings) -> Any:
        if "vision" in graph.file.as_posix():
            raise RuntimeError("damaged")
        return original(graph, settings)

    monkeypatch.setattr(sessions, "_open", failing)
    with genai_runtime.load(compiled(CASE)[0]) as model:
        wanted = model.generate([1, 9, 14], max_new_tokens=3).tokens
        with pytest.raises(genai_runtime.LoadError) as refused:
            model.run(PICTURE)
        assert refused.value.code == "session-failed"
        assert model.generate([1, 9, 14], max_new_tokens=3).tokens == wanted


@pytest.mark.parametrize("change", ["another", "gone"])
def test_a_package_that_has_changed_meanwhile_is_told(tmp_path: Path, change: str) -> None:
    """Else a model of one export would go with pictures' features of the next."""
    package = shutil.copytree(FIXTURES / CASE, tmp_path / "package")
    compile_package(package, tmp_path / "made")
    with genai_runtime.load(tmp_path / "made") as model:
        wanted = model.generate([1, 9, 14], max_new_tokens=3).tokens
        if change == "another":
            shutil.copyfile(package / "speech.onnx", package / "vision.onnx")
        else:
            (package / "vision.onnx").unlink()
        with pytest.raises(genai_runtime.LoadError, match=r"'vision\.onnx'") as refused:
            model.run(PICTURE)
        assert refused.value.code == "package-changed"
        assert model.generate([1, 9, 14], max_new_tokens=3).tokens == wanted


def test_the_command_opens_them_beside_the_others_where_a_file_is_given(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, file = list[bool](), tmp_path / "a.png"
    file.write_bytes(b"")

    def noted(*given: Any) -> Any:
        asked.append(given[-1])
        raise genai_runtime.LoadError("not-compiled", "enough")

    monkeypatch.setattr("genai_runtime.opening.load", noted)
    folder = str(compiled(CASE)[0])
    for more in ([], ["--image", str(file)], ["--audio", str(file)]):
        main([folder, "--prompt", "x", *more])
    assert asked == [False, True, True]


# ---- files that change behind loading --------------------------------------------------------------------------------


def other_weights(file: Path) -> None:
    """Another version of a graph, as large as it was."""
    model = onnx.load(file)
    for each in model.graph.initializer:
        each.raw_data = bytes(reversed(each.raw_data))
    onnx.save(model, file)


CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "another version": (other_weights, "package-changed", "the content of 'vision.onnx' has changed"),
    "gone": (Path.unlink, "package-changed", "'vision.onnx' is missing"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_graph_that_has_changed_since_loading_does_not_open(how: str, tmp_path: Path) -> None:
    """No sessions of two versions beside each other; once the file is back, requests are served."""
    change, code, said = CHANGES[how]
    package = shutil.copytree(FIXTURES / CASE, tmp_path / "p")
    compile_package(package, tmp_path / "out")
    file, kept = package / "vision.onnx", (package / "vision.onnx").read_bytes()
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        change(file)
        with pytest.raises(genai_runtime.LoadError) as refused:
            model.run(PICTURE)
        assert (refused.value.code, said in refused.value.what) == (code, True)
        assert model.generate([1, 9, 14], max_new_tokens=3).stats.new_tokens > 0
        file.write_bytes(kept)
        assert len(model.run(PICTURE).rows("tokens")) == 1


def test_a_folder_that_was_compiled_again_is_of_another_model(tmp_path: Path) -> None:
    package = shutil.copytree(FIXTURES / CASE, tmp_path / "p")
    compile_package(package, tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        (tmp_path / "out").rename(tmp_path / "old")
        shutil.copytree(tmp_path / "old", tmp_path / "out")
        (tmp_path / "out" / "executor.py").write_text("ABI_VERSION = 4\n")
        with pytest.raises(genai_runtime.LoadError, match="damaged-folder"):
            model.run(PICTURE)


def test_a_tokenizer_that_has_changed_since_loading_is_refused(tmp_path: Path) -> None:
    package = shutil.copytree(FIXTURES / CASE, tmp_path / "p")
    compile_package(package, tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        file = package / "tokenizer.json"
        file.write_text(file.read_text() + "\n")
        with pytest.raises(genai_runtime.LoadError, match="package-changed"):
            model.generate("hi", max_new_tokens=1)


def test_text_needs_no_graph_that_has_gone(tmp_path: Path) -> None:
    """Of the files that opening a tokenizer reads none has changed."""
    package = shutil.copytree(FIXTURES / CASE, tmp_path / "p")
    compile_package(package, tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        (package / "vision.onnx").unlink()
        assert model.generate("hi", max_new_tokens=1).stats.new_tokens == 1


def test_a_new_time_stamp_is_no_change(tmp_path: Path) -> None:
    package = shutil.copytree(FIXTURES / CASE, tmp_path / "p")
    compile_package(package, tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        os.utime(package / "vision.onnx", (1, 1))
        assert len(model.run(PICTURE).rows("tokens")) == 1


def test_a_session_that_opens_behind_the_close_goes_with_its_request(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, begun, closed = sessions._open, Event(), Event()
    model = genai_runtime.load(compiled(CASE)[0], threads=1)
    held = list[Any]()

    def slow(graph: sessions.Graph, settings: sessions.Settings) -> Any:
        begun.set()
        assert closed.wait(60)
        session = original(graph, settings)
        held.append(weakref.ref(session._sess))
        return session

    monkeypatch.setattr(sessions, "_open", slow)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(model.run, PICTURE)
        assert begun.wait(60)
        model.close()
        closed.set()
        assert len(answer.result(60).rows("tokens")) == 1
    del answer
    gc.collect()
    assert [each() for each in held] == [None]
