"""The state of a decoder that holds two networks behind one flag: one for a prompt, one that takes what a run left.

Which value of the flag is which is told by what the networks read: the first reads no cache. Caches of the tokens grow
in the second. Caches over what an encoder made are given by the first and taken by the second, where no edge joins the
two: they are paired by where they meet the softmax, as keys or as values, one attention after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import GraphProto

from genai_compiler.lower.matching import listed
from genai_compiler.lower.plain_state import (
    Pairs,
    PlainState,
    alike,
    appended_to,
    layers_of,
    may_be_state,
    meetings_of,
    told_pairs,
)
from genai_compiler.read.attention import attention_slots, cache_ops, read_counts
from genai_compiler.read.nodes import output_at
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.switched import switched
from genai_compiler.read.value_flow import Edges, reaching


@dataclass(frozen=True)
class SwitchedDecoder:
    """first_graph, later_graph: the two networks. flag: the port, None where the networks are graphs of their own;
    later: its value for every run but the first.
    """

    flag: Port | None
    later: bool
    first_graph: GraphProto
    later_graph: GraphProto
    state: PlainState


def switched_decoder(graph: GraphProto, signature: Signature) -> SwitchedDecoder | None:
    """The two networks behind the graph's flag; None where there is no flag, or nothing tells which is first."""
    found = switched(graph, signature)
    if found is None:
        return None
    caches = {value: _grown(each, signature) for value, each in found.branches.items()}
    later = [value for value, grown in caches.items() if grown and not _reads(found.branches[not value], grown)]
    if len(later) != 1:
        return None
    first, second = found.branches[not later[0]], found.branches[later[0]]
    state = _state(first, second, caches[later[0]], signature)
    return SwitchedDecoder(found.port, later[0], first, second, state)


def _grown(graph: GraphProto, signature: Signature) -> Pairs:
    """Past -> present of the caches that a network appends to, in the order of the inputs."""
    told = dict(told_pairs(cache_ops(graph), scattered=False))
    edges = Edges(graph)
    pasts = {each.name: each for each in signature.inputs if may_be_state(each)}
    joined = {each.name: appended_to(edges, each.name) for each in signature.outputs}
    pairs = {
        joined[each.name]: each.name
        for each in signature.outputs
        if joined[each.name] in pasts and alike(pasts[joined[each.name]], each)
    }
    every = {**told, **pairs}
    return {each.name: every[each.name] for each in signature.inputs if each.name in every}


def _reads(graph: GraphProto, pasts: Mapping[str, str]) -> bool:
    counts = read_counts(graph)
    return any(counts[past] for past in pasts)


def _state(first: GraphProto, later: GraphProto, grown: Pairs, signature: Signature) -> PlainState:
    told = list(told_pairs(cache_ops(later), scattered=False))
    layers, doubts = layers_of(Edges(later), {past: grown[past] for past in grown if past not in dict(told)})
    begins, goes_on = read_counts(first), read_counts(later)
    crossed = [
        each
        for each in signature.inputs
        if may_be_state(each) and each.name not in grown and goes_on[each.name] and not begins[each.name]
    ]
    pairs, unclear = _crossed(first, later, crossed, grown, signature)
    taken = {*grown, *(each.name for each in crossed)}
    reads = {each.name for each in signature.inputs if begins[each.name] or goes_on[each.name]}
    loose = [each.name for each in signature.inputs if may_be_state(each) and each.name in reads - taken]
    return PlainState((*told, *layers), (), (), (*doubts, *unclear), tuple(loose), tuple(pairs))


def _crossed(
    first: GraphProto, later: GraphProto, pasts: list[Port], grown: Pairs, signature: Signature
) -> tuple[list[tuple[str, str]], list[str]]:
    """(past, present) of caches that the first network gives, key and value of each attention in turns; doubts."""
    if not pasts:
        return [], []
    sources = reaching(later, [each.name for each in signature.inputs])
    presents = [
        each
        for each in signature.outputs
        if each.name not in grown.values() and sources[each.name] <= {past.name for past in pasts}
    ]
    takers = places_met(later, [each.name for each in pasts])
    givers = places_met(first, [each.name for each in presents])
    if len(takers) != len(pasts) or not set(takers) <= set(givers):
        names = listed([each.name for each in pasts], 4)
        return [], [f"nothing tells which outputs give the caches {names}, which the second network alone reads"]
    places = sorted(takers, key=lambda each: (each[0], each[1] == "value"))
    return [(takers[each], givers[each]) for each in places], []


def places_met(graph: GraphProto, names: list[str]) -> dict[tuple[int, str], str]:
    """(which attention, key or value) -> the value there. Attentions are counted in the order in which they run.

    names: pasts, or what an attention makes or takes as keys or values.
    """
    edges = Edges(graph)
    order = {id(node): at for at, node in enumerate(edges.nodes)}
    met = {name: meetings_of(edges, name, name) or _given(edges, name) for name in names}
    found = {
        name: (order[places[0][1]], places[0][0])
        for name, places in met.items()
        if len(places) == 1 and places[0][1] in order
    }
    counted = {place: at for at, place in enumerate(sorted({at for at, _ in found.values()}))}
    return {(counted[at], part): name for name, (at, part) in found.items()}


def _given(edges: Edges, name: str) -> list[tuple[str, int]]:
    """The operator that gives a value as its own present."""
    node = edges.writer.get(name)
    slots = attention_slots(node) if node is not None else None
    if node is None or slots is None or slots.present[1] < 0:
        return []
    half = next((half for half, at in enumerate(slots.present) if output_at(node, at) == name), None)
    return [] if half is None else [("value" if half else "key", id(node))]
