"""Who takes part: the hand-written loop, the executors, onnxruntime-genai and others; each behind one call."""

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.run_clock import RunClock, Trace

Generate = Callable[[Sequence[list[int]], int], Trace]
"""(prompts of one length, new tokens) -> what happened. Greedy, and never ended by an end token."""

LOOP, AGAIN = "loop", "loop-again"
TITLES = {
    LOOP: "hand-written loop (a)",
    AGAIN: "hand-written loop, again",
    "tokens": "executor, token ids",
    "text": "executor, streamed text",
    "genai": "onnxruntime-genai, Python API (b)",
    "optimum": "Optimum, ORT generate (c)",
    "numpy": "session.run and numpy",
    "llama": "llama.cpp on the GGUF (d)",
    "workflow": "executor of the workflow form",
    "unhoisted": "the same without `hoist_selection`",
    "one-graph": "the same, authored as one graph",
    "one-graph-again": "the same, authored as one graph, again",
    "run-only": "the run call alone",
    "policies-bound": "three policy sessions, io-bound",
    "policies-run": "three policy sessions, session.run",
}


@dataclass(frozen=True)
class Contestant:
    """kind: how it generates; package, compiled: what it opens; python: the interpreter of one that has its own."""

    name: str
    kind: str
    package: str
    compiled: str = ""
    python: str = ""

    def as_data(self) -> dict[str, str]:
        """For a task file."""
        return asdict(self)


def open_contestant(each: Contestant, threads: int, clock: RunClock) -> Generate:
    """One that runs in this process, loaded."""
    if each.kind in EXECUTORS:
        watch_executors(clock)
        return executor(open_executor(Path(each.compiled), threads), clock, each.kind)
    return MAKERS[each.kind](each, threads, clock)


def watch_executors(clock: RunClock) -> None:
    """Let the runtime's run calls go through the clock; for executors loaded afterwards."""
    binding: Any = importlib.import_module("genai_runtime.binding")
    for name in ("run_bound", "run_with_values"):
        make = getattr(binding, name)
        setattr(binding, name, lambda session, origin="", make=make: _timed(clock, session, make(session, origin)))


def _timed(clock: RunClock, session: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """A run call through the clock; of a graph in two sessions each of them has its own, which count."""
    return call if hasattr(session, "run_bound") else clock.timed(session, call)


def open_executor(folder: Path, threads: int) -> Any:
    """A loaded compiled folder."""
    import genai_runtime

    return genai_runtime.load(folder, threads=threads)


EXECUTORS = ("executor", "text", "workflow")
PEERS_APART = ("optimum", "llama")
"""Kinds that need other versions of their libraries: peer_worker.py runs them, with another interpreter."""


def executor(model: Any, clock: RunClock, kind: str = "executor") -> Generate:
    """Requests at token-id level or, kind `text`, read piece by piece as a user would print it.

    Packages may state sampling as their default, so they are asked for greedy tokens; kind `workflow`: one whose
    sampler is a graph, and greedy by itself.
    """
    greedy: dict[str, Any] = {} if kind == "workflow" else {"temperature": 0.0}

    def generate(rows: Sequence[list[int]], new: int) -> Trace:
        clock.take()
        start = time.perf_counter()
        given: dict[str, Any] = {"prompt": rows[0]} if len(rows) == 1 else {"batch": rows}
        generation = model.generate(**given, max_new_tokens=new, stop_on_eos=False, **greedy)
        made = time.perf_counter()
        if kind == "text":
            for _ in generation:
                pass
        tokens = [token for row in generation.rows for token in row.tokens]
        seconds = time.perf_counter() - start
        return Trace(tokens, made - start + generation.stats.ttft, seconds, clock.take(), rows=len(rows))

    return generate


def _bound(each: Contestant, threads: int, clock: RunClock) -> Generate:
    from tools.bench.bound_loop import BoundLoop

    return BoundLoop(Path(each.package), threads, clock).generate


def _run_only(each: Contestant, threads: int, clock: RunClock) -> Generate:
    from tools.bench.policy_loops import RunOnly

    return RunOnly(Path(each.package), threads, clock).generate


def _policies(each: Contestant, threads: int, clock: RunClock) -> Generate:
    from tools.bench.policy_loops import PolicyLoop

    return PolicyLoop(Path(each.package), threads, clock, bound=each.kind == "policies-bound").generate


def _one_graph(each: Contestant, threads: int, clock: RunClock) -> Generate:
    from tools.bench.one_graph import OneGraphLoop

    return OneGraphLoop(Path(each.package), Path(each.compiled), threads, clock).generate


def _numpy(each: Contestant, threads: int, clock: RunClock) -> Generate:
    from tools.bench.numpy_loop import NumpyLoop

    return NumpyLoop(Path(each.package), threads, clock).generate


def _genai(each: Contestant, threads: int, clock: RunClock) -> Generate:
    from tools.bench.genai_loop import GenaiLoop

    return GenaiLoop(Path(each.package), threads, clock).generate


MAKERS: dict[str, Callable[[Contestant, int, RunClock], Generate]] = {
    "loop": _bound,
    "run-only": _run_only,
    "policies-bound": _policies,
    "policies-run": _policies,
    "one-graph": _one_graph,
    "numpy": _numpy,
    "genai": _genai,
}
