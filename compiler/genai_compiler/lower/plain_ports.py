"""The ports of a decoder found in its graph alone, as the `model.io` block that would name them.

Token ids look into the table that has a row for every column of the logits; positions become angles or look into a
table of their own; a mask is as long as past and new tokens together. What two ports could be is left to the document.
"""

from dataclasses import dataclass, field
from typing import Any

from onnx import GraphProto

from genai_compiler.lower.match_lengths import counts_runs
from genai_compiler.lower.match_paged import three_packed, told_paged
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.plain_state import PlainState, plain_state, source_masks
from genai_compiler.lower.row_forms import one_token_a_run
from genai_compiler.lower.switched_state import SwitchedDecoder, switched_decoder
from genai_compiler.read.bare import BareIo
from genai_compiler.read.nodes import input_at, nested_graphs
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.value_flow import Edges

_INTEGERS = ("int64", "int32")
KINDS_OF_TOKENS = 16
"""A table with fewer rows tells kinds of tokens apart, not positions."""


@dataclass
class PlainPorts:
    """The block, and what keeps it from being complete: (code, field of `model.io` that would say it, what, help).

    zeros: inputs for how many positions to give logits of; 0 is all. loose: inputs in the form of state that no output
    follows; over_source: masks that reach no attention over the decoder's own tokens. keeps: whether there is state.
    """

    io: dict[str, Any]
    zeros: tuple[Port, ...] = ()
    loose: tuple[Port, ...] = ()
    over_source: tuple[Port, ...] = ()
    keeps: bool = False
    faults: list[tuple[str, str, str, str]] = field(default_factory=list)

    def block(self) -> BareIo:
        """The ports found, as a document would name them."""
        return BareIo.model_validate(self.io)


def plain_ports(
    graph: GraphProto, signature: Signature, vocabulary: int | None, networks: SwitchedDecoder | None = None
) -> PlainPorts:
    """Find the ports. vocabulary: how many token ids there are, where a configuration says so. networks: the two that
    the graph stands for, where they are files of their own.

    Faults: ambiguous-port, no-logits, no-embedding-stage, unsupported-package-class.
    """
    networks = networks or switched_decoder(graph, signature)
    if networks is None:
        _refuse_switches(graph, signature, found := PlainPorts({}))
        state, faults = plain_state(graph, signature), found.faults
    else:
        state, graph, faults = networks.state, networks.later_graph, []
    edges = Edges(graph)
    prompts = edges if networks is None else Edges(networks.first_graph)
    found = PlainPorts({"sequence_source": "token_ids", **_state_fields(graph, state)}, faults=faults)
    found.keeps = bool(state.inputs)
    found.zeros = tuple(each for each in signature.inputs if _counts_from_the_end(each, edges))
    for doubt in state.doubts:
        found.faults.append(("ambiguous-port", "kv_inputs", doubt, ""))
    read = edges.counts + prompts.counts
    found.loose = tuple(each for each in signature.inputs if each.name in state.loose and read[each.name])
    inputs = {each.name: each for each in signature.inputs}
    packed = told_paged(signature, inputs) is not None
    flat = [each for each in inputs.values() if each.dtype in _INTEGERS and rank_of(each) == 2 - packed]
    single = [each for each in inputs.values() if one_token_a_run(each, signature.inputs, signature.outputs)]
    flat = flat if packed else [*flat, *single]
    rows = {each.name: edges.table_rows(each.name) for each in flat}
    logits, tokens = _ends(signature, state, flat, rows, vocabulary, found)
    if logits is not None:
        found.io["logits_output"] = logits.name
    if tokens is None:
        return found
    found.io["token_input"] = tokens.name
    alone = not packed and rank_of(tokens) == 1
    found.over_source = tuple(source_masks([each for each in flat if each is not tokens], state, prompts, alone))
    rest = [each for each in flat if each is not tokens and each not in found.over_source]
    if alone:
        rest += [each for each in signature.inputs if counts_runs(each) and places_tokens(each, edges)]
    three = three_packed(inputs.values()) if packed else _three_rows(signature)
    _name_rest(tokens, rest, three, edges, found)
    return found


# ---- tokens and logits -----------------------------------------------------------------------------------------------


def _ends(
    signature: Signature,
    state: PlainState,
    flat: list[Port],
    rows: dict[str, frozenset[int]],
    vocabulary: int | None,
    found: PlainPorts,
) -> tuple[Port | None, Port | None]:
    """Logits and token ids: the one pair of ports that speaks of one vocabulary."""
    outputs = [
        each
        for each in signature.outputs
        if "float" in each.dtype and rank_of(each) in (2, 3) and each.name not in state.outputs
    ]
    pairs = [(out, port) for out in outputs for port in flat if _width(out) in rows[port.name]]
    if not pairs and vocabulary is not None:  # tables and heads may be padded, each in its own way
        pairs = [
            (out, port)
            for out in outputs
            for port in flat
            if _width(out) >= vocabulary and any(each >= vocabulary for each in rows[port.name])
        ]
    if len(pairs) == 1:
        return pairs[0]
    if pairs:
        logits = list({out.name: out for out, _ in pairs}.values())
        tokens = list({port.name: port for _, port in pairs}.values())
        for key, ports in (("logits_output", logits), ("token_input", tokens)):
            if len(ports) > 1:
                what = f"{listed(each.name for each in ports)} could each be it"
                found.faults.append(("ambiguous-port", key, what, ""))
        return (logits[0] if len(logits) == 1 else None), (tokens[0] if len(tokens) == 1 else None)
    _tell_missing_end(signature, outputs, flat, rows, found)
    return None, None


def _tell_missing_end(
    signature: Signature,
    outputs: list[Port],
    flat: list[Port],
    rows: dict[str, frozenset[int]],
    found: PlainPorts,
) -> None:
    takers = [each for each in flat if rows[each.name]]
    if not takers:
        names = listed(spell_port(each) for each in signature.inputs[:4])
        what = f"no input of the graph is token ids that look into a table of embeddings; its first are {names}"
        found.faults.append(("no-embedding-stage", "token_input", what, "export the decoder with its embedding"))
        return
    widths = listed(spell_port(each) for each in outputs) if outputs else "none"
    tables = sorted(set[int]().union(*(rows[each.name] for each in takers)))
    what = (
        f"no stage produces logits: no output is as wide as the table of embeddings has rows "
        f"({', '.join(map(str, tables))}); outputs beside state: {widths}"
    )
    found.faults.append(("no-logits", "logits_output", what, "export the decoder with its head"))


def _width(port: Port) -> int:
    last = port.shape[-1] if port.shape else None
    return last if isinstance(last, int) else -1


# ---- mask and positions ----------------------------------------------------------------------------------------------


def _name_rest(tokens: Port, rest: list[Port], three: list[Port], edges: Edges, found: PlainPorts) -> None:
    """Positions are as many as the tokens and become angles or table rows; the mask is longer and becomes neither."""
    alike = (_last(tokens), *((1,) if rank_of(tokens) == 1 else ()))  # or one number for all rows
    placed = [each for each in rest if _last(each) in alike and places_tokens(each, edges)] + three
    masks = [each for each in rest if _last(each) != _last(tokens) and not places_tokens(each, edges)]
    unclear = [each for each in rest if each not in placed and each not in masks]
    for key, ports in (("position_ids_input", placed), ("attention_mask_input", masks)):
        if len(ports) == 1:
            found.io[key] = ports[0].name
        elif ports:
            what = f"{listed(each.name for each in ports)} could each be it"
            found.faults.append(("ambiguous-port", key, what, ""))
    for port in unclear:
        if edges.counts[port.name]:
            key = "position_ids_input" if places_tokens(port, edges) else "attention_mask_input"
            what = f"{port.name!r} ({spell_port(port)}) could be a mask, positions, or neither"
            found.faults.append(("ambiguous-port", key, what, ""))


def places_tokens(port: Port, edges: Edges) -> bool:
    """Whether an integer input is positions: it becomes angles, or looks into a table that has rows for them."""
    return edges.turns(port.name) or any(each >= KINDS_OF_TOKENS for each in edges.table_rows(port.name))


def _three_rows(signature: Signature) -> list[Port]:
    return [
        each
        for each in signature.inputs
        if each.dtype in _INTEGERS and each.shape is not None and len(each.shape) == 3 and each.shape[0] == 3
    ]


def _last(port: Port) -> int | str | None:
    return port.shape[-1] if port.shape else None


# ---- state and switches ----------------------------------------------------------------------------------------------


def _state_fields(graph: GraphProto, state: PlainState) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kv_inputs": [past for past, _ in state.caches],
        "kv_outputs": [present for _, present in state.caches],
    }
    if state.crossed:
        fields["cross_kv_inputs"] = [past for past, _ in state.crossed]
        fields["cross_kv_outputs"] = [present for _, present in state.crossed]
    if state.replaced:
        fields["state_pairs"] = [
            {"input": past, "output": present, "init": "zeros", "update": "replace"} for past, present in state.replaced
        ]
    if state.scattered:
        fields["static_cache"] = _static_fields(graph, state)
    return fields


def _static_fields(graph: GraphProto, state: PlainState) -> dict[str, Any]:
    """Where the scatter operators take their indices, and the attention behind them its valid lengths."""
    keys, values = state.scattered[0::2], state.scattered[1::2]
    writes = [node.input[2] for node in graph.node if node.op_type == "TensorScatter" and len(node.input) > 2]
    made = {present for _, present in keys}
    lengths = [
        name
        for node in graph.node
        if node.op_type == "Attention" and made & set(node.input) and (name := input_at(node, 6))
    ]
    return {
        "write_indices_input": next(iter(writes), ""),
        "kv_sequence_length_input": next(iter(lengths), ""),
        "key_cache_inputs": [past for past, _ in keys],
        "key_cache_outputs": [present for _, present in keys],
        "value_cache_inputs": [past for past, _ in values],
        "value_cache_outputs": [present for _, present in values],
    }


def _refuse_switches(graph: GraphProto, signature: Signature, found: PlainPorts) -> None:
    """A flag that picks one of two networks: whether both are the same function is not told by the graph."""
    chosen = {node.input[0] for each in nested_graphs(graph) for node in each.node if node.op_type == "If"}
    for port in signature.inputs:
        if port.dtype == "bool":
            branches = " between two networks in one graph" if port.name in chosen else ""
            what = (
                f"the input {port.name!r} ({spell_port(port)}) switches{branches}, one for prompts and one for later "
                "tokens; nothing in the graph tells which value of it is for which"
            )
            help = "take the variant of the graph without the switch: the decoder with past, not the merged one"
            found.faults.append(("unsupported-package-class", "", what, help))


def _counts_from_the_end(port: Port, edges: Edges) -> bool:
    """An integer that is only ever where slices start, counted from the end: 0 leaves everything."""
    single = port.shape is not None and (not port.shape or port.shape == (1,))
    return port.dtype == "int64" and single and edges.starts_slices(port.name)
