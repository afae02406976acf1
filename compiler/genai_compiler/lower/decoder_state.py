"""State cells, their seeds and their groups in the canonical decoder workflow (metadata standard, section 10.3).

Group `decoder_kv` holds the caches, two a layer; group `decoder_recurrent` the states that each step replaces, which
have no role, and their index for a layer.
"""

from collections.abc import Iterator

from genai_compiler.lower.decoder_components import Data, cell_contract
from genai_compiler.lower.decoder_facts import DecoderFacts, FixedState, StatePort

_CACHES, _REPLACED = "decoder_kv", "decoder_recurrent"


def state_cells(facts: DecoderFacts) -> dict[str, StatePort | FixedState]:
    """Cell name -> its ports: `<group>.<4-digit index>`, caches first."""
    cells: dict[str, StatePort | FixedState] = {
        f"{_CACHES}.{index:04d}": state for index, state in enumerate(facts.states)
    }
    return cells | {f"{_REPLACED}.{index:04d}": state for index, state in enumerate(facts.fixed_states)}


def seeds(facts: DecoderFacts) -> dict[str, StatePort | FixedState]:
    """One zero seed for each distinct cell contract, by input name."""
    found: dict[str, StatePort | FixedState] = {}
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
    found: Data = {}
    for name, group, aliasing in ((_CACHES, caches, facts.aliasing), (_REPLACED, replaced, "forbidden")):
        ports = {cell: alias for cell, alias in aliases.items() if cell.partition(".")[0] == name}
        if ports:
            found[name] = {
                **group,
                "layout": "head_major_bnsh",
                "aliasing": aliasing,
                "reuse": {"prefix_reusable": True, "evictable_prefix": True},
                "capabilities": {"snapshot": True, "fork": True},
                "ports": {"decoder": ports},
            }
    return found


def _aliases(facts: DecoderFacts) -> Iterator[tuple[str, Data]]:
    for cell, state in state_cells(facts).items():
        alias: Data = {"input": state.input, "output": state.output, "access": "read_write"}
        if isinstance(state, StatePort):
            yield cell, {**alias, "role": state.role, "layer": state.layer}
        else:
            yield cell, {**alias, "layer": int(cell.partition(".")[2])}
