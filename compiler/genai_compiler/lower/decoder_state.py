"""State cells, their seeds and their groups in the canonical decoder workflow (metadata standard, section 10.3).

Group `decoder_kv` holds the caches, two a layer, `decoder_static_kv` those of fixed capacity where a graph has both
kinds, `decoder_window_kv` those that keep a window, `decoder_shifted_kv_N` those that move, with columns on axis N,
`decoder_paged_kv` those in pages, `decoder_combined_kv` those that hold keys and values together, `decoder_cross_kv`
those over what an encoder made; `decoder_recurrent` the states that each step replaces. These and caches that move have
no role, and their index for a layer.
"""

from collections.abc import Iterator

from genai_compiler.lower.decoder_components import Data, State, cell_contract, control_ports
from genai_compiler.lower.decoder_facts import (
    CombinedState,
    DecoderFacts,
    PagedState,
    ShiftedState,
    StatePort,
    StaticState,
)
from genai_compiler.lower.packed_rows import paged_group

_CACHES, _STATIC, _REPLACED = "decoder_kv", "decoder_static_kv", "decoder_recurrent"
_WINDOWS, _COMBINED, _PAGED = "decoder_window_kv", "decoder_combined_kv", "decoder_paged_kv"
_CROSS, _SHIFTED = "decoder_cross_kv", "decoder_shifted_kv"


def state_cells(facts: DecoderFacts) -> dict[str, State]:
    """Cell name -> its ports: `<group>.<4-digit index>`, caches first."""
    static = _static_group(facts)
    groups: tuple[tuple[str, tuple[State, ...]], ...] = (
        (_CACHES, facts.states),
        (_PAGED, facts.paged_states),
        (static, facts.static_states),
        (_WINDOWS, facts.windows),
        *_shifted(facts).items(),
        (_COMBINED, facts.combined),
        (_CROSS, facts.crossed),
        (_REPLACED, facts.fixed_states),
    )
    return {f"{name}.{index:04d}": state for name, states in groups for index, state in enumerate(states)}


def _shifted(facts: DecoderFacts) -> dict[str, tuple[ShiftedState, ...]]:
    """Group -> caches that move, by the axis of their columns."""
    axes = dict.fromkeys(each.axis for each in facts.shifted)
    return {f"{_SHIFTED}_{axis}": tuple(each for each in facts.shifted if each.axis == axis) for axis in axes}


def _static_group(facts: DecoderFacts) -> str:
    return _STATIC if facts.states else _CACHES


def seeds(facts: DecoderFacts) -> dict[str, State]:
    """One zero seed for each distinct cell contract, by input name."""
    found: dict[str, State] = {}
    for state in state_cells(facts).values():
        if all(cell_contract(state) != cell_contract(each) for each in found.values()):
            found["package.state_seed" + (f".{len(found)}" if found else "")] = state
    return found


def declared_cells(facts: DecoderFacts) -> Data:
    """The state cells that ports of the decoder read and write."""
    by_contract = list(seeds(facts).items())
    return {
        cell: {
            "contract": cell_contract(state),
            "scope": "invocation",
            "initializer": next(name for name, seed in by_contract if cell_contract(seed) == cell_contract(state)),
            "recurrence": {"kind": "invariant"},
            "management": "runtime",
            "release_boundary": "invocation",
            "service_group": cell.partition(".")[0],
        }
        for cell, state in state_cells(facts).items()
    }


def state_groups(facts: DecoderFacts) -> Data:
    """The groups that have cells."""
    aliases = dict(_aliases(facts))
    caches: Data = {"kind": "full_attention", "sequence_axis": 2}
    replaced: Data = {"kind": "recurrent"}
    groups = [(_CACHES, caches, facts.aliasing)] if facts.states else []
    if facts.static_states:
        scattered = {"kind": "full_attention", "sequence_axis": facts.static_states[0].axis, **_scatter(facts)}
        groups.append((_static_group(facts), scattered, "forbidden"))
    groups.append((_PAGED, paged_group(facts), "required"))
    window: Data = {"kind": "sliding_attention", "update": {"kind": "replace"}}
    groups.append((_WINDOWS, window, "permitted"))
    for name, states in _shifted(facts).items():
        groups.append((name, {"kind": "sliding_attention", "sequence_axis": states[0].axis}, "forbidden"))
    groups.append((_COMBINED, {"kind": "full_attention", "sequence_axis": 3}, "forbidden"))
    groups.append((_CROSS, {"kind": "cross_attention", "sequence_axis": 2}, "forbidden"))
    groups.append((_REPLACED, replaced, "forbidden"))
    found: Data = {}
    for name, group, aliasing in groups:
        ports = {cell: alias for cell, alias in aliases.items() if cell.partition(".")[0] == name}
        if ports:
            found[name] = {
                **group,
                "layout": "head_major_bnsh",
                "aliasing": aliasing,
                "reuse": {"prefix_reusable": group["kind"] != "sliding_attention", "evictable_prefix": True},
                "capabilities": {"snapshot": True, "fork": True},
                "ports": {"decoder": ports},
            }
    return found


def _scatter(facts: DecoderFacts) -> Data:
    """How caches of fixed capacity are written: at each row's length, by the ports that the graph has for it."""
    writes, lengths = control_ports(facts)
    update: Data = {"kind": "indexed_scatter", "write_indices": "cache_lengths", "capacity": "package.capacity"}
    update |= {"write_indices_ports": {"decoder": writes.name}, "kv_length_ports": {"decoder": lengths.name}}
    return {"logical_lengths": "cache_lengths", "update": update}


def _aliases(facts: DecoderFacts) -> Iterator[tuple[str, Data]]:
    for cell, state in state_cells(facts).items():
        alias: Data = {"input": state.input, "output": state.output, "access": "read_write"}
        if isinstance(state, CombinedState):
            yield cell, {**alias, "role": "combined", "layer": state.layer}
        elif isinstance(state, StatePort | StaticState | PagedState):
            yield cell, {**alias, "role": state.role, "layer": state.layer}
        else:
            yield cell, {**alias, "layer": int(cell.partition(".")[2])}
