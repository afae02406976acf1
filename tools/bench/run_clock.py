"""Times every session run of a generation, so that what is left of a step is the host's own work."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Steps:
    """Of each decode step: its seconds, the host's part of them, and how many session runs it took."""

    seconds: list[float]
    hosts: list[float]
    runs: list[int]


def step_times(calls: Sequence[Call]) -> Steps:
    """The decode steps of one generation; the host's part is the step less the session runs inside it.

    The session that took most of the time is the decoder. A step lasts from the end of one of its runs to the end of
    the next; the first run is the prompt, and the step after it holds what is set up once a request: neither counts.
    Where the prompt has a session of its own the decoder is the one that ran most often among the two dearest.
    """
    found = Steps([], [], [])
    decoder = decoder_of(calls)
    begun: float | None = None
    inside, runs, seen = 0.0, 0, 0
    for call in calls:
        inside += call.end - call.begin
        runs += 1
        if call.where != decoder:
            continue
        seen += 1
        if begun is not None and seen > 2:
            found.seconds.append(call.end - begun)
            found.hosts.append(call.end - begun - inside)
            found.runs.append(runs)
        begun, inside, runs = call.end, 0.0, 0
    return found


def decoder_of(calls: Sequence[Call]) -> int:
    """Where the decode steps run: of the two places that took most time, the one that was called more often."""
    total: dict[int, float] = defaultdict(float)
    count: dict[int, int] = defaultdict(int)
    for call in calls:
        total[call.where] += call.end - call.begin
        count[call.where] += 1
    dearest = sorted(total, key=total.__getitem__, reverse=True)[:2]
    if len(dearest) == 2 and count[dearest[0]] * 4 > count[dearest[1]]:
        return dearest[0]
    return max(dearest, key=count.__getitem__, default=0)


@dataclass(frozen=True)
class Trace:
    """One generation: its tokens (row after row), seconds to the first and to the last, and its calls.

    steps, hosts, runs: of a contestant in another process, which has no calls here, each step's seconds, host time and
    session runs; the last two may be unknown. rows: rows of the request.
    """

    tokens: list[int]
    ttft: float
    seconds: float
    calls: list[Call] = field(default_factory=list[Call])
    steps: Sequence[float] = ()
    hosts: Sequence[float] = ()
    runs: Sequence[int] = ()
    rows: int = 1

    def measured(self) -> dict[str, float]:
        """Medians in seconds: `ttft`, and after four tokens or more `step`, `host`; `runs` a step; `rate`: tokens/s."""
        found = {"ttft": self.ttft}
        own = step_times(self.calls) if self.calls else Steps(list(self.steps), list(self.hosts), list(self.runs))
        if own.seconds:
            found["step"] = float(np.median(own.seconds))
            found["rate"] = (len(self.tokens) - self.rows) / (self.seconds - self.ttft)
        if own.hosts:
            found |= {"host": float(np.median(own.hosts)), "runs": float(np.median(own.runs))}
        return found
