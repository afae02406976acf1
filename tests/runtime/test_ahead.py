"""Sessions that threads open while the executor is imported: which, by whom, and what is told when one fails."""

import gc
import hashlib
import inspect
import json
import shutil
import subprocess
import sys
import threading
import weakref
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
    assert asked
    assert list(dict.fromkeys(asked)) == stated(folder)["opens"]


@pytest.mark.parametrize("case", CASES)
def test_each_opens_once_and_not_by_who_loads(compiled: Compiled, case: str, opened: list[tuple[str, str]]) -> None:
    folder = compiled(case)[0]
    genai_runtime.load(folder, threads=1).close()
    names = stated(folder)["opens"]
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


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_thread_that_begins_late_gives_what_was_asked_for_before(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is busy: somebody waits for a session when its thread comes to its first line."""
    asked, whole = threading.Event(), Ahead._work

    def late(self: Ahead, *given: Any) -> None:
        assert asked.wait(60)
        whole(self, *given)

    monkeypatch.setattr(Ahead, "_work", late)
    monkeypatch.setattr(Ahead, "_claimed", lambda *_: False)  # as when the thread has just begun with it
    ahead = Ahead(str.upper, ["a", "b"], at_once)
    ahead.start()
    taken = list[str]()
    waits = threading.Thread(target=lambda: taken.append(ahead.take("a")), daemon=True)
    waits.start()
    while "a" in ahead:
        waits.join(0.001)
    asked.set()
    waits.join(20)
    assert taken == ["A"]
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


# ---- failures --------------------------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, files: list[str], made: list[Any]) -> None:
    """Sessions of these files can't be opened; of the others `made` gets weak references."""
    whole = binding.open_session

    def opening(graph: Path, *rest: Any) -> Any:
        if graph.name in files:
            raise RuntimeError(f"refused: {graph.name}")
        session = whole(graph, *rest)
        made.append(weakref.ref(session._sess))
        return session

    monkeypatch.setattr(binding, "open_session", opening)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_that_fails_is_told_and_the_others_go(compiled: Compiled, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = compiled(SEVERAL)[0]
    name = stated(folder)["opens"][at]
    made = list[Any]()
    failing(monkeypatch, files_of(folder, [name]), made)
    with pytest.raises(LoadError) as caught:
        genai_runtime.load(folder, threads=1)
    assert caught.value.code == "session-failed"
    assert f"component '{name}'" in caught.value.what
    del caught
    assert left() == []
    gc.collect()
    assert [each() for each in made] == [None] * len(made)


def test_of_several_failures_the_first_that_is_asked_for_is_told(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them fails last."""
    folder = compiled(SEVERAL)[0]
    files = files_of(folder, stated(folder)["opens"])
    for last in files:
        failed = threading.Event()

        def refusing(graph: Path, *_: Any, last: str = last, failed: threading.Event = failed) -> Any:
            if graph.name == last:
                failed.wait(0.2)  # an other fails meanwhile, where a thread has it
            failed.set()
            raise RuntimeError(f"refused: {graph.name}")

        monkeypatch.setattr(binding, "open_session", refusing)
        with pytest.raises(LoadError, match=f"refused: {files[0]}"):
            genai_runtime.load(folder, threads=1)
        assert left() == []


def test_a_failing_import_waits_for_the_sessions_and_drops_them(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for failure in (LoadError("damaged-folder", "of the executor"), KeyboardInterrupt()):
        made = list[Any]()
        failing(monkeypatch, [], made)

        def importing(*_: Any, failure: BaseException = failure) -> Any:
            raise failure

        monkeypatch.setattr(opening, "_executor_class", importing)
        with pytest.raises(type(failure)):
            genai_runtime.load(compiled(SEVERAL)[0], threads=1)
        assert left() == []
        gc.collect()
        assert [each() for each in made] == [None] * len(made)


def test_without_a_thread_left_in_the_system_who_asks_opens(
    compiled: Compiled, opened: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    folder = compiled(SEVERAL)[0]
    genai_runtime.load(folder, threads=1).close()
    assert opened == [(file, "MainThread") for file in files_of(folder, stated(folder)["opens"])]


def test_an_interrupt_of_the_command_while_sessions_open(compiled: Compiled) -> None:
    """The signal comes while a thread is within a session's opening: exit code 3 and a word, no traceback, no abort."""
    code = f"""
import os, signal, sys
from genai_runtime import binding

whole = binding.open_session
def interrupted(*given):
    os.kill(os.getpid(), signal.SIGINT)
    return whole(*given)

binding.open_session = interrupted
from genai_runtime.cli import main
raise SystemExit(main([{str(compiled(SEVERAL)[0])!r}, "--describe"]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.strip()) == (3, "interrupted")
