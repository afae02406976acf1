"""Sessions that threads open before the executor asks for them.

ONNX Runtime opens a session without Python's lock: meanwhile the modules are imported that the executor and requests
need, and a small session opens beside a large one. A failure is told to who asks for its session, so that which of
several is told depends on the order of the questions, not on that of the threads.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock, Thread
from typing import Any

OPENING = "genai-open"
"""What its threads are called."""
AT_ONCE = 2
"""Threads at most: the weights of a session may be in memory twice while it opens."""


class Ahead:
    """Opens sessions; one thread takes them. Whatever happens, `stop` must be called, which waits for the threads."""

    def __init__(self, open_one: Callable[[str], Any], names: Sequence[str], at_once: int) -> None:
        """open_one: opens the session of a component, in any thread. names: the order in which to begin."""
        self._open_one, self._left, self._lock = open_one, list(names), Lock()
        self._ready = {name: Event() for name in names}
        self._made: dict[str, tuple[Any, BaseException | None]] = {}
        self._at_once, self._threads = min(at_once, len(names)), list[Thread]()

    def start(self) -> None:
        """Begin."""
        ready = dict(self._ready)  # all of them: before a thread has come so far, `take` may have removed some
        for _ in range(self._at_once):
            # No daemon: when Python ends, a thread that comes back from ONNX Runtime then would end it by a signal.
            thread = Thread(target=self._work, args=(ready,), name=OPENING, daemon=False)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left: `take` does the work
                break
            self._threads.append(thread)

    def __contains__(self, name: str) -> bool:
        """Whether `take` has it to give."""
        return name in self._ready

    def take(self, name: str) -> Any:
        """The session of a component, once: waits for it, or opens what no thread has begun. Raises as opening does.

        One thread opens all by itself, so that no two open at once.
        """
        ready = self._ready.pop(name)
        if len(self._threads) != 1 and self._claimed(name):
            return self._open_one(name)
        ready.wait()
        session, failure = self._made.pop(name)
        if failure is None:
            return session
        try:
            raise failure
        finally:
            del failure  # it refers to this frame

    def stop(self) -> None:
        """Begin nothing more, wait for what has begun, and drop what was not taken."""
        with self._lock:
            self._left.clear()
        self._ready = {}
        for each in self._threads:
            each.join()
        self._made.clear()

    def _claimed(self, name: str) -> bool:
        """Whether nobody had begun with it; then it is the caller's."""
        with self._lock:
            if name not in self._left:
                return False
            self._left.remove(name)
            return True

    def _work(self, ready: Mapping[str, Event]) -> None:
        while True:
            with self._lock:
                if not self._left:
                    return
                name = self._left.pop(0)
            self._made[name] = self._tried(name)
            ready[name].set()

    def _tried(self, name: str) -> tuple[Any, BaseException | None]:
        try:
            return self._open_one(name), None
        except BaseException as failure:
            return None, failure
