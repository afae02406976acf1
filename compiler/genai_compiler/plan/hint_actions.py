"""Hints that place nothing: what ONNX Runtime's sessions do with them, and why most change nothing here."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from genai_compiler.plan.hint_reach import Reach
from genai_compiler.plan.placement import Placement
from genai_compiler.read.hint_sources import FILE, Action, Hint

DONE: Mapping[Action, str] = {
    "pin": "weights stay where their session runs for as long as it is open",
    "no_cuda_graph": "no run is ever captured",
    "group": "all nodes of a component share one session, and so one placement",
}
"""Actions whose wish is fulfilled without doing anything."""
LEFT: Mapping[Action, str] = {
    "low_priority": "ONNX Runtime evicts nothing while a session is open",
    "allow_alias": "past and present share a buffer exactly where the graph proves it harmless (place_state)",
    "prefetch": "ONNX Runtime brings every weight in when it opens a session",
    "overlap": "the steps of one request depend on each other, and operators of a session run in order",
    "cuda_graph_region": "a captured run replays one shape, and the shapes of a request change",
    "chunk_size": "a prompt is one run, or as many as the package's own words or --prefill-chunk make of it",
    "offloadable": "no memory is short of: a session has one placement",
    "kernel": "ONNX Runtime chooses kernels by itself",
}
"""Actions that are left alone, and why."""


def memory_advice(hint: Hint, reaches: Mapping[str, Reach], placements: dict[str, Placement]) -> Iterator[str]:
    """Decisions about a hint that is no placement; `placements` gets what a session is told of memory."""
    if hint.selector is not None and not reaches:
        yield f"{hint.name} is left alone: it selects nothing in this package"
    elif hint.action in DONE:
        yield f"{hint.name} ({hint.action}) is so already: {DONE[hint.action]}"
    elif hint.action in LEFT:
        yield f"{hint.name} ({hint.action}) is left alone: {LEFT[hint.action]}"
    else:
        yield from _arena(hint, reaches, placements)


def _arena(hint: Hint, reaches: Mapping[str, Reach], placements: dict[str, Placement]) -> Iterator[str]:
    kind = hint.device.type if hint.device is not None else ""
    amount = hint.amount
    if hint.rank > FILE:
        why = "a limit could make a run fail, and only the caller or the user may risk that"
        yield f"{hint.name} (arena_size) is left alone: {why}"
        return
    if amount is None or kind not in ("gpu", "cpu") or (kind == "cpu") != (amount == 0):
        why = "ONNX Runtime takes a limit for the arena of a gpu, and for that of the cpu only 0 (none)"
        yield f"{hint.name} (arena_size) is left alone: {why}"
        return
    for name in reaches:
        if name not in placements:
            continue
        if not reaches[name].whole:
            yield f"{hint.name} (arena_size) is left alone for '{name}': a session has one arena for all its nodes"
        elif kind == "cpu":
            placements[name] = replace(placements[name], cpu_arena=False)
            yield f"{hint.name}: the session of '{name}' gives freed CPU memory back (enable_cpu_mem_arena off)"
        elif placements[name].memory:
            yield f"{hint.name} (arena_size) is left alone for '{name}': a stronger hint has set it"
        else:
            placements[name] = replace(placements[name], memory=amount)
            yield f"{hint.name}: the arena of '{name}' on a gpu takes at most {amount} bytes (gpu_mem_limit)"
