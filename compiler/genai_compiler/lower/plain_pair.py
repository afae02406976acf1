"""A decoder in two files, nothing declared: one graph for prompts, without a past, and one for later tokens.

    decoder_model.onnx            tokens -> logits, caches         (and caches over what an encoder made)
    decoder_with_past_model.onnx  tokens, caches -> logits, caches

The two are one decoder where each output of the first is the first value of one input of the second: told by which
attention it meets, counted in the order of the graph, as keys or as values. Names decide nothing but between inputs
that play one part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import GraphProto, ModelProto

from genai_compiler.lower.matching import listed, rank_of
from genai_compiler.lower.plain_candidate import Candidate
from genai_compiler.lower.plain_ports import PlainPorts, places_tokens, plain_ports
from genai_compiler.lower.plain_state import PlainState, alike, may_be_state, source_masks
from genai_compiler.lower.switched_state import SwitchedDecoder, places_met
from genai_compiler.read.causal import shows_order
from genai_compiler.read.nodes import all_graphs
from genai_compiler.read.one_token import takes_one_token
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.value_flow import Edges

_INTEGERS = ("int64", "int32")
_CACHE_RANK = 4


@dataclass(frozen=True)
class Pair:
    """The two graphs, the encoder beside them, and the decoder that they are.

    signature: inputs and outputs of both, by the names that the second has for them; first_ports: what the first calls
    them. networks: both graphs with ports of these names. first_model: the first one as a whole.
    """

    first: Candidate
    later: Candidate
    encoder: Candidate | None
    signature: Signature
    first_ports: Mapping[str, str]
    first_model: ModelProto
    networks: SwitchedDecoder
    notes: tuple[str, ...] = ()

    @property
    def graphs(self) -> tuple[Candidate, ...]:
        """All of them."""
        return tuple(each for each in (self.encoder, self.first, self.later) if each is not None)

    def ports(self, vocabulary: int | None) -> PlainPorts:
        """The ports of the whole decoder."""
        found = plain_ports(self.networks.later_graph, self.signature, vocabulary, self.networks)
        found.io["aliasing"] = "forbidden"  # the first graph takes no past that could be one buffer with its present
        return found


@dataclass(frozen=True)
class Alone:
    """One of the two graphs does for both. graphs: with the encoder; notes: which is left aside."""

    graphs: tuple[Candidate, ...]
    notes: tuple[str, ...]


def pair_of(graphs: Sequence[Candidate]) -> Pair | Alone | str | None:
    """The decoder in two files among two or three graphs; why two of them are none, in words; None for other graphs."""
    firsts = [each for each in graphs if is_prompts_alone(each)]
    laters = [each for each in graphs if each.ports.keeps and not each.merged]
    others = [each for each in graphs if each not in firsts and each not in laters]
    if len(firsts) != 1 or len(laters) != 1 or len(others) > 1:
        return None
    first, later, encoder = firsts[0], laters[0], next(iter(others), None)
    if _does_for_both(later, first):
        note = f"left aside: {first.artifact!r}: {later.artifact!r} takes prompts as well, with no past"
        return Alone(tuple(each for each in (encoder, later) if each is not None), (note,))
    return _paired(first, later, encoder)


def is_prompts_alone(graph: Candidate) -> bool:
    """Whether a graph gives logits over its own token ids, keeps nothing, and gives what a cache could begin with."""
    given = [each for each in graph.signature.outputs if rank_of(each) == _CACHE_RANK and "float" in each.dtype]
    ends = {"token_input", "logits_output"} <= {*graph.ports.io}
    return not graph.ports.keeps and ends and len(given) > 1


def _does_for_both(later: Candidate, first: Candidate) -> bool:
    """Whether the second takes a prompt with no past: any number of tokens, caches of any length, nothing beside."""
    tokens = next((x for x in later.signature.inputs if x.name == later.ports.io.get("token_input")), None)
    if tokens is None or later.ports.faults or _cross_pasts(later):
        return False
    caches = [each for each in later.signature.inputs if each.name in later.ports.io.get("kv_inputs", ())]
    grows = all(each.shape is not None and not isinstance(each.shape[2], int) for each in caches)
    more = len(later.ports.loose) >= len(first.ports.loose)
    return bool(caches) and grows and more and takes_several(later, tokens)


def takes_several(later: Candidate, tokens: Port) -> bool:
    """Whether a graph takes several tokens behind a past, each of which sees those before it."""
    extent = tokens.shape[-1] if tokens.shape else None
    open_axis = not isinstance(extent, int) and not takes_one_token(later.model, tokens)
    return open_axis and shows_order(later.model.graph)


def _cross_pasts(later: Candidate) -> list[Port]:
    """Inputs in the form of caches that nothing of the graph's own follows."""
    return [each for each in later.ports.loose if rank_of(each) == _CACHE_RANK]


# ---- one decoder -----------------------------------------------------------------------------------------------------


def _paired(first: Candidate, later: Candidate, encoder: Candidate | None) -> Pair | str:
    io, named = later.ports.io, {each.name: each for each in later.signature.inputs}
    own = dict(zip(io.get("kv_inputs", ()), io.get("kv_outputs", ()), strict=True))
    beyond = [key for key in ("static_cache", "state_pairs") if key in io]
    if beyond or "token_input" not in io or "logits_output" not in io:
        return f"the caches or the token ids of {later.artifact} are not told by its edges"
    pasts = [*own, *(each.name for each in _cross_pasts(later))]
    given = [x for x in first.signature.outputs if may_be_state(x) and rank_of(x) == _CACHE_RANK]
    takers = places_met(later.model.graph, pasts)
    givers = places_met(first.model.graph, [each.name for each in given])
    if len(takers) != len(pasts) or set(takers) != set(givers) or len(givers) != len(given):
        return (
            f"{first.artifact} gives {len(given)} tensors in the form of caches, {later.artifact} takes {len(pasts)}, "
            "and they do not meet the same attention, as keys and as values"
        )
    outputs = {each.name: each for each in given}
    begins = {takers[place]: outputs[givers[place]] for place in takers}  # input of the second -> output of the first
    if wrong := [past for past, made in begins.items() if not alike(named[past], made)]:
        return f"{listed(wrong, 4)} of {later.artifact} differ in form from what {first.artifact} gives for them"
    state = _state_of_first(begins, own)
    kinds = [_by_kind(first, state), _by_kind(later, None, pasts)]
    joined, alone, lacking = _same_inputs(*kinds)
    if lacking:
        return f"{lacking} is an input of one of the graphs alone"
    names = {io["token_input"]: first.ports.io["token_input"], io["logits_output"]: first.ports.io["logits_output"]}
    names |= joined | {own[past]: begins[past].name for past in own}
    taken = {each.name for each in (*later.signature.inputs, *later.signature.outputs)}
    crossed: dict[str, str] = {}
    for past, made in begins.items():
        if past not in own:
            crossed[past] = _free(made.name, taken)
            names[crossed[past]] = made.name
    names |= {_free(each.name, taken): each.name for each in alone}
    return _made(first, later, encoder, names, (own, crossed))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _state_of_first(begins: Mapping[str, Port], own: Mapping[str, str]) -> PlainState:
    """The first graph's caches over its own tokens: what they begin with."""
    caches = tuple((begins[past].name, begins[past].name) for past in own)
    return PlainState(caches, (), (), (), ())


Kinds = dict[str, list[Port]]


def _by_kind(graph: Candidate, state: PlainState | None, pasts: Sequence[str] = ()) -> Kinds:
    """Inputs beside token ids and caches, by the part that they play."""
    edges, found = Edges(graph.model.graph), Kinds()
    rest = [x for x in graph.signature.inputs if x.name not in (*pasts, graph.ports.io["token_input"])]
    flat = [each for each in rest if each.dtype in _INTEGERS and rank_of(each) == 2]
    over = {each.name for each in source_masks(flat, state, edges)} if state is not None else set[str]()
    over |= {each.name for each in graph.ports.over_source} if state is None else set()
    for each in rest:
        if not edges.counts[each.name] and each not in graph.ports.zeros:
            kind = f"unread {each.name}"
        elif each.name in over:
            kind = "mask of the source"
        elif each in flat:
            kind = "positions" if places_tokens(each, edges) else "mask"
        else:
            kind = f"{each.dtype} of {rank_of(each)} axes"
        found.setdefault(kind, []).append(each)
    return found


def _same_inputs(first: Kinds, later: Kinds) -> tuple[dict[str, str], list[Port], str]:
    """(name in the second -> in the first; what the first alone takes; what must not be of one alone)."""
    joined, alone = dict[str, str](), list[Port]()
    for kind in dict.fromkeys((*first, *later)):
        mine, theirs = first.get(kind, []), later.get(kind, [])
        if len(mine) == len(theirs) == 1:
            joined[theirs[0].name] = mine[0].name
            continue
        both = {each.name for each in mine} & {each.name for each in theirs}
        joined |= {name: name for name in both}
        alone += [each for each in mine if each.name not in both]
        left = [each for each in (*mine, *theirs) if each.name not in both]
        if kind in ("mask", "positions") and left:
            return {}, [], f"{left[0].name!r} ({kind})"
    return joined, alone, ""


def _made(
    first: Candidate,
    later: Candidate,
    encoder: Candidate | None,
    names: Mapping[str, str],
    caches: tuple[Mapping[str, str], Mapping[str, str]],
) -> Pair | str:
    """The pair. names: of the whole decoder -> in the first graph; caches: past -> present, own and crossed."""
    own, crossed = caches
    model = _renamed(first.model, {mine: name for name, mine in names.items()})
    if model is None:
        return f"values inside {first.artifact} have the names of ports of {later.artifact}"
    of_first = {each.name: each for each in (*first.signature.inputs, *first.signature.outputs)}
    inputs = [_wider(each, of_first.get(names.get(each.name, ""))) for each in later.signature.inputs]
    known = {each.name for each in (*later.signature.inputs, *later.signature.outputs)}
    takes = {each.name for each in first.signature.inputs}
    more = [replace(of_first[mine], name=name) for name, mine in names.items() if name not in known]
    inputs += [each for each in more if names[each.name] in takes]
    outputs = [*later.signature.outputs, *(each for each in more if names[each.name] not in takes)]
    signature = replace(later.signature, inputs=tuple(inputs), outputs=tuple(outputs))
    told = later.ports.io
    loose = [x for x in signature.inputs if may_be_state(x) and x.name not in (*own, *crossed)]
    pairs = tuple(zip(told["kv_inputs"], told["kv_outputs"], strict=True))
    state = PlainState(pairs, (), (), (), tuple(x.name for x in loose), tuple(_in_turns(later, crossed)))
    networks = SwitchedDecoder(None, True, model.graph, later.model.graph, state)
    return Pair(first, later, encoder, signature, names, model, networks)


def _wider(port: Port, other: Port | None) -> Port:
    """A port of the second graph with the axes of the first one's, where that is told: it takes more tokens."""
    caches = rank_of(port) == _CACHE_RANK and "float" in port.dtype
    return port if other is None or caches or other.shape is None else replace(port, shape=_open(port, other))


def _open(port: Port, other: Port) -> tuple[int | str | None, ...]:
    mine, theirs = port.shape or (), other.shape or ()
    if len(mine) != len(theirs):
        return theirs
    return tuple(b if isinstance(a, int) and not isinstance(b, int) else a for a, b in zip(mine, theirs, strict=True))


def _in_turns(later: Candidate, crossed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Caches over the encoder's output, key and value of each attention in turns."""
    met = places_met(later.model.graph, list(crossed))
    for place in sorted(met, key=lambda each: (each[0], each[1] == "value")):
        yield met[place], crossed[met[place]]


def _renamed(model: ModelProto, new: Mapping[str, str]) -> ModelProto | None:
    """The model with its ports under other names; None where a value inside has one of these."""
    changed = {old: name for old, name in new.items() if old != name}
    copy = ModelProto()
    copy.CopyFrom(model)
    inside = {name for graph in all_graphs(copy) for node in graph.node for name in node.output}
    inside |= {each.name for graph in all_graphs(copy) for each in (*graph.input, *graph.initializer)}
    if set(changed.values()) & (inside - set(changed)):
        return None
    for graph in all_graphs(copy):
        _rename_in(graph, changed)
    return copy


def _rename_in(graph: GraphProto, new: Mapping[str, str]) -> None:
    for each in (*graph.input, *graph.output, *graph.value_info):
        each.name = new.get(each.name, each.name)
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
