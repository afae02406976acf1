"""Caches in pages, as the graph has them; what it leaves open the configuration fills."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from genai_compiler.lower.decoder_facts import FixedState, PagedCache, PagedState
from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.match_state import LayerPorts, spell_pair
from genai_compiler.lower.merge_facts import Merge, check_layers, check_sizes, ranges
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, StateGroupConfig, named
from genai_compiler.read.places import DocPath, format_path

BLOCK = 256
"""Positions a page where nobody says: the reference's own."""


def merge_paged(ports: MatchedPorts, block: int | None, merge: Merge) -> PagedCache | None:
    """The caches in pages, None for a graph without. block: positions a page by the configuration.

    Reports wrong-port, unknown-state-shape, config-contradicts-graph.
    """
    if ports.paged is None:
        return None
    found = [_state("key", each, block, merge) for each in ports.keys]
    found += [_state("value", each, block, merge) for each in ports.values]
    states = tuple(sorted((each for each in found if each is not None), key=lambda each: (each.layer, each.role)))
    if states and len(states) == len(found):
        check_sizes(states, merge)
        check_layers(ports, merge)
        sizes = sorted({each.block for each in states})
        if len(sizes) > 1:
            what = f"the caches have pages of {' and '.join(map(str, sizes))} positions, and there is one table"
            merge.report("wrong-port", merge.path("key"), what, "export with pages of one size", True)
    paged = ports.paged
    return PagedCache(paged.cumulative, paged.past, paged.table, paged.metadata, states)


def unused_batching(config: GenaiConfig, paged: bool) -> Iterator[Problem]:
    """The warning that `engine.dynamic_batching` speaks of pages which the graph has not.

    Beside state groups the reference asks for that block, whatever caches they have (reference, 1.18).
    """
    engine = config.text.root.get("engine") if isinstance(config.text.root, dict) else None
    if not paged and not config.state_groups and isinstance(engine, dict) and engine.get("dynamic_batching"):
        what = "'dynamic_batching' has no effect: the decoder's graph keeps no caches in pages"
        spot = named(config, ("engine", "dynamic_batching"))
        yield Problem("ignored-key", *spot, what, "remove it, or export for paged attention", Severity.WARNING)


def _state(role: Literal["key", "value"], each: LayerPorts, block: int | None, merge: Merge) -> PagedState | None:
    past, present = each.past, each.present
    path = merge.path(role)
    if past.shape is None or len(past.shape) != 4 or past.dtype != present.dtype:
        what = f"{spell_pair(each)}; a cache in pages is [pages, positions, heads, head size], in and out"
        merge.report("wrong-port", path, what, error=True)
        return None
    stated = (block, merge.stated.kv_heads, merge.stated.head_size)
    size, heads, head_dim = (_number(extent, other) for extent, other in zip(past.shape[1:], stated, strict=True))
    if heads is None or head_dim is None:
        missing = merge.path("kv_heads" if heads is None else "head_size")
        what = f"{spell_pair(each)}, and nobody says what {missing[-1]} is"
        merge.report("unknown-state-shape", missing, what, f"state {format_path(missing)}", True)
        return None
    return PagedState(role, each.layer, past.name, present.name, past.dtype, size or BLOCK, heads, head_dim)


def _number(extent: int | str | None, stated: int | None) -> int | None:
    return extent if isinstance(extent, int) else stated


def with_pages(paged: PagedCache | None, length: int) -> PagedCache | None:
    """The caches with as many pages a row as so many positions need."""
    if paged is None:
        return None
    states = tuple(replace(each, pages=max(1, -(-length // each.block))) for each in paged.states)
    return replace(paged, states=states)


def check_groups(
    groups: tuple[StateGroupConfig, ...], paged: PagedCache | None, fixed: tuple[FixedState, ...], merge: Merge
) -> None:
    """Hold `state_groups` against the graph, which decides. Reports config-contradicts-graph."""
    pages = sorted({each.layer for each in paged.states}) if paged is not None else []
    convs = sorted({each.layer for each in fixed if len(each.shape) == 2})
    recurrences = sorted({each.layer for each in fixed if len(each.shape) != 2})
    found = {"paged_kv": pages, "fixed_conv": convs, "fixed_recurrent": recurrences}
    words = {
        "paged_kv": "caches in pages",
        "fixed_conv": "states of two axes",
        "fixed_recurrent": "states of more axes",
    }
    for group in groups:
        path: DocPath = (*group.path, "layer_ids")
        layers = found.get(group.kind)
        if layers is None:
            known = ", ".join(found)
            what = f"{group.kind!r} is no kind of state group ({known}); what the graph has is taken"
            merge.report("bad-value", (*group.path, "kind"), what)
        elif sorted(group.layers) != layers:
            graph = f"the graph has {words[group.kind]} for layers {ranges(layers)}"
            merge.contradiction(path, list(group.layers), graph)
