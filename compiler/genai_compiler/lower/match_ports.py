"""The names of a v1 configuration matched against the ports a graph really has. The graph decides; names only find."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from genai_compiler.lower.decoder_facts import Extra, LengthPort
from genai_compiler.lower.match_lengths import counts_runs, match_lengths, match_past_length
from genai_compiler.lower.match_paged import PagedPorts, check_packed, match_paged
from genai_compiler.lower.match_state import LayerPorts, check_pairs, match_fixed, match_layers, refuse_unpaired
from genai_compiler.lower.matching import (
    INPUTS,
    OUTPUTS,
    Matching,
    Surroundings,
    listed,
    rank_of,
    spell_port,
    template_layers,
)
from genai_compiler.lower.own_tokens import other_tokens
from genai_compiler.lower.row_forms import FORM_OF_ONE_TOKEN, gives_logits_each, one_token_a_run
from genai_compiler.lower.unnamed_state import ByGraph, unnamed_state
from genai_compiler.problem import Problem
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.signature import Port, Signature

_INTEGERS = ("int64", "int32")


@dataclass(frozen=True)
class MatchedPorts:
    """Which graph port plays which part. Ports that a problem was reported for are None or left out.

    extras: what stages before the loop feed. combined: caches that hold keys and values together. unnamed: state among
    these that no name has found, but the graph. paged: what tells rows and pages apart; keys and values are then caches
    in pages. lengths: what tells one row its length. own_tokens: the ids beside the embeddings that are made of them.
    """

    token_ids: Port | None
    attention_mask: Port | None
    position_ids: Port | None
    logits: Port | None
    hidden: Port | None
    zero_inputs: tuple[Port, ...]
    keys: tuple[LayerPorts, ...]
    values: tuple[LayerPorts, ...]
    fixed: tuple[LayerPorts, ...]
    extras: tuple[Extra, ...] = ()
    combined: tuple[LayerPorts, ...] = ()
    unnamed: tuple[LayerPorts, ...] = ()
    paged: PagedPorts | None = None
    lengths: tuple[LengthPort, ...] = ()
    own_tokens: Port | None = None


def match_ports(
    config: GenaiConfig, signature: Signature, around: Surroundings, told: ByGraph | None = None
) -> tuple[MatchedPorts, tuple[Problem, ...]]:
    """Find the decoder's ports by the names the configuration gives (or the reference's defaults).

    around: what feeds it beside the request. told: what the graph tells of its state, for ports that no name finds.

    Problems: no-embedding-stage, missing-input, missing-output, unpaired-state, unclaimed-input, bad-template,
    unsupported-package-class (states, positions and inputs of package classes that are not compiled yet).
    """
    inputs = {each.name: each for each in signature.inputs}
    outputs = {each.name: each for each in signature.outputs}
    matching = Matching(config, inputs, outputs, dict(inputs))
    extras = _fed(matching, around)
    window = around.joined.window.size if around.joined is not None and around.joined.window is not None else 1
    paged = match_paged(matching, signature.paged)
    tokens = around.tokens or _token_ids(matching, paged is not None, window)
    own_tokens = _own_tokens(matching, around.tokens, window) if around.tokens is not None else None
    mask, positions = matching.claim("attention_mask"), matching.claim("position_ids")
    flat = tokens is not None and paged is None and _takes_one(matching, tokens)
    if paged is not None:
        check_packed(matching, tokens, mask, positions)
    else:
        _check_mask(matching, mask, around.joined is not None and around.joined.shifts)
        _check_positions(matching, positions, window, flat)
    keys = match_layers(matching, "past_key_names", "present_key_names")
    values = match_layers(matching, "past_value_names", "present_value_names")
    combined = match_layers(matching, "past_names", "present_names")
    fixed = match_fixed(matching)
    named = (*keys, *values, *fixed, *combined)
    more = unnamed_state(matching, told, named) if told is not None else ((), (), ())
    keys, values, fixed = (*keys, *more[0]), (*values, *more[1]), (*fixed, *more[2])
    refuse_unpaired(matching)
    check_pairs(matching, keys, values)
    zeros = _zero_inputs(matching)
    single = tokens is not None and paged is None and rank_of(tokens) == 1
    lengths = match_past_length(matching) if single else match_lengths(matching)
    if flat and positions is not None and counts_runs(positions):
        lengths, positions = (*lengths, LengthPort("past_length", positions)), None
    _refuse_unclaimed(matching, found_state=bool(keys or fixed or combined))
    logits, hidden = _logits(matching), _hidden(matching)
    unnamed = (*more[0], *more[1], *more[2])
    told_ports = (tokens, mask, positions, logits, hidden)
    state = (keys, values, fixed)
    ports = MatchedPorts(*told_ports, zeros, *state, extras, combined, unnamed, paged, lengths, own_tokens)
    return ports, tuple(matching.problems)


def _fed(matching: Matching, around: Surroundings) -> tuple[Extra, ...]:
    """The inputs that stages before the loop feed, and those that embeddings go in at."""
    for name in around.streams:
        matching.unclaimed.pop(name, None)
    hidden = matching.config.decoder.inputs["encoder_hidden_states"]
    return tuple(
        Extra("encoder_hidden_states" if name == hidden else "", matching.unclaimed.pop(name), value)
        for name, value in around.fed.items()
        if name in matching.unclaimed
    )


def _token_ids(matching: Matching, packed: bool, window: int) -> Port | None:
    name = matching.config.decoder.inputs["input_ids"]
    port, embeds = matching.claim("input_ids"), matching.claim("inputs_embeds")
    if embeds is not None:
        what = f"no stage produces {embeds.name!r}, which the decoder takes as input"
        help = (
            "export the decoder with its embedding (without exclude_embeds), so that it takes token ids; or add an "
            "embedding graph and name it in model.embedding"
        )
        matching.problem("no-embedding-stage", (*INPUTS, "inputs_embeds"), what, help)
    elif port is None and embeds is None:
        help = f"the graph's inputs are {listed(matching.inputs)}; name the one for token ids in input_ids"
        matching.problem("missing-input", (*INPUTS, "input_ids"), f"the graph has no input {name!r}", help)
    if packed or (port is not None and _takes_one(matching, port)):
        return port
    if port is not None and (port.dtype not in _INTEGERS or rank_of(port) not in (2, None)):
        what = f"input {port.name!r} is {spell_port(port)}; token ids are int64 or int32 [batch, sequence]"
        help = "a graph that takes rows packed into one axis takes a table of pages too; name it in block_table"
        help = f"{help}; {FORM_OF_ONE_TOKEN}"
        matching.problem("unsupported-package-class", (*INPUTS, "input_ids"), what, help)
    elif port is not None:
        _check_open_length(matching, "input_ids", port, window)
    return port


def _takes_one(matching: Matching, tokens: Port) -> bool:
    """By the ports; or by logits alone where the state has its name: what is wrong with that is told there."""
    named = matching.config.decoder.inputs["rnn_states_prev"] in matching.inputs
    return one_token_a_run(tokens, matching.inputs.values(), matching.outputs.values()) or (
        named and gives_logits_each(tokens, matching.outputs.values())
    )


def _own_tokens(matching: Matching, tokens: Port, window: int) -> Port | None:
    """The decoder's own port for the ids that go through `tokens` of another graph; None where it takes none."""
    if matching.config.decoder.inputs["input_ids"] not in matching.unclaimed:
        return None
    port = matching.claim("input_ids")
    if port is not None and (doubt := other_tokens(port, tokens)):
        matching.problem("wrong-port", (*INPUTS, "input_ids"), doubt, "export both graphs with one type")
    elif port is not None:
        _check_open_length(matching, "input_ids", port, window)
    return port


def _check_mask(matching: Matching, port: Port | None, shifts: bool) -> None:
    """shifts: the mask lies over caches of so many columns, which are looked at with these."""
    if port is not None and (port.dtype not in _INTEGERS or rank_of(port) not in (2, None)):
        what = f"input {port.name!r} is {spell_port(port)}; it must be int64 or int32 with two axes"
        matching.problem("wrong-port", (*INPUTS, "attention_mask"), what)
    elif port is not None and port.shape is not None and isinstance(port.shape[1], int) and not shifts:
        _refuse_length(matching, "attention_mask", port)


def _check_positions(matching: Matching, port: Port | None, window: int, flat: bool) -> None:
    """[batch, sequence], or three such copies: without media the three axes of a position are equal.

    flat: as many as one token of each row, [batch].
    """
    if port is None or (flat and port.dtype in _INTEGERS and rank_of(port) == 1):
        return
    three = rank_of(port) == 3 and port.shape is not None and port.shape[0] == 3
    if port.dtype not in _INTEGERS or not (three or rank_of(port) in (2, None)):
        what = f"input {port.name!r} is {spell_port(port)}; positions are int64 or int32, [batch, sequence] or [3, ...]"
        matching.problem("wrong-port", (*INPUTS, "position_ids"), what)
    else:
        _check_open_length(matching, "position_ids", port, window)


def _check_open_length(matching: Matching, key: str, port: Port, window: int = 1) -> None:
    """Prompts have any length: they go in as one piece or, where the graph says 1, one by one; or by windows."""
    if port.shape is not None and isinstance(port.shape[-1], int) and port.shape[-1] not in (1, window):
        _refuse_length(matching, key, port)


def _refuse_length(matching: Matching, key: str, port: Port) -> None:
    """An input of a fixed number of positions belongs to packages that pad or window."""
    what = f"input {port.name!r} is {spell_port(port)}: a fixed number of positions a call is not compiled yet"
    help = "export with a symbolic sequence axis, or with 1 for one token a call"
    matching.problem("unsupported-package-class", (*INPUTS, key), what, help)


def _logits(matching: Matching) -> Port | None:
    name = matching.config.decoder.outputs["logits"]
    port = matching.outputs.get(name)
    if port is None:
        near = difflib.get_close_matches(name, matching.outputs, 1, 0.6)
        what = f"no stage produces logits: the decoder has no output {name!r}"
        help = (
            f"did you mean {near[0]!r}? name it in model.decoder.outputs.logits"
            if near
            else f"its outputs are {listed(matching.outputs)}; export it with its head (without exclude_lm_head)"
        )
        matching.problem("no-logits", (*OUTPUTS, "logits"), what, help)
    elif "float" not in port.dtype or rank_of(port) not in (2, 3, None):
        what = f"output {port.name!r} is {spell_port(port)}; logits are float [batch, sequence, vocabulary]"
        matching.problem("wrong-port", (*OUTPUTS, "logits"), what)
    return port


def _hidden(matching: Matching) -> Port | None:
    """An extra output that the configuration names; one that only the graph has stays unused."""
    name = matching.config.decoder.outputs["hidden_states"]
    if name and name not in matching.outputs:
        what = f"the graph has no output {name!r}; the key has no effect"
        matching.warn("missing-output", (*OUTPUTS, "hidden_states"), what)
    return matching.outputs.get(name) if name else None


def _zero_inputs(matching: Matching) -> tuple[Port, ...]:
    """int64 [1] inputs of exporters that must be 0 (the reference feeds them so): logits to keep, negated constants."""
    found = [
        each
        for each in matching.unclaimed.values()
        if each.name == "num_logits_to_keep" or each.name.startswith("onnx::Neg_")
    ]
    for each in found:
        del matching.unclaimed[each.name]
    return tuple(found)


_NOT_YET: Mapping[str, str] = {
    "cross_past_key_names": "cross-attention state",
    "cross_past_value_names": "cross-attention state",
    "encoder_hidden_states": "an encoder",
    "encoder_attention_mask": "an encoder",
    "cumulative_sequence_lengths": "rows packed into one axis without pages",
    "past_sequence_lengths": "rows packed into one axis without pages",
    "attention_metadata": "rows packed into one axis without pages",
    "block_table_windowed": "a paged cache that keeps a window",
    "past_sequence_length": "sequence-length inputs",
    "current_sequence_length": "sequence-length inputs",
    "total_sequence_length": "sequence-length inputs",
    "past_key_values_length": "sequence-length inputs",
    "cache_indirection": "beam search inside the graph",
    "per_layer_inputs": "per-layer embeddings",
    "past_key_scale_names": "a quantised cache with scales",
    "past_value_scale_names": "a quantised cache with scales",
    "hidden_states": "hidden states of another graph",
}


def _refuse_unclaimed(matching: Matching, found_state: bool) -> None:
    for key, kind in _NOT_YET.items():
        names = list(template_layers(matching.config.decoder.inputs[key], matching.unclaimed).values())
        for name in names:
            del matching.unclaimed[name]
        if names:
            what = f"the graph needs {kind} ({listed(names)}), which is not compiled yet"
            help = "decoders with token ids, an optional mask and positions, and a key/value cache are"
            matching.problem("unsupported-package-class", (*INPUTS, key), what, help)
    keys = {name: key for key, name in matching.config.decoder.inputs.names.items()}
    for port in matching.unclaimed.values():
        near = difflib.get_close_matches(port.name, keys, 1, 0.7) if port.name not in keys else []
        help = f"is it {near[0]!r} of the configuration under another name?" if near else ""
        if port.name in keys:
            help = f"{keys[port.name]!r} is known, but a graph that takes it is not compiled; export without it"
        elif not found_state:
            caches = "no input matches past_key_names and past_value_names; correct them if this is a cache"
            help = f"{help} {caches}".lstrip()
        what = f"nothing feeds the graph's input {port.name!r}: {spell_port(port)}"
        matching.problem(
            "unclaimed-input", INPUTS, what, help or "name it in model.decoder.inputs, or export without it"
        )
