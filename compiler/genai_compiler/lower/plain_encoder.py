"""An encoder beside a decoder, nothing declared: what feeds what, told by the two graphs.

The encoder keeps no state. Its output goes where exactly one input of the decoder has its form and nothing else fills
it; a mask of the decoder that reaches no attention over its own tokens is the encoder's own mask.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onnx import GraphProto

from genai_compiler.lower.dataflow import Edge
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.plain_ports import KINDS_OF_TOKENS, PlainPorts
from genai_compiler.lower.stages import REQUEST_TOKENS, Stage, StageInput
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.value_flow import Edges

ENCODER, DECODER = "encoder", "decoder"
_INTEGERS = ("int64", "int32")
_CACHE_RANK = 4
Faults = list[tuple[str, str, str, str]]


@dataclass
class PlainEncoder:
    """stage: the encoder as a step; edges: its outputs that the decoder takes; fed: decoder's input -> value.

    faults: (code, field, what, help), as of PlainPorts.
    """

    stage: Stage
    edges: tuple[Edge, ...]
    fed: Mapping[str, str]
    faults: Faults = field(default_factory=Faults)

    @property
    def takes_tokens(self) -> bool:
        """Whether the request's tokens go to it."""
        return any(each.tokens for each in self.stage.inputs)


def plain_encoder(
    artifact: str, graph: GraphProto, signature: Signature, decoder: PlainPorts, vocabulary: int | None
) -> PlainEncoder:
    """The encoder in `artifact`, and how it feeds a decoder whose ports are known. vocabulary: of token ids.

    Faults: ambiguous-port, unclaimed-input.
    """
    faults: Faults = []
    edges = tuple(_edges(signature, decoder, faults))
    inputs = encoder_inputs(graph, signature, vocabulary)
    tokens = token_inputs(graph, signature, vocabulary)
    if len(tokens) > 1:
        what = f"{listed(each.name for each in tokens)} look into tables: each could be the token ids"
        faults.append(("ambiguous-port", "token_input", what, ""))
    fed = {each.input.name: each.value for each in edges}
    masks = [each for each in inputs if each.filled == 1]
    if decoder.over_source and len(masks) == len(decoder.over_source) == 1:
        fed[decoder.over_source[0].name] = masks[0].value
    else:
        for port in decoder.over_source:
            what = f"{port.name!r} ({spell_port(port)}) masks what the encoder gives; the encoder takes no such mask"
            faults.append(("unclaimed-input", "", what, "export both with the mask"))
    return PlainEncoder(Stage(ENCODER, artifact, signature, inputs, ""), edges, fed, faults)


def _edges(signature: Signature, decoder: PlainPorts, faults: Faults) -> Iterator[Edge]:
    for port in decoder.loose:
        fits = [each for each in signature.outputs if _fits(each, port)]
        if len(fits) == 1:
            yield Edge(ENCODER, fits[0], DECODER, port)
        else:
            named = listed(each.name for each in fits) if fits else "none of the encoder's outputs"
            what = f"the decoder's input {port.name!r} is {spell_port(port)}; {named} could be what it takes"
            code = "ambiguous-port" if fits else "unclaimed-input"
            help = "declare the two graphs in pipeline.models and join them there"
            if not fits and rank_of(port) == _CACHE_RANK:
                help = "a cache over the encoder's output is made by the prompt's network: take the merged decoder, or "
                help += "an encoder that gives the caches"
            faults.append((code, "", what, help))


def _fits(output: Port, port: Port) -> bool:
    if output.dtype != port.dtype or rank_of(output) != rank_of(port):
        return False
    pairs = zip(output.shape or (), port.shape or (), strict=True)
    return all(one == other for one, other in pairs if isinstance(one, int) and isinstance(other, int))


def encoder_inputs(
    graph: GraphProto, signature: Signature, vocabulary: int | None, alone: bool = False
) -> tuple[StageInput, ...]:
    """How each input of a graph without state is filled: token ids, ones for a mask, zeros for kinds of tokens,
    anything else by the caller. alone: no other graph takes the request's tokens; each input goes by its own name.
    """
    edges = Edges(graph)
    flat = [each for each in signature.inputs if each.dtype in _INTEGERS and rank_of(each) == 2]
    tables = {each.name: max(edges.table_rows(each.name), default=0) for each in flat}
    tokens = token_inputs(graph, signature, vocabulary)
    main = [*tokens, *(each for each in signature.inputs if "float" in each.dtype)][:1]
    found: list[StageInput] = []
    for port in signature.inputs:
        value = f"application.{port.name}"
        if [port] == tokens:
            found.append(StageInput(port, value if alone else REQUEST_TOKENS, asked=True, tokens=True))
        elif port in flat and not _counts(port, edges, tables) and main and _same_extents(port, main[0]):
            found.append(StageInput(port, value, asked=True, filled=0 if tables[port.name] else 1))
        else:
            found.append(StageInput(port, value, asked=True))
    return tuple(found)


def token_inputs(graph: GraphProto, signature: Signature, vocabulary: int | None) -> list[Port]:
    """The inputs that could be token ids: they look into a table, of as many rows as there are ids where one does."""
    edges = Edges(graph)
    flat = [each for each in signature.inputs if each.dtype in _INTEGERS and rank_of(each) == 2]
    tables = {each.name: edges.table_rows(each.name) for each in flat if not edges.turns(each.name)}
    found = [each for each in flat if max(tables.get(each.name, ()), default=0) >= KINDS_OF_TOKENS]
    exact = [each for each in found if vocabulary in tables[each.name]]
    return exact if len(exact) == 1 else found


def _counts(port: Port, edges: Edges, tables: Mapping[str, int]) -> bool:
    """Whether an input holds positions, or ids of some kind: it is neither a mask nor kinds of tokens."""
    return edges.turns(port.name) or tables[port.name] >= KINDS_OF_TOKENS


def _same_extents(port: Port, main: Port) -> bool:
    """Whether a port is [rows, entries] as the main input is, so that the shape of the one tells that of the other."""
    one, other = port.shape or (), main.shape or ()
    return bool(one) and one[:2] == other[:2] and None not in one
