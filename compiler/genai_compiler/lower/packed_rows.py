"""What a decoder over packed rows and paged caches adds to the canonical workflow (metadata standard, section 10.3).

The prompt stays [rows, tokens] for everybody else; a binding takes its two axes together for the decoder, where a row's
padding is no token. What tells rows and pages apart is the runtime's to form, as masks and positions are.
"""

from typing import Any

from genai_compiler.lower.decoder_facts import DecoderFacts, PagedCache, PagedState
from genai_compiler.read.signature import Port

Data = dict[str, Any]
MERGE_AXES = "genai-compile.merge-leading-axes"
"""Contract of a binding whose output is its input with the first two axes taken together."""
PACK, PACKED, PORT = "packed_tokens", "step.packed", "tokens"
"""The binding that packs tokens, the value it gives, and its port."""

_ALIGNED = {"kind": "request_aligned", "axis": 0}


def over_tokens(port: Port) -> Data:
    """[tokens] or [3, tokens], the tokens of all rows one behind another."""
    copies = list(port.shape[:-1]) if port.shape is not None else []
    return {"dtype": port.dtype, "rank": 1 + len(copies), "shape": [*copies, PORT]}


def packed_logits(port: Port, tokens: Port, width: int | str) -> Data:
    """[tokens, vocabulary], or [batch, vocabulary] where the graph gives one row of logits a request."""
    if per_token(port, tokens):
        return {"dtype": port.dtype, "rank": 2, "shape": [PORT, width]}
    return {"dtype": port.dtype, "rank": 2, "shape": ["batch", width], "batch_layout": _ALIGNED}


def per_token(logits: Port, tokens: Port) -> bool:
    """Whether there are logits of every token: the first extent is that of the tokens."""
    return bool(logits.shape) and bool(tokens.shape) and (logits.shape or ())[0] == (tokens.shape or ())[0]


def paged_cell(state: PagedState) -> Data:
    """[pages, positions a page, heads, head size]: as many pages a row as its longest text needs."""
    shape = ["pages", state.block, state.heads, state.head_dim]
    layout = {"kind": "request_expanded", "axis": 0, "factor": state.pages}
    return {"dtype": state.dtype, "rank": 4, "shape": shape, "batch_layout": layout}


def paged_ports(paged: PagedCache) -> tuple[tuple[Port, str, Data], ...]:
    """(port, role, contract) of what tells rows and pages apart."""
    row: Data = {"dtype": paged.past.dtype, "rank": 1, "shape": ["batch"], "batch_layout": _ALIGNED}
    ends: Data = {"dtype": paged.cumulative.dtype, "rank": 1, "shape": ["boundaries"]}
    shape = ["batch", "pages_a_row"]
    table: Data = {"dtype": paged.table.dtype, "rank": 2, "shape": shape, "batch_layout": _ALIGNED}
    found = [
        (paged.cumulative, "cumulative_sequence_lengths", ends),
        (paged.past, "past_sequence_lengths", row),
        (paged.table, "block_table", table),
    ]
    if paged.metadata is not None:
        bounds: Data = {"dtype": paged.metadata.dtype, "rank": 1, "shape": list(paged.metadata.shape or (3,))}
        found.append((paged.metadata, "attention_metadata", bounds))
    return tuple(found)


def pack_component(tokens: Data, packed: Data) -> Data:
    """The binding. tokens: the contract of [rows, tokens]; packed: of [tokens]."""
    return {
        "implementation": {"kind": "binding"},
        "ports": {"inputs": {PORT: tokens}, "outputs": {PORT: packed}, "roles": {PORT: "token_ids"}},
        "contract": {"id": MERGE_AXES, "version": "1.0"},
    }


def pack_step(prompt: str) -> Data:
    """The step before the decoder's. prompt: the workflow input of the tokens."""
    return {"kind": "invoke", "component": PACK, "inputs": {PORT: prompt}, "outputs": {PORT: PACKED}}


def paged_group(facts: DecoderFacts) -> Data:
    """The group of the caches in pages: every run writes where its tables say."""
    return {"kind": "full_attention", "update": {"kind": "replace"}} if facts.paged_states else {}
