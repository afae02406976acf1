"""The contracts and the two components of the canonical decoder workflow (metadata standard, section 10.3).

Symbols: `sequence` new positions, `past_sequence` cached ones, `total_sequence` both together. They differ because the
input ports of one invocation must agree on each symbol.
"""

from typing import Any

from genai_compiler.lower.decoder_facts import (
    CombinedState,
    CrossState,
    DecoderFacts,
    FixedState,
    FrontFacts,
    PagedState,
    ShiftedState,
    StatePort,
    StaticState,
)
from genai_compiler.lower.packed_rows import over_tokens, packed_logits, paged_cell, paged_ports
from genai_compiler.read.signature import Port

Data = dict[str, Any]
State = StatePort | CombinedState | FixedState | StaticState | PagedState | ShiftedState

ALIGNED = {"kind": "request_aligned", "axis": 0}
FLAG = {"dtype": "bool", "rank": 1, "shape": ["batch"], "batch_layout": ALIGNED}
COUNT = {"dtype": "int64", "rank": 1, "shape": ["batch"], "batch_layout": ALIGNED}
SCALAR = {"dtype": "int64", "rank": 1, "shape": [1]}


def application_contract(port: Port, extent: str) -> Data:
    """A mask or positions [batch, extent], or as many copies of that as the graph asks for: [3, batch, extent]."""
    copies = list(port.shape[:-2]) if port.shape is not None else []
    layout = {"kind": "request_aligned", "axis": len(copies)}
    return {"dtype": port.dtype, "rank": 2 + len(copies), "shape": [*copies, "batch", extent], "batch_layout": layout}


def token_contract(facts: DecoderFacts) -> Data:
    """Token ids in the dtype the graph takes them."""
    return {"dtype": facts.token_ids.dtype, "rank": 2, "shape": ["batch", "sequence"], "batch_layout": ALIGNED}


def cell_contract(state: State, positions: str = "kv_sequence") -> Data:
    """A cache [batch, heads, positions, head size]; `positions` is a number where the graph fixes it. Or a state
    [batch, n, m, ...] or [n, batch, m, ...] of one size, or keys and values together, [2, batch, heads, positions,
    head size]; or pages.
    """
    if isinstance(state, PagedState):
        return paged_cell(state)
    if isinstance(state, ShiftedState):
        dims = [positions if each == "positions" else each for each in state.dims]
        layout = {"kind": "request_aligned", "axis": dims.index("batch")}
        return {"dtype": state.dtype, "rank": len(dims), "shape": dims, "batch_layout": layout}
    if isinstance(state, FixedState) and state.axis:
        dims = [*state.shape[: state.axis], "batch", *state.shape[state.axis :]]
        layout = {"kind": "request_aligned", "axis": state.axis}
        return {"dtype": state.dtype, "rank": len(dims), "shape": dims, "batch_layout": layout}
    if isinstance(state, FixedState | StaticState):
        shape: list[int | str] = ["batch", *state.shape]
        return {"dtype": state.dtype, "rank": len(shape), "shape": shape, "batch_layout": ALIGNED}
    if isinstance(state, CombinedState):
        shape = [2, "batch", state.heads, positions, state.head_dim]
        layout = {"kind": "request_aligned", "axis": 1}
        return {"dtype": state.dtype, "rank": 5, "shape": shape, "batch_layout": layout}
    symbol = "source_sequence" if isinstance(state, CrossState) else positions
    extent = symbol if state.capacity is None else state.capacity
    shape = ["batch", state.heads, extent, state.head_dim]
    return {"dtype": state.dtype, "rank": 4, "shape": shape, "batch_layout": ALIGNED}


def logits_contract(facts: DecoderFacts) -> Data:
    """Logits as the graph gives them: rank 2 or 3, the last position only where the graph cuts them."""
    rank = len(facts.logits.shape or (0, 0, 0))
    width: int | str = facts.vocab_size if facts.vocab_size is not None else "vocabulary"
    if facts.paged is not None:
        return packed_logits(facts.logits, facts.token_ids, width)
    rows: list[int | str] = ["batch"] if rank == 2 else ["batch", 1 if facts.last_token_only else "sequence"]
    return {"dtype": facts.logits.dtype, "rank": rank, "shape": [*rows, width], "batch_layout": ALIGNED}


def control_ports(facts: DecoderFacts) -> tuple[Port, ...]:
    """The ports of caches of fixed capacity: where a run writes, and how much is valid after it."""
    cache = facts.static_cache
    return (cache.write_indices, cache.lengths) if cache is not None else ()


def count_contract(port: Port) -> Data:
    """One number a row, in the port's dtype."""
    return {**COUNT, "dtype": port.dtype}


def length_contract(port: Port) -> Data:
    """One number for the only row, [1] or [1, 1]."""
    rank = len(port.shape) if port.shape is not None else 1
    return {"dtype": port.dtype, "rank": rank, "shape": [1] * rank}


def window_parameters(facts: DecoderFacts) -> Data:
    """How a prompt is cut: so many tokens a run, and what fills it up; and how caches move that keep their columns."""
    cut = {} if facts.window is None else {"prompt_window": facts.window.size, "window_pad": facts.window.pad}
    if facts.shift is None:
        return cut
    moves = {"cache_columns": facts.shift.columns, "cache_fill": facts.shift.fill, "padding_first": facts.shift.first}
    return cut | moves


def zero_contract(port: Port) -> Data:
    """One element for the whole call, in the port's own rank."""
    shape = [1] if port.shape is None or port.shape else []
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape}


def row_wise(port: Port) -> Data:
    """A port whose first axis is the batch; extents that only the graph names stay symbols of their own."""
    named = [f"{port.name}.{axis}" if extent is None else extent for axis, extent in enumerate(port.shape or ())]
    shape = ["batch", *named[1:]]
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape, "batch_layout": ALIGNED}


def decoder_component(facts: DecoderFacts) -> Data:
    """The ONNX component, its ports in the order in which they are driven."""
    tokens, mask, positions = facts.token_ids, facts.attention_mask, facts.position_ids
    bindings: dict[str, str] = {}
    inputs: Data = {tokens.name: fed_tokens(facts)}
    roles = {tokens.name: "token_ids"}
    if facts.front is not None:
        inputs = {taken.name: stream_contract(taken) for _, taken in facts.front.streams}
        roles = {facts.front.streams[0][1].name: "inputs_embeds"}
    if facts.own_tokens is not None:
        inputs[facts.own_tokens.name] = token_contract(facts)
        roles[facts.own_tokens.name] = "token_ids"
    if mask is not None:
        inputs[mask.name] = application_contract(mask, "total_sequence")
        roles[mask.name] = "attention_mask"
    if positions is not None:
        inputs[positions.name] = fed_positions(facts, positions)
        roles[positions.name] = "position_ids"
    inputs |= {port.name: zero_contract(port) for port in facts.zero_inputs}
    inputs |= {facts.flag.port.name: zero_contract(facts.flag.port)} if facts.flag is not None else {}
    inputs |= {each.port.name: row_wise(each.port) for each in facts.extras}
    roles |= {each.port.name: each.role for each in facts.extras if each.role}
    inputs |= {port.name: row_wise(port) for port in facts.unread}
    inputs |= {port.name: count_contract(port) for port in control_ports(facts)}
    for port, role, contract in paged_ports(facts.paged) if facts.paged is not None else ():
        inputs[port.name], bindings[role] = contract, port.name
    for each in facts.lengths:
        inputs[each.port.name], bindings[each.role] = length_contract(each.port), each.port.name
    states: tuple[State, ...] = (
        *facts.states,
        *facts.paged_states,
        *facts.combined,
        *facts.static_states,
        *facts.windows,
        *facts.shifted,
        *facts.crossed,
        *facts.fixed_states,
    )
    inputs |= {state.input: cell_contract(state, "past_sequence") for state in states}
    outputs: Data = {facts.logits.name: logits_contract(facts)}
    roles[facts.logits.name] = "logits"
    if facts.hidden is not None:
        outputs[facts.hidden.name] = row_wise(facts.hidden)
        roles[facts.hidden.name] = "hidden_states"
    outputs |= {
        state.output: cell_contract(state, "sequence" if isinstance(state, ShiftedState) else "total_sequence")
        for state in states
    }
    return {
        "implementation": {"kind": "onnx", "artifact": facts.artifact},
        "ports": {"inputs": inputs, "outputs": outputs, "roles": roles},
        "contract": {
            "id": "onnx-genai.autoregressive-decode",
            "version": "1.0",
            **({"bindings": bindings} if bindings else {}),
            **({"parameters": window_parameters(facts)} if facts.window is not None else {}),
        },
    }


def fed_tokens(facts: DecoderFacts) -> Data:
    """The port of token ids: [batch, sequence], [tokens] over packed rows, or [batch] for one of each row."""
    if facts.flat:
        return count_contract(facts.token_ids)
    return over_tokens(facts.token_ids) if facts.paged is not None else token_contract(facts)


def fed_positions(facts: DecoderFacts, port: Port) -> Data:
    """The port of positions: as many as token ids, or three copies of that."""
    if facts.flat:
        return count_contract(port)
    return over_tokens(port) if facts.paged is not None else application_contract(port, "sequence")


def stream_contract(port: Port) -> Data:
    """What is made of tokens: [batch, sequence, ...]."""
    shape = ["batch", "sequence", *(port.shape or (0, 0))[2:]]
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape, "batch_layout": ALIGNED}


def media_contract(port: Port) -> Data:
    """What belongs to a prompt beside its tokens: [entries, ...], over all rows."""
    shape = list(port.shape or ())
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape}


def front_component(facts: DecoderFacts, front: FrontFacts) -> Data:
    """The ONNX component that takes the tokens."""
    inputs = {facts.token_ids.name: token_contract(facts)}
    inputs |= {port.name: media_contract(port) for port, _ in front.media}
    outputs = {made.name: stream_contract(made) for made, _ in front.streams}
    return {
        "implementation": {"kind": "onnx", "artifact": front.artifact},
        "ports": {"inputs": inputs, "outputs": outputs, "roles": {facts.token_ids.name: "token_ids"}},
    }


def policy_component(facts: DecoderFacts) -> Data:
    """The component that the runtime implements: next token, stop detection."""
    token = token_contract(facts)
    control = control_ports(facts)
    lengths: Data = {"cache_lengths": count_contract(control[0])} if control else {}
    return {
        "implementation": {"kind": "binding"},
        "ports": {
            "inputs": {"logits": logits_contract(facts)},
            "outputs": {"token": token, "active": FLAG, "done": FLAG, "accepted_len": COUNT, **lengths},
        },
        "contract": {"id": "onnx-genai.token-policy", "version": "1.0"},
    }
