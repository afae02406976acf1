"""Sessions that threads open while the executor is imported: which, by whom, and what is told when one fails."""

import hashlib
import inspect
import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
import tokenizers
from genai_compiler import compile_package
from genai_runtime import LoadError, binding, cli, opening, sessions, tokenizer
from genai_runtime.ahead import AT_ONCE, Ahead
from genai_runtime.cores import Cores
from genai_runtime.providers import CPU

from tests.conftest import FIXTURES

Compiled = Callable[[str], tuple[Path, object]]
CASES = sorted(each.name for each in FIXTURES.iterdir() if each.is_dir())
SEVERAL = "tiny-decoder"
"""A package whose executor opens three sessions."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(file, thread) of every session that is opened from now on."""
    whole, seen = binding.open_session, list[tuple[str, str]]()

    def watched(graph: Path, *rest: Any) -> Any:
        seen.append((graph.name, threading.current_thread().name))
        return whole(graph, *rest)

    monkeypatch.setattr(binding, "open_session", watched)
    return seen


def stated(folder: Path) -> dict[str, Any]:
    """The manifest of a compiled folder."""
    data: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return data


def files_of(folder: Path, names: list[str]) -> list[str]:
    """The graph files of components, by name."""
    graphs = stated(folder)["graphs"]
    return [Path(graphs[name]["file"]).name for name in names]


def left() -> list[str]:
    """Threads that opened sessions and have not ended."""
    return [each.name for each in threading.enumerate() if each.name == "genai-open"]


# ---- which, by whom --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_the_manifest_names_what_the_executor_asks_for(
    compiled: Compiled, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor itself says what it needs; the order too."""
    asked, whole = list[str](), sessions.Sessions.session

    def noted(self: sessions.Sessions, component: str) -> Any:
        asked.append(component)
        return whole(self, component)

    monkeypatch.setattr(sessions.Sessions, "session", noted)
    folder = compiled(case)[0]
    genai_runtime.load(folder, threads=1).close()
    assert asked or case == "branch-joins"  # whose components all stand in cases
    assert list(dict.fromkeys(asked)) == stated(folder)["opens"]


@pytest.mark.parametrize("case", CASES)
def test_each_opens_once_and_not_by_who_loads(
    compiled: Compiled, case: str, opened: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, whole = compiled(case)[0], opening._executor_class
    names = stated(folder)["opens"]

    def slow(manifest: Any) -> Any:
        for _ in range(10_000 if names else 0):  # until a thread has begun with one
            if opened:
                break
            threading.Event().wait(0.001)
        return whole(manifest)

    monkeypatch.setattr(opening, "_executor_class", slow)
    genai_runtime.load(folder, threads=1).close()
    assert sorted(file for file, _ in opened) == sorted(files_of(folder, names))
    main = sum(thread == "MainThread" for _, thread in opened)
    assert main <= max(0, len(names) - 1), "the first is begun before anybody asks"
    assert left() == []


def test_not_more_at_once_than_stated(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads, and the one that waits for them, which works too."""
    whole, now, most = binding.open_session, set[int](), list[int]()

    def counted(*given: Any) -> Any:
        now.add(threading.get_ident())
        most.append(len(now))
        try:
            return whole(*given)
        finally:
            now.discard(threading.get_ident())

    monkeypatch.setattr(binding, "open_session", counted)
    genai_runtime.load(compiled(SEVERAL)[0], threads=1).close()
    assert max(most) <= AT_ONCE + 1


def test_one_thread_opens_all_one_after_the_other() -> None:
    """As on a machine of one core, or for other devices than the CPU."""
    who, now, most = set[str](), list[str](), list[int]()

    def open_one(name: str) -> str:
        now.append(name)
        most.append(len(now))
        who.add(threading.current_thread().name)
        now.remove(name)
        return name.upper()

    ahead = Ahead(open_one, ["a", "b", "c"], 1)
    ahead.start()
    assert [ahead.take(each) for each in ("c", "a", "b")] == ["C", "A", "B"]
    assert "a" not in ahead
    ahead.stop()
    assert (who, max(most), left()) == ({"genai-open"}, 1, [])


@pytest.mark.parametrize("at_once", [1, AT_ONCE])
def test_who_asks_may_be_faster_than_the_threads(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy system lets a thread begin late: what was asked for by then is opened and handed over all the same."""
    begin, work = threading.Event(), Ahead._work

    def late(self: Ahead, *given: Any) -> None:
        begin.wait()
        work(self, *given)

    monkeypatch.setattr(Ahead, "_work", late)
    ahead, found = Ahead(str.upper, ["a", "b"], at_once), list[str]()
    ahead.start()
    asking = threading.Thread(target=lambda: found.extend(map(ahead.take, "ab")), daemon=True)
    asking.start()
    while "a" in ahead:  # it waits for this one, or opens it itself
        threading.Event().wait(0.001)
    begin.set()
    asking.join(30)
    assert found == ["A", "B"]
    ahead.stop()


@pytest.mark.parametrize(("provider", "threads"), [(CPU, AT_ONCE), ("CUDAExecutionProvider", 1)])
def test_other_devices_get_one_thread(monkeypatch: pytest.MonkeyPatch, provider: str, threads: int) -> None:
    monkeypatch.setattr(sessions, "allowed_cores", lambda: Cores(8, "said here"))
    monkeypatch.setattr(binding, "open_session", lambda graph, *_: graph.name)
    graphs = {name: sessions.Graph(Path(f"{name}.onnx"), Path()) for name in ("a", "b", "c")}
    held = sessions.Sessions(graphs, sessions.Settings(((provider, {}),)))
    with held.ahead(["a", "b", "c"]):
        assert held._ahead is not None
        assert held._ahead._at_once == threads
        assert held.session("b") == "b.onnx"


def test_the_largest_graph_is_begun_first(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, whole = list[list[str]](), Ahead.__init__

    def noted(self: Ahead, open_one: Any, names: Any, at_once: int) -> None:
        begun.append(list(names))
        whole(self, open_one, names, at_once)

    monkeypatch.setattr(Ahead, "__init__", noted)
    folder = compiled(SEVERAL)[0]
    genai_runtime.load(folder, threads=1).close()
    sizes = {name: (folder / each["file"]).stat().st_size for name, each in stated(folder)["graphs"].items()
             if each["in"] == "compiled"}  # fmt: skip
    assert begun == [sorted(stated(folder)["opens"], key=lambda name: -sizes[name])]


def test_a_folder_that_names_none_opens_them_when_asked(
    compiled: Compiled, tmp_path: Path, opened: list[tuple[str, str]]
) -> None:
    """As folders of before do."""
    folder = without_names(compiled(SEVERAL)[0], tmp_path)
    with genai_runtime.load(folder, threads=1) as model:
        assert model.describe()
    names = stated(compiled(SEVERAL)[0])["opens"]
    assert opened == [(file, "MainThread") for file in files_of(compiled(SEVERAL)[0], names)]


def without_names(compiled: Path, tmp_path: Path) -> Path:
    """The compiled folder elsewhere, with a manifest that does not say what is opened."""
    folder = shutil.copytree(compiled, tmp_path / "compiled")
    data = stated(folder)
    del data["opens"]
    data["package"]["path"] = str(FIXTURES / SEVERAL)
    (folder / "manifest.json").write_text(json.dumps(data), "utf-8")
    return folder


def test_components_with_settings_of_their_own_are_left_to_who_asks(
    tmp_path: Path, opened: list[tuple[str, str]]
) -> None:
    """Their refusal is told and answered (tests/runtime/test_placement.py), in the order of the questions."""
    files = {name: tmp_path / f"{name}.onnx" for name in ("plain", "placed")}
    for each in files.values():
        shutil.copyfile(FIXTURES / "tiny-gqa-v1" / "model.onnx", each)
    graphs = {name: sessions.Graph(file, file.parent) for name, file in files.items()}
    own = sessions.Settings(options={"enable_cpu_mem_arena": False})
    held = sessions.Sessions(graphs, sessions.Settings(), {"placed": own})
    with held.ahead(["placed", "plain", "unknown"]):
        placed, plain = held.session("placed"), held.session("plain")
    assert sorted(file for file, _ in opened) == ["placed.onnx", "plain.onnx"]
    assert ("placed.onnx", "MainThread") in opened
    assert held.session("placed") is placed
    assert held.session("plain") is plain


def test_eight_threads_load_at_once(compiled: Compiled) -> None:
    folder = compiled("tiny-gqa-v1")[0]

    def tokens(_: int) -> list[int]:
        with genai_runtime.load(folder, threads=1) as model:
            return list(model.generate([1, 9, 14], max_new_tokens=4).tokens)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(tokens, range(8)))
    assert found == [found[0]] * 8
    assert len(found[0]) == 4
    assert left() == []


# ---- the tokenizer ---------------------------------------------------------------------------------------------------


def test_for_text_the_tokenizer_is_opened_before_the_sessions_are_asked_for(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, opens, takes = list[str](), tokenizer.open_tokenizer, Ahead.take

    def noted_open(*given: Any) -> Any:
        order.append("tokenizer")
        return opens(*given)

    def noted_take(self: Ahead, name: str) -> Any:
        order.append(name)
        return takes(self, name)

    monkeypatch.setattr(tokenizer, "open_tokenizer", noted_open)
    monkeypatch.setattr(Ahead, "take", noted_take)
    with genai_runtime.load(compiled("tiny-gqa-v1")[0], threads=1, text=True) as model:
        assert order == ["tokenizer", "decoder"]
        wanted = tokenizers.Tokenizer.from_file(str(FIXTURES / "tiny-gqa-v1" / "tokenizer.json")).encode("the hat").ids
        assert model.tokenizer.encode("the hat") == wanted
    assert order == ["tokenizer", "decoder"]


def test_a_package_without_a_tokenizer_loads_for_text_too(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("session-counter")[0], threads=1, text=True) as model:
        with pytest.raises(LoadError) as caught:
            _ = model.tokenizer
        assert caught.value.code == "no-tokenizer"


def test_a_tokenizer_that_does_not_open_is_told_when_text_is_asked_for(tmp_path: Path) -> None:
    package = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    compile_package(package, out=tmp_path / "compiled")
    text = json.dumps({"model": {"type": "no such model"}})
    (package / "tokenizer.json").write_text(text, "utf-8")
    data = stated(tmp_path / "compiled")
    entry = next(each for each in data["files"] if each["path"] == "tokenizer.json")
    entry.update(size=len(text), sha256=hashlib.sha256(text.encode()).hexdigest())
    (tmp_path / "compiled" / "manifest.json").write_text(json.dumps(data), "utf-8")
    with genai_runtime.load(tmp_path / "compiled", threads=1, text=True) as model:
        assert len(model.generate([1, 9], max_new_tokens=2).tokens) == 2
        with pytest.raises(LoadError) as caught:
            model.generate("the hat", max_new_tokens=2)
        assert caught.value.code == "bad-tokenizer"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--tokens", "1,9"], False),
        (["--describe"], False),
        (["--prompt", "the hat"], True),
        (["--chat", "the hat"], True),
    ],
)
def test_the_command_says_whether_text_comes(
    compiled: Compiled, arguments: list[str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, whole = list[object](), opening.load

    def noted(*given: Any) -> Any:
        found.append(dict(zip(inspect.signature(whole).parameters, given, strict=False))["text"])
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "load", noted)
    assert cli.main([str(compiled("tiny-gqa-v1")[0]), *arguments]) == 3
    assert found == [wanted]
