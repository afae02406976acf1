"""The decoder's ports of a version 2 pipeline: caches and states by the form's own words, the rest by the graph.

Names that the form defaults to only find a port; a graph that calls it otherwise is matched by what its ports are.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from genai_compiler.lower.match_lengths import counts_runs
from genai_compiler.lower.match_state import (
    LayerPorts,
    check_pairs,
    is_fixed_size,
    match_fixed,
    match_layers,
    refuse_unpaired,
)
from genai_compiler.lower.matching import Matching, has_slot, listed, rank_of, template_layers
from genai_compiler.problem import Problem
from genai_compiler.read.bare import BareIo
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.model_io import StatePair
from genai_compiler.read.pipeline_config import KvCache
from genai_compiler.read.pipeline_form import PipelineForm, Resolving
from genai_compiler.read.pipeline_rules import STATE
from genai_compiler.read.places import DocPath
from genai_compiler.read.port_names import PortNames
from genai_compiler.read.signature import Port, Signature

_CACHE: DocPath = (*STATE, "kv_cache")
PATTERNS: Mapping[str, tuple[str, str]] = {
    "past_key_names": ("past_key_pattern", "past_key_values.{layer}.key"),
    "past_value_names": ("past_value_pattern", "past_key_values.{layer}.value"),
    "present_key_names": ("present_key_pattern", "present.{layer}.key"),
    "present_value_names": ("present_value_pattern", "present.{layer}.value"),
}
"""Version 1's key -> the pattern of version 2, and its default."""
_SLOT = re.compile(r"\{(?:layer|i|l)?\}|%d")
_NUMBERED = re.compile(r"(?P<stem>.*\.)(?:0|[1-9][0-9]{0,5})\.(?:key|value)", re.DOTALL)
_TAIL = re.compile(r"(?<![0-9])(?P<layer>0|[1-9][0-9]{0,5})(?![0-9]).*", re.DOTALL)
_COMBINED_RANK, _COMBINED = 5, 2


@dataclass(frozen=True)
class DecoderPorts:
    """io: the ports by role. layers: the number of each layer with caches. own: inputs that no session feeds.

    combined: caches that hold keys and values together.
    """

    io: BareIo
    layers: tuple[int, ...]
    own: frozenset[str]
    combined: tuple[LayerPorts, ...] = ()


class _CacheMatching(Matching):
    """A matching whose problems stand where version 2 states patterns."""

    def problem(self, code: str, path: DocPath, what: str, help: str = "") -> None:
        for key, (pattern, _) in PATTERNS.items():
            help = help.replace(key, pattern)
        key = PATTERNS.get(str(path[-1]), ("",))[0]
        super().problem(code, (*_CACHE, key) if key else _CACHE, what, help)


def decoder_ports(
    form: PipelineForm, signature: Signature, elsewhere: frozenset[str], resolving: Resolving
) -> DecoderPorts:
    """The ports of the decoder. elsewhere: its inputs that other sessions feed, or could by name.

    Reports unpaired-state, bad-value, unsupported-package-class and contradictions.
    """
    inputs = {each.name: each for each in signature.inputs if each.name not in elsewhere}
    outputs = {each.name: each for each in signature.outputs}
    together = {name: port for name, port in inputs.items() if holds_both(port)}
    apart = {name: port for name, port in inputs.items() if name not in together}
    templates = cache_patterns(form, apart, outputs, resolving)
    config = with_patterns(form.text.base, templates)
    matching = _CacheMatching(config, apart, outputs, dict(apart))
    combined = tuple(_combined(form, templates, together, outputs, resolving))
    keys = match_layers(matching, "past_key_names", "present_key_names")
    values = match_layers(matching, "past_value_names", "present_value_names")
    refuse_unpaired(matching)
    check_pairs(matching, keys, values)
    fixed = _by_tails(match_fixed(matching), matching)
    resolving.problems += matching.problems
    names = config.decoder
    positions = _positions(form, signature, names.inputs["position_ids"], resolving)
    counter = names.inputs["past_key_values_length"]
    positions = counter if positions is None and counts_runs(inputs.get(counter)) else positions
    pairs = [each for layer in zip(keys, values, strict=False) for each in layer]
    _contradictions(form, signature, pairs, fixed, resolving)
    io = BareIo(
        token_input=_present(names.inputs["input_ids"], inputs),
        attention_mask_input=_present(names.inputs["attention_mask"], inputs),
        position_ids_input=positions,
        logits_output=_present(names.outputs["logits"], outputs),
        kv_inputs=tuple(each.past.name for each in pairs) if pairs else None,
        kv_outputs=tuple(each.present.name for each in pairs) if pairs else None,
        state_pairs=tuple(_carry(each) for each in fixed) if fixed else None,
        inputs_embeds_input=_present(names.inputs["inputs_embeds"], inputs),
    )
    states = {each.past.name for each in (*keys, *values, *fixed, *combined)}
    own = {io.token_input or "", io.attention_mask_input or "", io.position_ids_input or "", *states}
    own |= {name for op in signature.cache_ops for name in (op.past_key, op.past_value)}
    return DecoderPorts(io, tuple(each.layer for each in keys), frozenset(own), combined)


def _by_tails(found: tuple[LayerPorts, ...], matching: Matching) -> tuple[LayerPorts, ...]:
    """The states of one size, and inputs left that are such: an output has their very type and the name's end.

    Version 2 has no word for them. The end of a name is what follows its first layer number, the number included.
    """
    taken = {each.present.name for each in found}
    more: list[LayerPorts] = []
    for name, port in matching.unclaimed.items():
        tail = _TAIL.search(name)
        if tail is None or not is_fixed_size(port):
            continue
        fits = [
            made
            for made in matching.outputs.values()
            if made.name not in taken
            and (made.dtype, made.shape and made.shape[1:]) == (port.dtype, port.shape and port.shape[1:])
            and (own := _TAIL.search(made.name)) is not None
            and own[0] == tail[0]
        ]
        if len(fits) == 1:
            more.append(LayerPorts(int(tail["layer"]), port, fits[0]))
    order = {name: at for at, name in enumerate(matching.inputs)}
    return tuple(sorted((*found, *more), key=lambda each: order[each.past.name]))


def _present(name: str, ports: Mapping[str, Port]) -> str | None:
    return name if name in ports else None


def _carry(each: LayerPorts) -> StatePair:
    return StatePair(input=each.past.name, output=each.present.name, init="zeros", update="replace")


def holds_both(port: Port) -> bool:
    """Whether a port is a cache of keys and values together, [2, batch, heads, positions, head size]."""
    return "float" in port.dtype and rank_of(port) == _COMBINED_RANK and bool(port.shape and port.shape[0] == _COMBINED)


def _combined(
    form: PipelineForm,
    templates: Mapping[str, str],
    pasts: Mapping[str, Port],
    outputs: Mapping[str, Port],
    resolving: Resolving,
) -> Iterator[LayerPorts]:
    """Such caches with their next values: by the stated patterns of keys, else by the ends of their names.

    Reports unpaired-state, and config-contradicts-graph where the file says combined and none is.
    """
    if form.state.kv_cache.format == "combined" and not pasts:
        what = "format is combined here, but no input of the decoder holds keys and values together; the graph is taken"
        resolving.report("config-contradicts-graph", (*_CACHE, "format"), what, "write auto", True)
    nexts = {name: port for name, port in outputs.items() if holds_both(port)}
    stated = form.state.kv_cache.past_key_pattern is not None
    layers = template_layers(templates["past_key_names"], pasts) if stated else numbered(pasts)
    follow = template_layers(templates["present_key_names"], nexts) if stated else numbered(nexts)
    for layer, past in layers.items():
        if layer in follow:
            yield LayerPorts(layer, pasts[past], nexts[follow[layer]])
    paired = {past for layer, past in layers.items() if layer in follow}
    for name in pasts:
        if name not in paired:
            what = f"the cache {name!r} holds keys and values together, and no output is told to be its next value"
            help = f"name both in past_key_pattern and present_key_pattern; such outputs are {listed(nexts)}"
            resolving.report("unpaired-state", _CACHE, what, help)


def numbered(ports: Mapping[str, Port]) -> dict[int, str]:
    """Layer -> port, where each name has a number of its own; else counted in the graph's order."""
    tails = [_TAIL.search(name) for name in ports]
    numbers = [int(each["layer"]) if each is not None else -1 for each in tails]
    if len(set(numbers)) < len(numbers) or -1 in numbers:
        numbers = list(range(len(ports)))
    return dict(zip(numbers, ports, strict=True))


def cache_patterns(
    form: PipelineForm, inputs: Mapping[str, Port], outputs: Mapping[str, Port], resolving: Resolving
) -> dict[str, str]:
    """Version 1's keys and printf templates: stated ones, version 1's own beside them, else what names tell.

    By the format's word `auto` takes inputs `*.{layer}.key` and `*.{layer}.value` for caches.
    """
    cache, names = form.state.kv_cache, form.text.base.decoder
    if any(getattr(cache, pattern) is not None for pattern, _ in PATTERNS.values()):
        return {key: _stated(cache, pattern, default, resolving) for key, (pattern, default) in PATTERNS.items()}
    if names.inputs.stated & {"past_key_names", "past_value_names"}:
        return {}
    stems = [
        {match["stem"] for name in ports if (match := _NUMBERED.fullmatch(name)) is not None}
        for ports in (inputs, outputs)
    ]
    if any(len(each) != 1 for each in stems):
        return {}
    (past,), (present,) = stems
    if has_slot(past + present):
        return {}
    found = {"past_key_names": f"{past}%d.key", "past_value_names": f"{past}%d.value"}
    return found | {"present_key_names": f"{present}%d.key", "present_value_names": f"{present}%d.value"}


def _stated(cache: KvCache, pattern: str, default: str, resolving: Resolving) -> str:
    """A pattern as a printf template; its slot is written in one of several ways."""
    text = getattr(cache, pattern) or default
    if len(_SLOT.findall(text)) != 1:
        what = f"the pattern {text!r} has {len(_SLOT.findall(text))} slots for the layer's number"
        resolving.report("bad-value", (*_CACHE, pattern), what, f"write one {{layer}}, as in {default}")
    return _SLOT.sub("%d", text, count=1)


def with_patterns(base: GenaiConfig, templates: Mapping[str, str]) -> GenaiConfig:
    decoder = base.decoder
    inputs = {key: template for key, template in templates.items() if key in decoder.inputs.names}
    outputs = {key: template for key, template in templates.items() if key in decoder.outputs.names}
    return replace(
        base,
        decoder=replace(
            decoder,
            inputs=PortNames({**decoder.inputs.names, **inputs}, decoder.inputs.stated),
            outputs=PortNames({**decoder.outputs.names, **outputs}, decoder.outputs.stated),
        ),
    )


def _positions(form: PipelineForm, signature: Signature, default: str, resolving: Resolving) -> str | None:
    """The port for positions; what the file says of them is held against it."""
    stated, path = form.state.position_ids, (*STATE, "position_ids")
    inputs = {each.name: each for each in signature.inputs}
    if stated.input_name is not None and stated.input_name not in inputs:
        what = f"the decoder has no input {stated.input_name!r} for positions; the graph is taken"
        resolving.report("config-contradicts-graph", (*path, "input_name"), what, "correct the name", True)
    name = next((each for each in (stated.input_name, default) if each in inputs), None)
    rank = rank_of(inputs[name]) if name is not None else None
    if (wanted := {"default": 2, "mrope_3d": 3}.get(stated.strategy)) is not None and rank != wanted:
        found = f"{name!r} has {rank} axes" if name is not None else "the decoder takes no positions"
        what = f"strategy is {stated.strategy} here, but {found}; the graph is taken"
        resolving.report("config-contradicts-graph", (*path, "strategy"), what, "write auto", True)
    return name


def _contradictions(
    form: PipelineForm,
    signature: Signature,
    caches: list[LayerPorts],
    fixed: tuple[LayerPorts, ...],
    resolving: Resolving,
) -> None:
    """What the file says of state that the graph does not have."""
    cache = form.state.kv_cache
    if cache.format == "separate" and not caches and not signature.cache_ops:
        what = "format is separate here, but no inputs of the decoder are such caches; the graph is taken"
        resolving.report("config-contradicts-graph", (*_CACHE, "format"), what, "correct the patterns", True)
    if form.state.type == "recurrent" and not fixed:
        what = "type is recurrent here, but the decoder has no state that each step replaces; the graph is taken"
        resolving.report("config-contradicts-graph", (*STATE, "type"), what, "leave it out", True)


def retold(problem: Problem, session: str, path: str) -> Problem:
    """A problem of the decoder's ports in the words of version 2. path: of the session, as text."""
    if problem.code in ("no-logits", "no-state"):
        word = 'where nothing is generated, write "generation_loop": "single_pass"'
        problem = replace(problem, help="; ".join(filter(None, (problem.help, word))))
    if not problem.path.startswith(path):
        return problem
    key = problem.path.removeprefix(path).removeprefix(".").partition("[")[0].partition(".")[0]
    stated = _VERSION_1.get(key, "")
    what, help = problem.what, problem.help
    if stated:
        what, help = (text.replace(f"{path}.{key}", stated).replace(key, stated) for text in (what, help))
    if problem.code == "unclaimed-input":
        help = "join it in pipeline.dataflow, name caches in pipeline.state.kv_cache, or export without it"
    return replace(problem, path=path, what=f"{session}: {what}", help=help)


_VERSION_1: Mapping[str, str] = {
    "token_input": "model.decoder.inputs.input_ids",
    "attention_mask_input": "model.decoder.inputs.attention_mask",
    "position_ids_input": "pipeline.state.position_ids.input_name",
    "logits_output": "model.decoder.outputs.logits",
}
"""Where a port can be named: version 2 has no word for most, the blocks of version 1 beside it have."""
