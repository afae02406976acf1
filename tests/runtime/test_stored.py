"""Stored sessions: the same numbers to the last bit, used where they belong, and left out with a word elsewhere."""

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler.driver import Compiled, Options, compile_package
from genai_compiler.emit import stored as storing
from genai_runtime import binding, stored
from genai_runtime.problem import LoadError

from tests.conftest import FIXTURES
from tests.data import ROOT

CASES = ("tiny-gqa-v1", "tiny-concat-v1", "tiny-stages-v1", "tiny-encoder-decoder-v1", "tiny-turns", "tiny-held-state")
"""A shared buffer, growing state, linked stages, several sessions, an authored workflow, state held in place."""
REAL = ROOT / "build" / "smollm2"
PROMPT = [5, 9, 2, 7, 11, 3]
ABSENT = pytest.mark.skipif(not REAL.is_dir(), reason="not built (python -m tools.smollm2)")
pytestmark = pytest.mark.skipif(not stored.PROCESSOR.exists(), reason="this system does not tell its processor")


def compile_stored(package: Path, out: Path, **more: Any) -> Compiled:
    return compile_package(package, out, Options(store_sessions=True, force=True, **more))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    compile_stored(FIXTURES / "tiny-gqa-v1", tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """(folder of the graph, level of optimisation) of every session that is opened."""
    seen, inner = list[tuple[str, Any]](), binding.open_session

    def watched(graph: Path, options: dict[str, Any], providers: Any) -> Any:
        seen.append((graph.parent.name, options.get("graph_optimization_level")))
        return inner(graph, options, providers)

    monkeypatch.setattr(binding, "open_session", watched)
    return seen


def entry(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return found


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = entry(folder)
    change(data)
    (folder / "manifest.json").write_text(json.dumps(data), "utf-8")


def tokens(folder: Path) -> list[int]:
    model = genai_runtime.load(folder, threads=1)
    return list(model.generate(PROMPT, max_new_tokens=6, stop_on_eos=False).tokens)


def scores(graph: Path, weights: Path, level: ort.GraphOptimizationLevel) -> list[bytes]:
    """What a plain session of a decoder with attention by lengths gives for PROMPT, as bytes."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.graph_optimization_level = 1, level
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights))
    session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    length = len(PROMPT)
    given = {
        "input_ids": np.array([PROMPT], np.int64),
        "seqlens_k": np.array([length - 1], np.int32),
        "total_sequence_length": np.array([length], np.int32),
        "attention_mask": np.ones((1, length), np.int64),
        "last_position": np.full((1, 1, 1), length - 1, np.int64),
    }
    feeds = {}
    for port in session.get_inputs():
        past = [size if isinstance(size, int) else 1 if at == 0 else 16 for at, size in enumerate(port.shape)]
        feeds[port.name] = given[port.name] if port.name in given else np.zeros(past, np.float32)
    return [np.asarray(each).tobytes() for each in session.run(None, feeds)]


def test_the_numbers_are_the_same_to_the_last_bit(folder: Path) -> None:
    same_scores(folder, FIXTURES / "tiny-gqa-v1")


@pytest.mark.heavy
@ABSENT
@pytest.mark.parametrize("form", ["v1", "float"])
def test_the_numbers_of_a_real_model_are_the_same_to_the_last_bit(form: str, tmp_path: Path) -> None:
    compile_stored(REAL / form, tmp_path / "out")
    same_scores(tmp_path / "out", REAL / form)


def same_scores(folder: Path, package: Path) -> None:
    data = entry(folder)
    ((name, kept),) = data["stored"]["graphs"].items()
    plain, level = folder / data["graphs"][name]["file"], ort.GraphOptimizationLevel
    ours = scores(folder / kept["file"], package, level.ORT_DISABLE_ALL)
    assert ours == scores(plain, package, level.ORT_ENABLE_ALL)
    assert any(np.frombuffer(ours[0], np.float32) != 0)


@pytest.mark.parametrize("case", CASES)
def test_every_session_that_loading_opens_is_stored_and_gives_the_same_tokens(
    case: str, tmp_path: Path, opened: list[tuple[str, Any]]
) -> None:
    compile_package(FIXTURES / case, tmp_path / "plain")
    compile_stored(FIXTURES / case, tmp_path / "out")
    data = entry(tmp_path / "out")
    assert list(data["stored"]["graphs"]) == data["opens"]
    genai_runtime.load(tmp_path / "out", threads=1)
    assert opened
    assert set(opened) == {("stored", "ORT_DISABLE_ALL")}
    assert tokens(tmp_path / "out") == tokens(tmp_path / "plain")


def test_the_same_package_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        compile_stored(FIXTURES / "tiny-stages-v1", tmp_path / name)
    made = [
        {each.name: each.read_bytes() for each in (tmp_path / name / "stored").iterdir()} for name in ("one", "other")
    ]
    assert made[0] == made[1]
    assert made[0]


def test_without_being_asked_nothing_is_stored(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-gqa-v1", tmp_path / "out")
    assert "stored" not in entry(tmp_path / "out")
    assert not (tmp_path / "out" / "stored").exists()


# ---- where they do not belong ----------------------------------------------------------------------------------------


def other_processor(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    facts = (
        stored.PROCESSOR.read_text("utf-8")
        .replace("flags\t\t: ", "flags\t\t: other ")
        .replace("Features\t: ", "Features\t: other ")
    )
    (folder.parent / "cpuinfo").write_text(facts, "utf-8")
    monkeypatch.setattr(stored, "PROCESSOR", folder.parent / "cpuinfo")


def other_build(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(binding, "build", lambda: "ONNX Runtime 9.9.9 (of another day)")


def no_answer(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(stored, "PROCESSOR", folder / "no such file")


def damaged(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (file,) = (folder / "stored").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def half_there(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (file,) = (folder / "stored").iterdir()
    file.write_bytes(file.read_bytes()[:100])


def gone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (file,) = (folder / "stored").iterdir()
    file.unlink()


WAYS = {
    other_processor: "another processor",
    other_build: "this is ONNX Runtime 9.9.9",
    no_answer: "this is unknown",
    damaged: "missing or were changed",
    half_there: "missing or were changed",
    gone: "missing or were changed",
}


@pytest.mark.parametrize("change", WAYS, ids=lambda each: each.__name__)
def test_elsewhere_the_plain_graph_runs_and_that_is_said(
    change: Callable[[pytest.MonkeyPatch, Path], None],
    folder: Path,
    opened: list[tuple[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = tokens(folder)
    opened.clear()
    change(monkeypatch, folder)
    with caplog.at_level(logging.WARNING, "genai_runtime"):
        assert tokens(folder) == before
    assert set(opened) == {("graphs", None)}
    (said,) = [each.message for each in caplog.records]
    assert WAYS[change] in said
    assert "compile again with --store-sessions" in said


def test_what_onnx_runtime_refuses_is_left_for_the_plain_graph(
    folder: Path, opened: list[tuple[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """A manifest that vouches for a file that is no graph."""
    before = tokens(folder)
    (file,) = (folder / "stored").iterdir()
    file.write_bytes(b"no graph at all")
    digest = storing.hashlib.sha256(b"no graph at all").hexdigest()
    rewrite(folder, lambda data: data["stored"]["graphs"]["decoder"].update(sha256=digest))
    opened.clear()
    assert tokens(folder) == before
    assert [each for each, _ in opened] == ["stored", "graphs"]
    assert "can't be opened, its plain graph is" in caplog.text


@pytest.mark.parametrize(
    "value",
    [3, {"made": {}, "graphs": {}}, "name"],
    ids=["number", "no facts", "not of text"],
)
def test_a_damaged_entry_is_a_damaged_folder(value: Any, folder: Path) -> None:
    rewrite(folder, lambda data: data.update(stored=value))
    with pytest.raises(LoadError, match=r"manifest\.json .* is damaged: stored") as refused:
        genai_runtime.load(folder)
    assert refused.value.code == "damaged-folder"


def test_a_changed_package_is_refused_as_ever(tmp_path: Path) -> None:
    compile_stored(FIXTURES / "tiny-gqa-v1", tmp_path / "out", bundle=True)
    graph = tmp_path / "out" / "package" / "model.onnx"
    graph.write_bytes(graph.read_bytes() + b"\0")
    with pytest.raises(LoadError) as refused:
        genai_runtime.load(tmp_path / "out")
    assert refused.value.code == "package-changed"


def test_where_nothing_tells_the_processor_nothing_is_optimised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Optimising takes as long as opening a session, and a copy of all weights on disk."""
    graph, target = FIXTURES / "tiny-gqa-v1" / "model.onnx", tmp_path / "made.onnx"
    task = {"graph": str(graph), "weights": str(graph.parent), "target": str(target), "options": {}}
    for processor, wanted in ((tmp_path / "absent", False), (stored.PROCESSOR, True)):
        monkeypatch.setattr(stored, "PROCESSOR", processor)
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(task)))
        stored.main()
        assert (json.loads(capsys.readouterr().out) is not None) == wanted
        assert target.exists() == wanted
