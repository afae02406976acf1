"""The ports of a `model.io` block found in the graph; what the block leaves out is found where exactly one port fits.

A declared name always wins (standard, 10.1). A missing one is told by the graph alone: dtypes, axes, and which ports
are past and present of an attention operator. No port is found by how it is spelled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from genai_compiler.lower.cross_caches import cross_caches
from genai_compiler.lower.decoder_facts import Extra, LengthPort, StaticCache
from genai_compiler.lower.match_lengths import counts_runs
from genai_compiler.lower.match_paged import packed_integers, three_packed, told_paged
from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.match_state import LayerPorts
from genai_compiler.lower.matching import Surroundings, listed, rank_of, spell_port
from genai_compiler.lower.own_tokens import other_tokens
from genai_compiler.lower.plain_state import PlainState
from genai_compiler.lower.row_forms import FORM_OF_ONE_TOKEN, one_token_a_run
from genai_compiler.lower.static_cache import static_cache
from genai_compiler.lower.unnamed_state import ByGraph, Found, unnamed_state
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.bare import BareIo
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.suggest import did_you_mean

_INTEGERS = ("int64", "int32")


@dataclass(frozen=True)
class IoPorts:
    """Which port plays which part. extras: the same for a whole request. unread: inputs that no node reads.

    crossed: caches that the first run gives, key and value of each layer in turns.
    """

    decoder: MatchedPorts
    static: StaticCache | None
    extras: tuple[Extra, ...]
    unread: tuple[Port, ...]
    crossed: tuple[LayerPorts, ...]


@dataclass
class IoMatching:
    """The matching under way. path: of the block."""

    path: DocPath
    places: Places
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    unclaimed: dict[str, Port]
    unread: dict[str, Port]
    problems: list[Problem] = field(default_factory=list)

    def report(self, code: str, key: DocPath, what: str, help: str = "", warning: bool = False) -> None:
        path = (*self.path, *key)
        severity = Severity.WARNING if warning else Severity.ERROR
        self.problems.append(Problem(code, self.places.find(path), format_path(path), what, help, severity))

    def input(self, name: str | None, *key: str | int) -> Port | None:
        """The input that a field names; missing-input when the graph has none of that name."""
        return self._named(name, key, self.inputs, self.unclaimed, "input")

    def output(self, name: str | None, *key: str | int) -> Port | None:
        """The output that a field names; missing-output when the graph has none of that name."""
        return self._named(name, key, self.outputs, self.unread, "output")

    def _named(
        self, name: str | None, key: DocPath, ports: Mapping[str, Port], free: dict[str, Port], side: str
    ) -> Port | None:
        if name is None:
            return None
        if name not in ports:
            what = f"the graph has no {side} {name!r}"
            help = did_you_mean(name, ports) or f"its {side}s are {listed(ports)}"
            self.report(f"missing-{side}", key, what, help)
            return None
        free.pop(name, None)
        return ports[name]

    def pick(self, candidates: list[Port], key: str, part: str, needed: bool) -> Port | None:
        """The only candidate for a field that the block leaves out; ambiguous-port when there are several."""
        if len(candidates) == 1:
            self.unclaimed.pop(candidates[0].name, None)
            self.unread.pop(candidates[0].name, None)
            return candidates[0]
        if candidates or needed:
            found = listed(each.name for each in candidates) if candidates else "no port"
            what = f"{key} is not stated, and {found} could be the {part}"
            self.report("ambiguous-port", (key,), what, f"name it in {format_path((*self.path, key))}")
        return None


def match_io(
    io: BareIo,
    signature: Signature,
    surroundings: Surroundings,
    path: DocPath,
    places: Places,
    told: ByGraph | None = None,
) -> tuple[IoPorts, tuple[Problem, ...]]:
    """The decoder's ports. path: of the block. told: what the graph tells of its state, where the block names none.

    Problems: missing-input, missing-output, ambiguous-port, unpaired-state, wrong-port, no-embedding-stage, no-logits,
    unclaimed-input, unknown-state-shape, unsupported-package-class.
    """
    inputs = {each.name: each for each in signature.inputs}
    outputs = {each.name: each for each in signature.outputs}
    matching = IoMatching(path, places, inputs, outputs, dict(inputs), dict(outputs))
    _refuse_other_forms(io, matching)
    paged = told_paged(signature, matching.unclaimed)
    mask = matching.input(io.attention_mask_input, "attention_mask_input")
    positions = matching.input(io.position_ids_input, "position_ids_input")
    tokens = surroundings.tokens or matching.input(io.token_input, "token_input")
    own_tokens = _own_tokens(io, surroundings, matching) if surroundings.tokens is not None else None
    for name in surroundings.streams:
        matching.unclaimed.pop(name, None)
    for zero in (*surroundings.zeros, *([surroundings.flag] if surroundings.flag is not None else [])):
        matching.unclaimed.pop(zero.name, None)
    for past, present in surroundings.combined:
        matching.unclaimed.pop(past, None)
        matching.unread.pop(present, None)
    named = (
        ("encoder_hidden_states", io.encoder_hidden_states_input),
        ("audio_features", io.audio_features_input),
    )
    extras = [
        Extra(role, port, surroundings.fed.get(port.name, ""))
        for role, name in named
        if (port := matching.input(name, f"{role}_input")) is not None
    ]
    joined = [matching.unclaimed.pop(name) for name in surroundings.fed if name in matching.unclaimed]
    extras += [Extra("", port, surroundings.fed[port.name]) for port in joined]
    hidden = matching.output(io.hidden_output, "hidden_output")
    logits = matching.output(io.logits_output, "logits_output")
    static = static_cache(io, matching)
    keys, values = _caches(io, signature, matching)
    fixed = _replaced(io, matching)
    unread = _claim_unread(surroundings, io, matching)
    crossed = cross_caches(io, surroundings, matching)
    if told is not None and static is None:
        keys, values, fixed = _unnamed(io, told, (keys, values, fixed), matching)
    if logits is None and io.logits_output is None:
        logits = _find_logits(matching)
    _check_logits(logits, matching)
    if paged is not None:
        tokens, positions = _packed(io, tokens, positions, matching)
        _refuse_unclaimed(matching)
        found = MatchedPorts(tokens, None, positions, logits, hidden, (), keys, values, fixed, paged=paged)
        return IoPorts(found, static, tuple(extras), unread, crossed), tuple(matching.problems)
    sequence = _sequence(logits)
    if positions is None and io.position_ids_input is None:
        positions = _three_axes(matching)
    if tokens is None and io.token_input is None:
        tokens = _find_tokens(io, sequence, matching)
    if mask is None and io.attention_mask_input is None:
        other = _last_extent(tokens)
        mask = matching.pick(
            [
                each
                for each in _flat_integers(matching)
                if _last_extent(each) != other and each.name not in surroundings.over_source
            ],
            "attention_mask_input",
            "attention mask",
            False,
        )
    if positions is None and io.position_ids_input is None:
        flat = [each for each in _flat_integers(matching) if each.name not in surroundings.over_source]
        positions = matching.pick(flat, "position_ids_input", "positions", False)
    _check_integers(own_tokens or tokens, mask, positions, matching)
    _refuse_unclaimed(matching)
    lengths = tuple[LengthPort, ...]()
    if positions is not None and counts_runs(positions) and tokens is not None and _takes_one(matching, tokens):
        lengths, positions = (LengthPort("past_length", positions),), None
    state = (keys, values, fixed)
    told_ports = (tokens, mask, positions, logits, hidden)
    found = MatchedPorts(*told_ports, surroundings.zeros, *state, lengths=lengths, own_tokens=own_tokens)
    return IoPorts(found, static, tuple(extras), unread, crossed), tuple(matching.problems)


# ---- state -----------------------------------------------------------------------------------------------------------


def _caches(
    io: BareIo, signature: Signature, matching: IoMatching
) -> tuple[tuple[LayerPorts, ...], tuple[LayerPorts, ...]]:
    """Keys and values: the block's lists, in turns, else the pasts and presents of the graph's attention operators."""
    if io.kv_inputs is None and io.kv_outputs is None:
        found = [op for op in signature.cache_ops if op.past_key in matching.unclaimed]
        names = [name for op in found for name in (op.past_key, op.past_value) if name]
        nexts = [name for op in found for name in (op.present_key, op.present_value) if name]
        pairs = [
            (matching.input(past, "kv_inputs"), matching.output(present, "kv_outputs"))
            for past, present in zip(names, nexts, strict=True)
        ]
    else:
        pairs = list(_listed_pairs(io.kv_inputs or (), io.kv_outputs or (), matching))
        _check_operators(io, signature, matching)
    ports = [
        LayerPorts(at // 2, past, present)
        for at, (past, present) in enumerate(pairs)
        if past is not None and present is not None
    ]
    return tuple(ports[0::2]), tuple(ports[1::2])


def _listed_pairs(
    pasts: tuple[str, ...], presents: tuple[str, ...], matching: IoMatching
) -> list[tuple[Port | None, Port | None]]:
    if len(pasts) != len(presents) or len(pasts) % 2:
        what = f"kv_inputs has {len(pasts)} ports and kv_outputs {len(presents)}; they pair by position, key and value"
        matching.report("unpaired-state", ("kv_outputs",), what, "list key and value of every layer in both")
        for name in pasts:
            matching.unclaimed.pop(name, None)
        return []
    return [
        (matching.input(past, "kv_inputs", at), matching.output(present, "kv_outputs", at))
        for at, (past, present) in enumerate(zip(pasts, presents, strict=True))
    ]


def _check_operators(io: BareIo, signature: Signature, matching: IoMatching) -> None:
    """An attention operator says itself which present belongs to a past."""
    told = {op.past_key: op.present_key for op in signature.cache_ops}
    told |= {op.past_value: op.present_value for op in signature.cache_ops}
    for at, (past, present) in enumerate(zip(io.kv_inputs or (), io.kv_outputs or (), strict=False)):
        if told.get(past, present) != present:
            what = f"{past!r} is paired with {present!r}, but the graph's operator gives its present as {told[past]!r}"
            matching.report("wrong-port", ("kv_outputs", at), what, "list the outputs in the order of the inputs")


def _replaced(io: BareIo, matching: IoMatching) -> tuple[LayerPorts, ...]:
    found: list[LayerPorts] = []
    for at, pair in enumerate(io.state_pairs or ()):
        past = matching.input(pair.input, "state_pairs", at, "input")
        present = matching.output(pair.output, "state_pairs", at, "output")
        if past is not None and present is not None:
            found.append(LayerPorts(at, past, present))
    return tuple(found)


def _unnamed(io: BareIo, told: ByGraph, named: Found, matching: IoMatching) -> Found:
    """What is named, and beside it the state that the block leaves to the graph: it lists all of a kind or none."""
    keys, values, fixed = named

    def left_out() -> PlainState:
        listed_caches = io.kv_inputs is not None or io.kv_outputs is not None
        state = told()
        caches, replaced = () if listed_caches else state.caches, () if io.state_pairs is not None else state.replaced
        return replace(state, caches=caches, replaced=replaced)

    more = unnamed_state(matching, left_out, (*keys, *values, *fixed))
    for each in (*more[0], *more[1], *more[2]):
        matching.unread.pop(each.present.name, None)
    return (*keys, *more[0]), (*values, *more[1]), (*fixed, *more[2])


# ---- what the block leaves out ---------------------------------------------------------------------------------------


def _find_logits(matching: IoMatching) -> Port | None:
    fits = [each for each in matching.unread.values() if "float" in each.dtype and rank_of(each) in (2, 3)]
    if not fits:
        what = f"no stage produces logits: the decoder's outputs are {listed(matching.outputs)}"
        matching.report("no-logits", ("logits_output",), what, "export the decoder with its head")
        return None
    return matching.pick(fits, "logits_output", "logits", True)


def _check_logits(port: Port | None, matching: IoMatching) -> None:
    if port is not None and ("float" not in port.dtype or rank_of(port) not in (2, 3, None)):
        what = f"output {port.name!r} is {spell_port(port)}; logits are float [batch, sequence, vocabulary]"
        matching.report("wrong-port", ("logits_output",), what)


def _find_tokens(io: BareIo, sequence: str | None, matching: IoMatching) -> Port | None:
    if io.inputs_embeds_input is not None or io.sequence_source == "inputs_embeds":
        what = f"no stage produces {io.inputs_embeds_input!r}, which the decoder takes as input"
        help = "export the decoder with its embedding, so that it takes token ids"
        matching.report("no-embedding-stage", ("inputs_embeds_input",), what, help)
        matching.unclaimed.pop(io.inputs_embeds_input or "", None)
        return None
    fits = [each for each in _flat_integers(matching) if sequence is None or _last_extent(each) == sequence]
    single = [each for each in matching.unclaimed.values() if _takes_one(matching, each)]
    return matching.pick(fits or single, "token_input", "token ids", True)


def _takes_one(matching: IoMatching, port: Port) -> bool:
    return one_token_a_run(port, matching.inputs.values(), matching.outputs.values())


def _own_tokens(io: BareIo, surroundings: Surroundings, matching: IoMatching) -> Port | None:
    """The decoder's own port for the ids that another graph makes embeddings of: the named one, else the only one that
    looks into a table of the vocabulary.
    """
    named = matching.input(io.token_input, "token_input")
    if named is None and io.token_input is None:
        fits = [each for each in _flat_integers(matching) if each.name in surroundings.looked_up]
        named = matching.pick(fits, "token_input", "token ids beside the embeddings", False)
    if named is not None and surroundings.tokens is not None and (doubt := other_tokens(named, surroundings.tokens)):
        matching.report("wrong-port", ("token_input",), doubt, "export both graphs with one type")
    return named


def _packed(
    io: BareIo, tokens: Port | None, positions: Port | None, matching: IoMatching
) -> tuple[Port | None, Port | None]:
    """Token ids and positions of a graph over packed rows; what tells rows apart is no port that is left."""
    if positions is None and io.position_ids_input is None:
        positions = matching.pick(three_packed(matching.unclaimed.values()), "position_ids_input", "positions", False)
    if tokens is None and io.token_input is None:
        tokens = matching.pick(packed_integers(matching.unclaimed.values()), "token_input", "token ids", True)
    for key, port, form in (("token_input", tokens, "[tokens]"), ("position_ids_input", positions, "[tokens]")):
        fits = port is None or packed_integers([port]) or (port is positions and three_packed([port]))
        if port is not None and not fits:
            what = f"input {port.name!r} is {spell_port(port)}; over paged caches it is int64 {form}"
            matching.report("wrong-port", (key,), what)
    return tokens, positions


def _three_axes(matching: IoMatching) -> Port | None:
    fits = [
        each
        for each in matching.unclaimed.values()
        if each.dtype in _INTEGERS and each.shape is not None and len(each.shape) == 3 and each.shape[0] == 3
    ]
    return matching.pick(fits, "position_ids_input", "positions", False)


def _flat_integers(matching: IoMatching) -> list[Port]:
    return [each for each in matching.unclaimed.values() if each.dtype in _INTEGERS and rank_of(each) == 2]


def _sequence(logits: Port | None) -> str | None:
    extent = logits.shape[1] if logits is not None and logits.shape is not None and len(logits.shape) == 3 else None
    return extent if isinstance(extent, str) else None


def _last_extent(port: Port | None) -> int | str | None:
    return port.shape[-1] if port is not None and port.shape else None


# ---- refusals --------------------------------------------------------------------------------------------------------


def _check_integers(tokens: Port | None, mask: Port | None, positions: Port | None, matching: IoMatching) -> None:
    wanted = (
        ("token_input", tokens, "token ids are int64 or int32 [batch, sequence]"),
        ("attention_mask_input", mask, "a mask is int64 or int32 [batch, positions]"),
        ("position_ids_input", positions, "positions are int64 or int32, [batch, sequence] or three copies of that"),
    )
    flat = tokens is not None and _takes_one(matching, tokens)
    for key, port, form in wanted:
        if port is None:
            continue
        three = key == "position_ids_input" and port.shape is not None and len(port.shape) == 3 and port.shape[0] == 3
        if flat and key != "attention_mask_input" and port.dtype in _INTEGERS and rank_of(port) == 1:
            continue
        if port.dtype not in _INTEGERS or not (three or rank_of(port) in (2, None)):
            help = FORM_OF_ONE_TOKEN if rank_of(port) == 1 and port is tokens else ""
            matching.report("wrong-port", (key,), f"input {port.name!r} is {spell_port(port)}; {form}", help)
        elif isinstance(length := _last_extent(port), int) and (length != 1 or key == "attention_mask_input"):
            what = f"input {port.name!r} is {spell_port(port)}: a fixed number of positions a call is not compiled yet"
            help = "export with a symbolic sequence axis, or with 1 for one token a call"
            matching.report("unsupported-package-class", (key,), what, help)


def _refuse_other_forms(io: BareIo, matching: IoMatching) -> None:
    if io.kv_ownership == "shared":
        what = "the decoder reads another graph's caches (kv_ownership: shared), and nothing fills them"
        matching.report("unsupported-package-class", ("kv_ownership",), what, "compile the graph that owns the caches")
    if io.kv_layout not in (None, "head_major_bnsh"):
        what = "caches that are not [batch, heads, positions, head size] are not compiled yet"
        matching.report("unsupported-package-class", ("kv_layout",), what, "export with head_major_bnsh")
    if io.optional_inputs:
        what = f"optional inputs ({listed(io.optional_inputs)}) are not compiled yet"
        matching.report("unsupported-package-class", ("optional_inputs",), what, "export without them")


def _claim_unread(surroundings: Surroundings, io: BareIo, matching: IoMatching) -> tuple[Port, ...]:
    """Inputs that no node reads: the session wants something there, and any value does."""
    names = [name for name in matching.unclaimed if name in surroundings.unread]
    crossed = [name for name in io.cross_kv_inputs or () if name in names]
    if crossed:
        what = f"the caches {listed(crossed, 2)} are declared, but no node of the graph reads them"
        matching.report("config-contradicts-graph", ("cross_kv_inputs",), what, "export without them", True)
    return tuple(matching.unclaimed.pop(name) for name in names)


def _refuse_unclaimed(matching: IoMatching) -> None:
    for port in matching.unclaimed.values():
        what = f"nothing feeds the graph's input {port.name!r}: {spell_port(port)}"
        help = "name it in the field for what it is (kv_inputs, state_pairs, ...), or export without it"
        matching.report("unclaimed-input", (), what, help)
