"""The sessions of a version 2 pipeline that are one decoder together: which they are, told by the wires and the graphs.

A session belongs to the decoder when it keeps caches, when it takes what such a one makes at every token, and when it
stands between the tokens and these. What makes embeddings of tokens alone is its first; what takes media beside them
stays a model of its own, which the decoder's tokens go through first.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.front_model import upstream
from genai_compiler.lower.matching import rank_of
from genai_compiler.lower.pipeline_edges import SessionGraphs
from genai_compiler.lower.pipeline_ports import cache_patterns, holds_both, numbered, with_patterns
from genai_compiler.lower.pipeline_stages import a_token_each, token_port
from genai_compiler.lower.pipeline_windows import is_windowed
from genai_compiler.lower.plain_ports import KINDS_OF_TOKENS
from genai_compiler.lower.plain_state import plain_state, told_pairs
from genai_compiler.lower.stage_chain import is_formed
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.pipeline_form import FLOW, PipelineForm, Resolving
from genai_compiler.read.port_names import PortNames
from genai_compiler.read.signature import Port
from genai_compiler.read.value_flow import Edges

_INTEGERS = ("int64", "int32")
_ONLY_SHAPE = ("Shape", "Size")


@dataclass(frozen=True)
class Cut:
    """A decoder of several sessions. sessions: in the order of the flow. front: what makes embeddings of tokens and of
    media before them, "" where that is none or one of the sessions. config: with the names of the decoder's ports.
    links: what feeds each input, of all sessions: a wire, or what earlier sessions call the same.
    """

    sessions: tuple[str, ...]
    front: str
    config: GenaiConfig
    links: tuple[Edge, ...]


@dataclass
class _Finding:
    """The search under way."""

    form: PipelineForm
    graphs: SessionGraphs
    config: GenaiConfig
    links: tuple[Edge, ...]
    decoder: str

    @property
    def cross(self) -> set[str]:
        """What the decoder attends to, which makes no embeddings of its tokens."""
        state = self.form.state.cross_cache
        return {each.cross for each in self.form.flow} | ({state.source or ""} if state is not None else set())

    def takes_tokens(self, name: str) -> Port | None:
        """The input for the decoder's own token ids: by its name, else the one that looks into a table."""
        names = self.config.decoder.inputs
        flat = [
            each
            for each in self.graphs.signatures[name].inputs
            if each.dtype in _INTEGERS and rank_of(each) == 2 and not any(
                each == link.input for link in self.links if link.target == name)
        ]  # fmt: skip
        if (port := next((each for each in flat if each.name == names["input_ids"]), None)) is not None:
            return port
        edges = Edges(self.graphs.models[name].graph)
        others = [each for each in flat if not is_formed(self.config, each.name) and not edges.turns(each.name)]
        found = [each for each in others if any(n >= KINDS_OF_TOKENS for n in edges.table_rows(each.name))]
        return found[0] if len(found) == 1 else None

    def looks_at_tokens(self, name: str) -> bool:
        """Whether it takes them for more than how many there are."""
        port, edges = self.takes_tokens(name), Edges(self.graphs.models[name].graph)
        return port is not None and any(node.op_type not in _ONLY_SHAPE for node, _ in edges.readers[port.name])


def find_cut(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    decoder: str,
    config: GenaiConfig,
    kept: frozenset[str],
    resolving: Resolving,
) -> Cut | None:
    """The decoder's sessions; None where it is one, whose prompts go in whole. edges: the stated ones. config: the
    blocks of version 1. kept: sessions that are read behind the loop.

    Reports unsupported-package-class where several sessions could make the embeddings of tokens.
    """
    windowed = is_windowed(form)
    if len(form.running) == 1 and not windowed:
        return None
    keepers, config = _keepers(form, graphs, edges, config)
    links = links_of(form, graphs, edges, config)
    finding = _Finding(form, graphs, config, links, decoder)
    chain = _grown(links, {decoder, *keepers})
    fronts = _embeddings(finding, chain)
    if chain == {decoder} and not windowed:
        return None
    if len(fronts) > 1:
        what = f"the sessions {' and '.join(map(repr, fronts))} could each make the embeddings of the decoder's tokens"
        help = 'name the one that the decoder attends to in "cross_attention_from"'
        resolving.report("unsupported-package-class", FLOW, what, help)
    front = fronts[0] if fronts else ""
    tokens = token_port(graphs.signatures[front], links, front) if front else None
    if front and tokens is not None and not _beside_media(finding, front, tokens, {*chain, *kept}):
        chain, front = {*chain, front}, ""
    own = next((port for name in form.running if name in chain and (port := finding.takes_tokens(name))), None)
    if (port := own if not front else None) is not None:
        config = named_ports(config, input_ids=port.name)
    return Cut(tuple(each for each in form.running if each in chain), front, config, links)


def _keepers(
    form: PipelineForm, graphs: SessionGraphs, edges: tuple[Edge, ...], blocks: GenaiConfig
) -> tuple[tuple[str, ...], GenaiConfig]:
    """The sessions that keep caches, and the configuration with the names that version 2 has for them."""
    unheard = Resolving(form.text)  # who matches the ports reports what is wrong with the patterns
    base = replace(blocks, components={})  # the flow says what runs beside the decoder, not these
    config = with_patterns(base, cache_patterns(form, {}, {}, unheard))
    fed = {(each.target, each.input.name) for each in links_of(form, graphs, edges, config)}
    found: list[str] = []
    for name in form.running:
        own = {each.name for each in graphs.signatures[name].inputs} - {port for at, port in fed if at == name}
        held = [each for each in graphs.signatures[name].inputs if each.name in own and each.dtype not in _INTEGERS]
        state = plain_state(graphs.models[name].graph, graphs.signatures[name])
        grows = {past for past, _ in (*state.caches, *state.scattered, *state.crossed)} & own
        if grows or any(is_formed(config, each.name) for each in held):
            found.append(name)
    inputs = {each.name: each for name in found for each in graphs.signatures[name].inputs}
    outputs = {each.name: each for name in found for each in graphs.signatures[name].outputs}
    together = {name: port for name, port in inputs.items() if holds_both(port)}
    patterns = cache_patterns(form, {n: p for n, p in inputs.items() if n not in together}, outputs, unheard)
    config = with_patterns(base, patterns)
    return tuple(found), _with_together(config, together, outputs) if together else config


def _with_together(config: GenaiConfig, pasts: dict[str, Port], outputs: dict[str, Port]) -> GenaiConfig:
    """Version 1's names for caches that hold keys and values: what stands before and behind the layer's number."""
    nexts = {name: port for name, port in outputs.items() if holds_both(port)}
    past, present = (_template(numbered(each)) for each in (pasts, nexts))
    none = {"past_key_names": "", "past_value_names": ""} if past else {}
    return named_ports(config, past_names=past, **none, present_names=present)


def _template(layers: dict[int, str]) -> str:
    """The one template that gives these names, "" where there is none."""
    found = {_slotted(name, layer) for layer, name in layers.items()}
    return found.pop() if len(found) == 1 else ""


def _slotted(name: str, layer: int) -> str:
    return re.sub(rf"(?<![0-9]){layer}(?![0-9])", "%d", name, count=1)


def named_ports(config: GenaiConfig, **names: str) -> GenaiConfig:
    """The configuration with other names for ports of the decoder. names: by version 1's key."""
    decoder = config.decoder
    inputs, outputs = (
        PortNames({**each.names, **{key: name for key, name in names.items() if key in each.names}}, each.stated)
        for each in (decoder.inputs, decoder.outputs)
    )
    return replace(config, decoder=replace(decoder, inputs=inputs, outputs=outputs))


def links_of(
    form: PipelineForm, graphs: SessionGraphs, edges: tuple[Edge, ...], config: GenaiConfig
) -> tuple[Edge, ...]:
    """The stated edges, and one for each earlier session that gives what an input that no wire feeds is called."""
    found = list(edges)
    for target in form.running:
        fed = {each.input.name for each in edges if each.target == target}
        for port in graphs.signatures[target].inputs:
            if port.name not in fed and not is_formed(config, port.name):
                found += _by_name(form, graphs, target, port)
    return tuple(found)


def _by_name(form: PipelineForm, graphs: SessionGraphs, target: str, port: Port) -> Iterator[Edge]:
    for source in _before(form, target):
        for made in graphs.signatures[source].outputs:
            if made.name == port.name and not contradict(made, port):
                yield Edge(source, made, target, port)


def _before(form: PipelineForm, target: str) -> Iterable[str]:
    """The sessions that run before one: earlier ones of the flow, and for a session of every token all others."""
    at = form.running.index(target)
    later = form.step(target).phase == "step"
    for place, name in enumerate(form.running):
        if place < at or (later and place != at and form.step(name).phase == "init"):
            yield name


def own_state(graphs: SessionGraphs, name: str, fed: set[str]) -> dict[str, str]:
    """Past -> present of the state that a session's graph tells. fed: inputs that other sessions feed: no state."""
    model, signature = graphs.models[name], graphs.signatures[name]
    state = plain_state(model.graph, signature)
    pairs = (*state.caches, *state.scattered, *state.replaced)
    if state.doubts:
        pairs = tuple(told_pairs(signature.cache_ops, scattered=False))
    return {past: present for past, present in pairs if past not in fed}


def _grown(links: tuple[Edge, ...], chain: set[str]) -> set[str]:
    """The chain, and whatever takes what it makes."""
    chain = set(chain)
    while more := {each.target for each in links if each.source in chain} - chain:
        chain |= more
    return chain


def _embeddings(finding: _Finding, chain: set[str]) -> list[str]:
    """The session that takes the tokens before the chain, [] where the chain does; what stands between joins it.

    Several where nothing tells which of them does.
    """
    while True:
        names = list(dict.fromkeys(each.source for each in _streams(finding, chain)))
        between = {each for each in names if {*names} & (upstream(each, finding.links) - {each})}
        if between:
            chain |= between
            continue
        if len(names) != 1 or token_port(finding.graphs.signatures[names[0]], finding.links, names[0]) is not None:
            return names
        chain.add(names[0])


def _streams(finding: _Finding, chain: set[str]) -> list[Edge]:
    """What goes from other sessions into the chain once a token, as far as that is told."""
    into = [each for each in finding.links if each.target in chain and each.source not in {*chain, *finding.cross}]
    found = [each for each in into if "float" in each.input.dtype and _behind_tokens(finding, each.source)]
    name = finding.config.decoder.outputs["logits"]
    outputs = finding.graphs.signatures[finding.decoder].outputs
    logits = next((each for each in outputs if each.name == name), None)
    sure = [each for each in found if a_token_each(each.input, logits, finding.form)]
    if any(finding.looks_at_tokens(each) for each in chain):
        return sure
    phased = [each for each in found if finding.form.step(each.source).phase == "step"]
    several = len({each.source for each in found}) > 1
    return (sure or phased or found) if several else found


def _behind_tokens(finding: _Finding, name: str) -> bool:
    """Whether a session, or one before it, takes token ids."""
    every = upstream(name, finding.links)
    return any(token_port(finding.graphs.signatures[each], finding.links, each) is not None for each in every)


def _beside_media(finding: _Finding, front: str, tokens: Port, others: set[str]) -> bool:
    """Whether the embedding takes more than tokens, or features are to go over its rows: of none of the others."""
    feeding = {each.source for each in finding.links}
    loose = [each for each in finding.form.running if each not in {*others, *feeding}]
    return any(each != tokens for each in finding.graphs.signatures[front].inputs) or bool(loose)
