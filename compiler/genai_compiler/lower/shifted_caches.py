"""Caches that move: a run takes the past columns and gives the new ones, and whoever drives it drops the oldest.

So devices of fixed shapes had them first: past [heads, 1, head size, columns - n] for keys, for values [heads, 1,
columns - n, head size], n tokens a run, and a mask over all columns (onnxruntime-genai, windowed_kv_cache.cpp). Which
axis has the columns is told by the ports: it is the one in which past and present differ.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from genai_compiler.lower.decoder_facts import CacheShift, ShiftedState
from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.match_state import LayerPorts, spell_pair
from genai_compiler.lower.matching import spell_port
from genai_compiler.lower.merge_facts import Merge
from genai_compiler.read.genai_config import SlidingWindow
from genai_compiler.read.signature import Port


def merge_shifted(ports: MatchedPorts, merge: Merge) -> tuple[ShiftedState, ...]:
    """The caches in (layer, key before value) order. Reports wrong-port and unsupported-package-class."""
    pairs: list[tuple[Literal["key", "value"], LayerPorts]] = [("key", each) for each in ports.keys]
    pairs += [("value", each) for each in ports.values]
    if ports.lengths or ports.attention_mask is None or ports.fixed or ports.combined:
        what = (
            "caches that move need a mask that tells which columns hold a token, and no lengths or other state beside"
        )
        help = "export with attention_mask and caches alone, or set slide_key_value_cache to false"
        merge.report("unsupported-package-class", merge.path("window"), what, help, True)
        return ()
    found = [_state(role, each, merge) for role, each in pairs]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.layer, each.role)))


def _state(role: Literal["key", "value"], pair: LayerPorts, merge: Merge) -> ShiftedState | None:
    past, present = pair.past.shape or (), pair.present.shape or ()
    apart = [axis for axis, (old, new) in enumerate(zip(past, present, strict=False)) if old != new]
    axis = apart[0] if len(apart) == 1 and len(past) == len(present) else -1
    inner = [each for at, each in enumerate(past) if at != axis]
    rows = [at for at, each in enumerate(past) if at != axis and each == 1]
    if axis < 0 or pair.past.dtype != pair.present.dtype or not rows or not all(isinstance(e, int) for e in inner):
        what = f"{spell_pair(pair)}: past and new columns of one row differ in one axis, and others are numbers"
        merge.report("wrong-port", merge.path(role), what, "export the caches with these axes", True)
        return None
    dims = tuple("positions" if at == axis else "batch" if at == rows[0] else each for at, each in enumerate(past))
    named = tuple(each for each in dims if each is not None)
    return ShiftedState(role, pair.layer, pair.past.name, pair.present.name, pair.past.dtype, named, axis)


def merge_shift(
    ports: MatchedPorts, states: tuple[ShiftedState, ...], window: SlidingWindow, new: int, merge: Merge
) -> CacheShift | None:
    """How the caches move. new: tokens of a run whose ports these are. Reports wrong-port and bad-value."""
    taken = {each.past.name: each.past for each in (*ports.keys, *ports.values)}
    told = {extent for each in states if isinstance(extent := _extent(taken[each.input], each.axis), int)}
    columns = {each + new for each in told}
    mask = ports.attention_mask
    if mask is not None and mask.shape is not None and isinstance(mask.shape[1], int):
        columns.add(mask.shape[1])
    if len(columns) > 1:
        spelled = ", ".join(spell_port(each) for each in (*list(taken.values())[:2], *([mask] if mask else [])))
        what = f"past columns and the {new} new ones of a run are not as many as the mask has: {spelled}"
        merge.report("wrong-port", merge.path("window"), what, "export all for one number of columns", True)
        return None
    most = columns.pop() if columns else merge.stated.context_length
    if most is None:
        what = "nobody says how many columns the caches have: neither their ports nor the mask's, nor context_length"
        merge.report("wrong-port", merge.path("window"), what, "state context_length", True)
        return None
    for fault in dict.fromkeys(_unfit(window.pad_value, each.dtype) for each in states):
        if fault:
            merge.report("bad-value", (*merge.path("window"), "pad_value"), fault, error=True)
    return CacheShift(most, window.pad_value, window.alignment == "right")


def _extent(port: Port, axis: int) -> int | str | None:
    return port.shape[axis] if port.shape is not None else None


def _unfit(value: int, dtype: str) -> str:
    """Why a cache can't hold the number in its empty columns, "" where it can."""
    if "int" in dtype:
        bounds = np.iinfo(dtype)
        if not bounds.min <= value <= bounds.max:
            return f"pad_value {value} is no {dtype}"
    elif value and dtype not in ("float16", "float32", "float64"):
        return f"pad_value {value}: empty columns of a cache of {dtype} hold 0"
    return ""


def told_columns(states: tuple[ShiftedState, ...], shift: CacheShift) -> Iterator[str]:
    """A line for the summary."""
    size = sum(each.bytes_per_column for each in states)
    yield f"caches move: {shift.columns} columns of {size} bytes, the oldest drop out"
