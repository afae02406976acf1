"""Weights on huge pages: when they are gathered, of whom, and that nothing of it can disturb a load or an exit."""

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import genai_runtime
import pytest
from genai_runtime import LoadError, collapse, huge_pages
from genai_runtime.huge_pages import WORTH, gathered_behind

from tests.conftest import Traced
from tests.traps.probe import PROBE_NEEDS_LINUX, run_probe

Compiled = Callable[[str], tuple[Path, Traced]]
CASE = "tiny-gqa-v1"


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The weights of every gathering that takes place; nothing is waited for."""
    calls: list[int] = []
    monkeypatch.setattr(collapse, "gather", lambda *given: calls.append(given[-1]) or 64 << 20)
    monkeypatch.setattr(huge_pages, "WAIT", 0)
    monkeypatch.setattr(huge_pages, "MAPS", Path(__file__))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(huge_pages.SWITCH, raising=False)
    yield calls
    ended()


def ended() -> None:
    for each in threading.enumerate():
        if each.name == "genai-huge-pages":
            each.join()


@pytest.mark.parametrize(("weights", "said", "system", "times"), [
    (WORTH, None, "linux", 1),
    (WORTH, "", "linux", 1),
    (WORTH, "1", "linux", 1),
    (WORTH, "0", "linux", 0),
    (WORTH - 1, None, "linux", 0),
    (WORTH, None, "darwin", 0),
    (WORTH, None, "win32", 0),
])  # fmt: skip
def test_small_models_other_systems_and_the_switch(
    gathered: list[int], monkeypatch: pytest.MonkeyPatch, weights: int, said: str | None, system: str, times: int
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    if said is not None:
        monkeypatch.setenv(huge_pages.SWITCH, said)
    with gathered_behind(weights):
        pass
    ended()
    assert gathered == [weights] * times


@pytest.mark.parametrize("said", ["false", "no", "2", "-1", " 0", "O"])
def test_a_switch_that_says_neither_is_refused(
    compiled: Compiled, gathered: list[int], monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """However small the package is, and before a session opens: it must not depend on the model."""
    monkeypatch.setenv(huge_pages.SWITCH, said)
    with pytest.raises(LoadError, match=f"{huge_pages.SWITCH} is '{said}': 0 or 1") as caught:
        genai_runtime.load(compiled(CASE)[0])
    assert caught.value.code == "bad-huge-pages"
    assert gathered == []


def test_what_was_gathered_is_logged(gathered: list[int], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "genai_runtime"):
        with gathered_behind(WORTH):
            pass
        ended()
    assert [each.message for each in caplog.records] == ["64 MB of memory gathered into huge pages"]


def test_an_opening_that_fails_gathers_nothing(gathered: list[int]) -> None:
    with pytest.raises(LoadError, match="session-failed"), gathered_behind(WORTH):
        raise LoadError("session-failed", "as it happens")
    ended()
    assert gathered == []


def test_without_a_list_of_memory_nothing_happens(
    gathered: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huge_pages, "MAPS", tmp_path / "absent")
    with gathered_behind(WORTH):
        pass
    ended()
    assert gathered == []


def test_a_model_loads_where_no_thread_can_start(
    compiled: Compiled, gathered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of processes is reached, or the interpreter is ending; the C library's word for it is a RuntimeError."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(huge_pages, "WORTH", 0)
    monkeypatch.setitem(sys.modules, "genai_runtime.model", genai_runtime.model)  # opening.py imports it in a thread
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with genai_runtime.load(compiled(CASE)[0], threads=1) as model:
        assert len(model.generate([1, 10], max_new_tokens=3, stop_on_eos=False).tokens) == 3
    assert gathered == []


def test_what_waits_holds_no_model(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    let, entered = threading.Event(), threading.Event()
    monkeypatch.setattr(huge_pages, "WORTH", 0)
    monkeypatch.setattr(huge_pages, "WAIT", 0)

    def gather(before: str, after: str, weights: int) -> int:
        entered.set()
        let.wait()
        return 0

    monkeypatch.setattr(collapse, "gather", gather)
    model = genai_runtime.load(compiled(CASE)[0], threads=1)
    seen = weakref.ref(model), weakref.ref(model._sessions)  # pyright: ignore[reportPrivateUsage]
    assert entered.wait(60)
    del model
    gc.collect()
    try:
        assert [each() for each in seen] == [None, None]
    finally:
        let.set()
        ended()


LOADING = """
import atexit, os, threading, time
import genai_runtime
from genai_runtime import collapse, huge_pages
huge_pages.WORTH, huge_pages.WAIT = 0, {wait}

def load():
    model = genai_runtime.load({folder!r}, threads=1)
    assert len(model.generate([1, 10, 20], max_new_tokens=4, temperature=0, stop_on_eos=False).tokens) == 4
    return model

def gatherings():
    return [each for each in threading.enumerate() if each.name == "genai-huge-pages"]

"""
ENDS: dict[str, tuple[int, str]] = {
    "while it waits": (60, "load(); assert len(gatherings()) == 1"),
    "while it is under way": (
        0,
        """
begun = threading.Event()
collapse.collapse = lambda *given: (begun.set(), time.sleep(600))
load()
assert begun.wait(60) or not collapse.huge_page()
""",
    ),
    "a load at exit": (60, "atexit.register(load); load()"),
    "a fork while it waits": (
        60,
        """
import warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # from CPython 3.12 on
model = load()
child = os.fork()
if not child:
    assert not gatherings()
    del model
    load()
    assert len(gatherings()) == 1
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
load()
""",
    ),
    "eight threads load": (
        0,
        """
made = []
loads = [threading.Thread(target=lambda: made.append(load())) for _ in range(8)]
for each in loads: each.start()
for each in loads: each.join()
for each in gatherings(): each.join()
assert len(made) == 8
""",
    ),
}
"""What a process does -> (seconds that a gathering waits, the script)."""


@PROBE_NEEDS_LINUX
@pytest.mark.parametrize("end", ENDS)
def test_a_process_loads_forks_and_ends_whatever_the_thread_does(compiled: Compiled, end: str) -> None:
    wait, script = ENDS[end]
    run_probe(LOADING.format(folder=str(compiled(CASE)[0]), wait=wait) + script, timeout=120)
