"""Caches whose operator drops what left its window: buffers of one size, whatever the length of the sequence.

The operator's attributes say which these are and how wide the window is; a configuration's own list is its word on the
same matter. Any capacity from the window up gives equal results (onnxruntime, GroupQueryAttention with
sliding_window_cache); more room than the window means fewer moves.
"""

from collections.abc import Mapping

from genai_compiler.lower.decoder_facts import StatePort, StaticState
from genai_compiler.lower.merge_facts import Merge, ranges
from genai_compiler.read.attention import CacheOp

SLACK = 16
"""Positions of room beyond the window where a configuration states none, as the reference has it on CPU."""


def split_windows(states: tuple[StatePort, ...], merge: Merge) -> tuple[tuple[StatePort, ...], tuple[StaticState, ...]]:
    """(caches that keep every position, caches of a window).

    Reports: unsupported-package-class (prompts cut into windows; a window without its width), wrong-port (a capacity
    below the window), config-contradicts-graph.
    """
    ops = {name: op for op in merge.signature.cache_ops for name in (op.past_key, op.past_value)}
    bounded = [each for each in states if (op := ops.get(each.input)) is not None and op.bounded]
    windows = [_window(each, ops[each.input], merge) for each in bounded]
    _check_stated(bounded, ops, merge)
    kept = tuple(each for each in states if each not in bounded)
    return kept, tuple(each for each in windows if each is not None)


def _window(state: StatePort, op: CacheOp, merge: Merge) -> StaticState | None:
    if op.local_window is None:
        what = f"the operator of {state.input!r} drops positions, but has no window (local_window_size)"
        merge.report("unsupported-package-class", merge.path("key"), what, "export it with its window", True)
        return None
    stated = merge.stated.window
    slack = stated.cache_slack if stated is not None and stated.cache_slack > 0 else SLACK
    capacity = state.capacity if state.capacity is not None else op.local_window + slack
    if capacity < op.local_window:
        what = f"{state.input!r} holds {capacity} positions, but its operator's window is {op.local_window}"
        merge.report("wrong-port", merge.path("key"), what, "export it with room for the window", True)
        return None
    shape = (state.heads, capacity, state.head_dim)
    return StaticState(state.role, state.layer, state.input, state.output, state.dtype, shape, 2)


def _check_stated(bounded: list[StatePort], ops: Mapping[str, CacheOp], merge: Merge) -> None:
    """The configuration's sliding_window, held against the operators."""
    stated, path = merge.stated.window, merge.path("window")
    if stated is None:
        return
    if stated.slide_inputs or stated.slide_key_value_cache:
        what = "sliding_window asks for prompts cut into windows (slide_inputs, slide_key_value_cache: true by default)"
        merge.report(
            "unsupported-package-class", path, what, "set both to false if the graph keeps every position", True
        )
        return
    widths = {op.local_window for op in ops.values() if op.local_window is not None}
    if not widths:
        what = f"window_size {stated.window_size} is stated, but no attention operator has a window; caches just grow"
        merge.report("config-contradicts-graph", path, what, "delete sliding_window")
        return
    if widths != {stated.window_size}:
        found = " and ".join(map(str, sorted(widths)))
        merge.contradiction((*path, "window_size"), stated.window_size, f"the graph's windows are {found}")
    layers = sorted({each.layer for each in bounded})
    if bounded and stated.layers and sorted(set(stated.layers)) != layers:
        graph = f"the graph's operators drop positions in layers {ranges(layers)}"
        merge.contradiction((*path, "layers"), list(stated.layers), graph)
