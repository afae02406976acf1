"""Caches that hold keys and values together, as the graph has them: [2, batch, heads, positions, head size]."""

from genai_compiler.lower.decoder_facts import CombinedState
from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.match_state import spell_pair
from genai_compiler.lower.merge_facts import Merge
from genai_compiler.read.places import format_path
from genai_compiler.read.signature import Port

_RANK = 5


def merge_combined(ports: MatchedPorts, merge: Merge) -> tuple[CombinedState, ...]:
    """The caches by layer. Extents that the graph leaves open are the configuration's.

    Reports wrong-port, fixed-cache-appends and unknown-state-shape.
    """
    found: list[CombinedState] = []
    path = merge.path("combined")
    for each in ports.combined:
        past, present = each.past, each.present
        shapes = [port.shape for port in (past, present) if port.shape is not None]
        if past.dtype != present.dtype or not shapes or any(len(shape) != _RANK for shape in shapes):
            help = "a cache of keys and values together is [2, batch, heads, positions, head size], in and out"
            merge.report("wrong-port", path, spell_pair(each), help, True)
            continue
        if isinstance((past.shape or (None,) * _RANK)[3], int):
            what = f"{spell_pair(each)}: its length is fixed, and what a step gives is longer"
            merge.report("fixed-cache-appends", path, what, "export with a symbolic past length", True)
            continue
        heads, size = (
            _extent(past, present, 2, merge.stated.kv_heads),
            _extent(past, present, 4, merge.stated.head_size),
        )
        if heads is None or size is None:
            missing = merge.path("kv_heads" if heads is None else "head_size")
            what = f"cache {past.name!r}: nobody says what {missing[-1]} is"
            merge.report("unknown-state-shape", missing, what, f"state {format_path(missing)}", True)
            continue
        found.append(CombinedState(each.layer, past.name, present.name, past.dtype, heads, size))
    return tuple(sorted(found, key=lambda each: each.layer))


def _extent(past: Port, present: Port, axis: int, stated: int | None) -> int | None:
    for port in (past, present):
        extent = port.shape[axis] if port.shape is not None else None
        if isinstance(extent, int):
            return extent
    return stated
