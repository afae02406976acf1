"""Who takes part: the hand-written loop, the executors of both forms, onnxruntime-genai; each behind one call."""

import importlib
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.bench.run_clock import RunClock, Trace

Generate = Callable[[list[int], int], Trace]
"""(prompt ids, new tokens) -> what happened. Greedy, and never ended by an end token."""

LOOP, AGAIN = "loop", "loop-again"
TITLES = {
    LOOP: "hand-written loop (a)",
    AGAIN: "hand-written loop, again",
    "tokens": "executor, token ids",
    "text": "executor, streamed text",
    "workflow": "executor of the workflow form, token ids",
    "genai": "onnxruntime-genai (Python API)",
}


def has_genai() -> bool:
    """Whether onnxruntime-genai is installed."""
    return importlib.util.find_spec("onnxruntime_genai") is not None


def make_contestants(
    packages: Path, compiled: Path, threads: int, clock: RunClock, names: list[str]
) -> dict[str, Generate]:
    """Every contestant of `names`, loaded. packages: the built packages `v1` and `workflow`; compiled: likewise."""
    from tools.bench.bound_loop import BoundLoop

    graph = packages / "v1" / "model.onnx"
    made: dict[str, Generate] = {LOOP: BoundLoop(graph, threads, clock).generate}
    watch_executors(clock)
    if "tokens" in names or "text" in names:
        model = open_executor(compiled / "v1", threads)
        made["tokens"] = lambda ids, new: executor_tokens(model, ids, new, clock)
        made["text"] = lambda ids, new: executor_text(model, ids, new, clock)
    if "workflow" in names:
        workflow = open_executor(compiled / "workflow", threads)
        made["workflow"] = lambda ids, new: executor_tokens(workflow, ids, new, clock)
    if "genai" in names:
        made["genai"] = GenaiLoop(packages / "v1", threads, clock).generate
    made[AGAIN] = BoundLoop(graph, threads, clock).generate
    return {name: made[name] for name in names}


def watch_executors(clock: RunClock) -> None:
    """Let the runtime's run calls go through the clock; for executors loaded afterwards."""
    binding: Any = importlib.import_module("genai_runtime.binding")
    for name in ("run_bound", "run_with_values"):
        make = getattr(binding, name)
        setattr(binding, name, lambda session, make=make: clock.timed(session, make(session)))


def open_executor(folder: Path, threads: int) -> Any:
    """A loaded compiled folder."""
    import genai_runtime

    return genai_runtime.load(folder, threads=threads)


def executor_tokens(model: Any, ids: list[int], new: int, clock: RunClock) -> Trace:
    """A request at token-id level."""
    clock.take()
    start = time.perf_counter()
    generation = model.generate(ids, max_new_tokens=new, stop_on_eos=False)
    made = time.perf_counter()
    tokens = generation.tokens
    return Trace(tokens, made - start + generation.stats.ttft, time.perf_counter() - start, clock.take())


def executor_text(model: Any, ids: list[int], new: int, clock: RunClock) -> Trace:
    """A request whose text is read piece by piece, as a user would print it."""
    clock.take()
    start = time.perf_counter()
    generation = model.generate(ids, max_new_tokens=new, stop_on_eos=False)
    made = time.perf_counter()
    for _ in generation:
        pass
    seconds = time.perf_counter() - start
    return Trace(generation.tokens, made - start + generation.stats.ttft, seconds, clock.take())


class GenaiLoop:
    """onnxruntime-genai's generator. Its C++ host work is inside the timed call: only Python counts as host here."""

    def __init__(self, package: Path, threads: int, clock: RunClock) -> None:
        self._library = importlib.import_module("onnxruntime_genai")
        config = self._library.Config(str(package))
        settings = {"intra_op_num_threads": threads, "inter_op_num_threads": 1, "log_severity_level": 3}
        stated = json.loads((package / "genai_config.json").read_text(encoding="utf-8"))["model"]
        # No prompt here leads to the last id, so that a generation always has its full length.
        never = stated["vocab_size"] - 1
        config.overlay(json.dumps({"model": {"eos_token_id": never, "decoder": {"session_options": settings}}}))
        self._model, self._clock = self._library.Model(config), clock

    def generate(self, ids: list[int], new: int) -> Trace:
        """`new` greedy tokens after `ids`."""
        self._clock.take()
        start = time.perf_counter()
        options = self._library.GeneratorParams(self._model)
        options.set_search_options(do_sample=False, max_length=len(ids) + new)
        generator = self._library.Generator(self._model, options)
        advance = self._clock.timed(generator, generator.generate_next_token)
        generator.append_tokens(ids)
        advance()
        tokens = [int(generator.get_next_tokens()[0])]
        first = time.perf_counter()
        for _ in range(new - 1):
            advance()
            tokens.append(int(generator.get_next_tokens()[0]))
        return Trace(tokens, first - start, time.perf_counter() - start, self._clock.take())
