"""Where the time of requests goes: session runs by component, choosing tokens, making text, and the loop around them.

A model loaded with `timings=True` notes a span for each. Without it nothing here is called and nothing is slower.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple, ParamSpec, TypeVar

from genai_runtime.adapters.registry import Adapter
from genai_runtime.origins import Origins, own_place

P = ParamSpec("P")
T = TypeVar("T")
RUN, SELECT, TEXT, REQUEST = "session run", "select a token", "make text", "request"
HOST, ADAPTER = "host", "adapter"
"""Kinds of spans; `host`: an invoke that numpy does; `adapter`: one that code of the runtime, or a plugin's, does."""


class Span(NamedTuple):
    """One call. name: the component of a run. origin: file, line and path in the package's own document.

    step: the path of the workflow's step, as plan.txt and executor.py name it. Times: nanoseconds of one clock.
    """

    kind: str
    name: str
    origin: str
    begun: int
    ended: int
    thread: int
    step: str = ""


@dataclass(frozen=True)
class Share:
    """All spans of one name. Times in microseconds. share: of the time of the requests; the loop is what is left."""

    name: str
    calls: int
    total: float
    median: float
    share: float


@dataclass
class Timings:
    """Spans of one model, in the order in which they ended. Several threads may add to it.

    origins: where its steps stand in the package's own document.
    """

    spans: list[Span] = field(default_factory=list[Span])
    origins: Origins = field(default_factory=dict[str, str])

    def timed(self, kind: str, name: str, origin: str, call: Callable[P, T]) -> Callable[P, T]:
        """`call` with a span noted for each of its calls, failed ones too. origin: the step's path."""
        place = own_place(origin, name, self.origins)
        note, clock, thread = self.spans.append, time.perf_counter_ns, threading.get_ident

        def noted(*args: P.args, **kwargs: P.kwargs) -> T:
            begun = clock()
            try:
                return call(*args, **kwargs)
            finally:
                note(Span(kind, name, place, begun, clock(), thread(), origin))

        return noted

    def watch_adapters(self, executor: object) -> None:
        """A span for each call of an adapter that this executor has opened."""
        for name, held in tuple(vars(executor).items()):
            if isinstance(held, Adapter):
                setattr(executor, name, self.timed(ADAPTER, name, held.origin, held))

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        """The span of a whole request: what shares are of."""
        begun = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spans.append(Span(REQUEST, name, "", begun, time.perf_counter_ns(), threading.get_ident()))

    def shares(self) -> list[Share]:
        """Time by name, the largest first, and `loop`: what the requests took beyond all of it (never below 0)."""
        groups: dict[str, list[int]] = {}
        for span in self.spans:
            if span.kind != REQUEST:
                name = f"{span.kind}: {span.name}" if span.kind in (RUN, HOST, ADAPTER) else span.kind
                groups.setdefault(name, []).append(span.ended - span.begun)
        known = sum(map(sum, groups.values()))
        whole = sum(span.ended - span.begun for span in self.spans if span.kind == REQUEST) or known or 1
        found = [
            Share(name, len(times), sum(times) / 1e3, median(times) / 1e3, sum(times) / whole)
            for name, times in groups.items()
        ]
        rest = max(whole - known, 0)
        found.append(Share("loop", 1, rest / 1e3, rest / 1e3, rest / whole))
        return sorted(found, key=lambda each: -each.total)

    def table(self) -> str:
        """The shares as text, a line each."""
        lines = [f"{'':<36}{'calls':>8}{'total ms':>11}{'median us':>11}{'share':>8}"]
        for each in self.shares():
            middle = f"{each.median:>11.1f}" if each.calls > 1 else " " * 11
            lines.append(f"{each.name[:36]:<36}{each.calls:>8}{each.total / 1e3:>11.2f}{middle}{each.share:>8.1%}")
        return "\n".join(lines)

    def write(self, file: str | Path) -> Path:
        """The spans as a trace that chrome://tracing and Perfetto open (Trace Event Format, complete events)."""
        first = min((span.begun for span in self.spans), default=0)
        events = [
            {
                "name": span.name or span.kind,
                "cat": span.kind,
                "ph": "X",
                "ts": (span.begun - first) / 1e3,
                "dur": (span.ended - span.begun) / 1e3,
                "pid": os.getpid(),
                "tid": span.thread,
                "args": {"origin": span.origin, "step": span.step} if span.origin else {},
            }
            for span in sorted(self.spans, key=lambda each: each.begun)
        ]
        target = Path(file)
        target.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n", encoding="utf-8")
        return target

    def clear(self) -> None:
        """Forget what was noted so far."""
        self.spans.clear()
