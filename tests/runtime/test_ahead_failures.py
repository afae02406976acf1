"""Sessions that fail to open while the executor is imported, and what interrupts that: what is told and left."""

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_runtime import LoadError, binding, opening

from tests.runtime.test_ahead import SEVERAL, Compiled, files_of, left, opened, stated

__all__ = ["opened"]


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


def test_a_second_interrupt_of_the_command_does_not_wait_for_sessions(compiled: Compiled) -> None:
    """The first waits for threads that are within a session's opening; here they would take longer than the test."""
    code = f"""
import os, signal, threading, time
from genai_runtime import binding
from genai_runtime.ahead import Ahead

stop, stopping = Ahead.stop, threading.Event()
def stopped(self):
    stopping.set()
    stop(self)

first = threading.Lock()
def interrupted(*given):
    if first.acquire(blocking=False):
        os.kill(os.getpid(), signal.SIGINT)
        stopping.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)

Ahead.stop, binding.open_session = stopped, interrupted
from genai_runtime.cli import main
raise SystemExit(main([{str(compiled(SEVERAL)[0])!r}, "--describe"]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.strip()) == (3, "interrupted")
