"""Times every session run of a generation, so that what is left of a step is the host's own work."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Call:
    """One timed call. where: what was called (a session); begin, end: seconds of `time.perf_counter`."""

    where: int
    begin: float
    end: float


class RunClock:
    """Wraps run calls. All contestants are timed through it, so its own cost (0.2 us a call) is on every side."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, float, float]] = []

    def timed(self, where: object, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, with each of its calls noted under `where`."""
        note, key, now = self._calls.append, id(where), time.perf_counter

        def timed_call(*values: Any) -> Any:
            begin = now()
            result = call(*values)
            note((key, begin, now()))
            return result

        return timed_call

    def take(self) -> list[Call]:
        """The calls since the last time, oldest first."""
        calls = [Call(*each) for each in self._calls]
        self._calls.clear()
        return calls


def step_times(calls: list[Call]) -> tuple[list[float], list[float]]:
    """Seconds of each decode step, and of the host's part of it: the step less the session runs inside it.

    The session that took most of the time is the decoder. A step lasts from the end of one of its runs to the end of
    the next; the first run is the prompt, and the step after it holds what is set up once a request: neither counts.
    """
    total: dict[int, float] = defaultdict(float)
    for call in calls:
        total[call.where] += call.end - call.begin
    decoder = max(total, key=total.__getitem__)
    steps: list[float] = []
    hosts: list[float] = []
    begun: float | None = None
    inside, seen = 0.0, 0
    for call in calls:
        inside += call.end - call.begin
        if call.where != decoder:
            continue
        seen += 1
        if begun is not None and seen > 2:
            steps.append(call.end - begun)
            hosts.append(call.end - begun - inside)
        begun, inside = call.end, 0.0
    return steps, hosts


@dataclass(frozen=True)
class Trace:
    """One generation: its tokens, seconds to the first one and to the last, and its calls."""

    tokens: list[int]
    ttft: float
    seconds: float
    calls: list[Call]

    def measured(self) -> dict[str, float]:
        """Medians in seconds: `ttft`, and after four tokens or more `step` and `host`; `rate`: tokens a second."""
        steps, hosts = step_times(self.calls)
        found = {"ttft": self.ttft}
        if steps:
            found |= {"step": float(np.median(steps)), "host": float(np.median(hosts))}
            found["rate"] = (len(self.tokens) - 1) / (self.seconds - self.ttft)
        return found
