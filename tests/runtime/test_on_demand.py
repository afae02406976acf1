"""Sessions that only some requests need: opened by the first that does, by `eager`, or where providers are named."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import genai_runtime
import numpy as np
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
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[bool]()

    def noted(*given: Any) -> Any:
        asked.append(given[-1])
        raise genai_runtime.LoadError("not-compiled", "enough")

    monkeypatch.setattr("genai_runtime.opening.load", noted)
    folder = str(compiled(CASE)[0])
    for more in ([], ["--image", "a.png"], ["--audio", "a.wav"]):
        main([folder, "--prompt", "x", *more])
    assert asked == [False, True, True]
