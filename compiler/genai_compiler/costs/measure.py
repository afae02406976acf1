"""Measure a table of costs on this machine: small calls in short blocks, in turns, the fastest block of each.

Other processes only ever make a block longer, so that the fastest of many is what the call itself takes. Everything
runs through the runtime's own runners, as it does in an executor, on one thread.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from genai_runtime.host_program import HostInput, HostProgram, HostStep
from genai_runtime.policy_graphs import PolicyGraphs
from genai_runtime.sessions import Graph, Sessions, Settings
from genai_runtime.values import Value, to_value

from genai_compiler.costs.machine import machine
from genai_compiler.costs.table import WAYS, Alternatives, Costs, HostCosts, Searches, SessionCosts
from genai_compiler.costs.timed_draws import draw, graphs_in, scores
from genai_compiler.costs.timed_graphs import LONG, PORTS, SHORT, write_graphs

EXTENTS = (64, 512, 2048, 8192, 32768, 131072)
"""Where the curves have points."""
ROUNDS = 60
BLOCK = 400e-6
"""Seconds that a block lasts, or one call where that is longer."""
SLOW = 5e-3
"""Calls that take longer run in the first rounds only."""
SLOW_ROUNDS = 5

Call = Callable[[], object]
Progress = Callable[[int, int], None]
"""Told how many rounds are done, and of how many."""


def measured(progress: Progress, rounds: int = ROUNDS, extents: tuple[int, ...] = EXTENTS) -> Costs:
    """The table of this machine."""
    with TemporaryDirectory(prefix="genai-compile-") as folder:
        files = write_graphs(Path(folder))
        graphs = {name: Graph(file, file.parent) for name, file in files.items()}
        drawing = graphs_in(Path(folder))
        settings = Settings(options={"intra_op_num_threads": 1, "inter_op_num_threads": 1})
        sessions = Sessions(graphs, settings, policy_graphs=drawing)
        try:
            calls = dict((*_calls(sessions, extents), *_draws(drawing, extents)))
            return table_of(fastest(calls, progress, rounds), extents)
        finally:
            sessions.close()  # before the files go: they are open where a system locks what is


def fastest(calls: Mapping[str, Call], progress: Progress, rounds: int) -> dict[str, float]:
    """Microseconds of each call: the fastest block of all rounds."""
    counts = {name: _count(call) for name, call in calls.items()}
    least = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds):
        progress(turn, rounds)
        for name, call in calls.items():
            if turn >= SLOW_ROUNDS and least[name] > SLOW * 1e6:
                continue
            count = counts[name]
            begun = time.perf_counter()
            for _ in range(count):
                call()
            least[name] = min(least[name], (time.perf_counter() - begun) / count * 1e6)
    progress(rounds, rounds)
    return least


def _count(call: Call) -> int:
    """Calls in a block; the call is warm afterwards."""
    call()
    begun = time.perf_counter()
    call()
    return max(1, int(BLOCK / max(time.perf_counter() - begun, 1e-7)))


def _calls(sessions: Sessions, extents: tuple[int, ...]) -> Iterator[tuple[str, Call]]:
    """What is timed, by name."""
    number, other = to_value(np.array([3])), to_value(np.array([4]))
    many = [number] * PORTS
    yield "one", _session(sessions, "one", ["x0"], ["z0"], [number])
    yield "taking", _session(sessions, "taking", _ports("x"), ["z0"], many)
    yield "giving 1", _session(sessions, "giving", _ports("x"), ["z0"], many)
    yield "giving", _session(sessions, "giving", _ports("x"), _ports("z"), many)
    for name in ("short", "long"):
        yield name, _session(sessions, name, ["x", "y"], ["z"], [number, other])
    add = HostStep("Add", ("x0", "x0"), "z0")
    adds = (add, *(HostStep("Add", ("x0", "x0"), name) for name in _ports("z")[1:]))
    yield "host", _host(sessions, ["x0"], ["z0"], (add,), [number])
    yield "host taking", _host(sessions, _ports("x"), ["z0"], (add,), many)
    yield "host adding", _host(sessions, ["x0"], ["z0"], adds, [number])
    yield "host giving", _host(sessions, ["x0"], _ports("z"), adds, [number])
    generator = np.random.default_rng(0)
    for extent in extents:
        row = (generator.standard_normal((1, extent)) * 3).astype(np.float32)
        yield from _by_extent(sessions, extent, row)


def _by_extent(
    sessions: Sessions, extent: int, row: "np.ndarray[tuple[int, int], np.dtype[np.float32]]"
) -> Iterator[tuple[str, Call]]:
    values = [to_value(row)]
    for operator in ("ArgMax", "ArgMin"):
        yield f"{operator} {extent}", _session(sessions, operator, ["x"], ["z"], values)
        step = HostStep(operator, ("x",), "z", (0,))
        yield f"host {operator} {extent}", _host(sessions, ["x"], ["z"], (step,), values, "float32", 2)


def _draws(graphs: PolicyGraphs, extents: tuple[int, ...]) -> Iterator[tuple[str, Call]]:
    """Each way of drawing from a row of each extent, by both sides."""
    for extent in extents:
        row = scores(extent)
        for way in WAYS:
            yield f"{way} {extent}", draw(way, row, graphs)
            yield f"host {way} {extent}", draw(way, row, None)


def _ports(letter: str) -> list[str]:
    return [f"{letter}{index}" for index in range(PORTS)]


def _session(sessions: Sessions, name: str, takes: list[str], gives: list[str], values: list[Value]) -> Call:
    runner = sessions.runner(name, takes, gives, name)
    return lambda: runner(*values)


def _host(
    sessions: Sessions,
    takes: list[str],
    gives: list[str],
    steps: tuple[HostStep, ...],
    values: list[Value],
    dtype: str = "int64",
    rank: int = 1,
) -> Call:
    program = HostProgram(tuple(HostInput(port, dtype, (-1,) * rank) for port in takes), steps)
    runner = sessions.host_runner("one", takes, gives, "one", program)
    return lambda: runner(*values)


def table_of(times: Mapping[str, float], extents: tuple[int, ...]) -> Costs:
    """The table that follows from the times of all calls: each number is what a call with more of it takes longer."""
    more = PORTS - 1
    node = _less(times["long"], times["short"], LONG - SHORT)
    taken, given = _less(times["taking"], times["one"], more), _less(times["giving"], times["giving 1"], more)
    call = _less(times["one"], taken + given + node)
    host_taken, added = (
        _less(times["host taking"], times["host"], more),
        _less(times["host adding"], times["host"], more),
    )
    host_given = _less(times["host giving"], times["host adding"], more)
    host_call = _less(times["host"], host_taken + added + host_given)
    around, host_around = call + taken + given, host_call + host_taken + host_given

    def curve(name: str, less: float, least: float) -> tuple[tuple[int, float], ...]:
        found = [(extent, times[f"{name} {extent}"]) for extent in extents]
        return tuple((extent, _rounded(max(each - less, least))) for extent, each in found)

    searches = {
        name: Alternatives(graph=curve(name, around, node), host=curve(f"host {name}", host_around, 0.0))
        for name in ("ArgMax", "ArgMin")
    }
    draws = {way: Alternatives(graph=curve(way, 0.0, 0.0), host=curve(f"host {way}", 0.0, 0.0)) for way in WAYS}
    return Costs(
        version=1,
        measured=date.today().isoformat(),
        machine=machine(),
        session=SessionCosts(call=_rounded(call), input=_rounded(taken), output=_rounded(given)),
        node=_rounded(node),
        host=HostCosts(
            call=_rounded(host_call), input=_rounded(host_taken), output=_rounded(host_given), operator=_rounded(added)
        ),
        searches=Searches(**searches),
        draws=draws,
    )


def _less(longer: float, shorter: float, count: int = 1) -> float:
    """The difference, of `count` equal parts; never below 0."""
    return max(longer - shorter, 0.0) / count


def _rounded(number: float) -> float:
    """Three digits that say something."""
    return float(f"{number:.3g}")
