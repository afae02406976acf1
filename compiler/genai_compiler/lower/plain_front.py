"""A decoder that takes token ids beside embeddings, and the graph that makes these, nothing declared.

An input that has an entry a token goes by the symbol of the decoder's own token ids; what an encoder gives has a length
of its own. It takes the other graph's only output of its form, or the one of its name.
"""

from collections.abc import Iterator

from onnx import GraphProto

from genai_compiler.lower.decoder_facts import FrontFacts
from genai_compiler.lower.front_model import FrontModel
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.plain_encoder import token_inputs
from genai_compiler.lower.plain_ports import PlainPorts
from genai_compiler.read.signature import Port, Signature

FRONT = "embedding"
Fault = tuple[str, str, str, str]


def per_token(ports: PlainPorts, decoder: Signature) -> tuple[Port, ...]:
    """What of a decoder's inputs nothing of its own fills, and has an entry for each of its tokens."""
    tokens = next((each for each in decoder.inputs if each.name == ports.io.get("token_input")), None)
    symbol = tokens.shape[1] if tokens is not None and rank_of(tokens) == 2 and tokens.shape is not None else None
    return tuple(
        each
        for each in ports.loose
        if isinstance(symbol, str) and rank_of(each) == 3 and each.shape is not None and each.shape[1] == symbol
    )


def plain_front(
    artifact: str, graph: GraphProto, signature: Signature, taken: tuple[Port, ...], vocabulary: int | None
) -> tuple[FrontModel | None, list[Fault]]:
    """The graph in `artifact` as what makes embeddings of tokens, and faults. taken: inputs of the decoder.

    Faults, as of PlainPorts: ambiguous-port, unclaimed-input, wrong-port.
    """
    faults: list[Fault] = []
    tokens = token_inputs(graph, signature, vocabulary)
    if len(tokens) != 1:
        names = listed(each.name for each in tokens) if tokens else "no input"
        faults.append(("ambiguous-port", "token_input", f"{names} of {artifact} could be the token ids", _DECLARE))
    for port in signature.inputs:
        if port not in tokens:
            what = f"nothing feeds the input {port.name!r} of {artifact}: {spell_port(port)}"
            faults.append(("unclaimed-input", "", what, _DECLARE))
    streams = [pair for port in taken for pair in _stream(artifact, signature, port, faults)]
    if faults:
        return None, faults
    return FrontModel(tokens[0], FrontFacts(FRONT, artifact, tuple(streams), ()), ()), []


_DECLARE = "declare the graphs in a genai_config.json of version 2, or in pipeline.models, and join them there"


def _stream(artifact: str, signature: Signature, port: Port, faults: list[Fault]) -> Iterator[tuple[Port, Port]]:
    fits = [each for each in signature.outputs if each.dtype == port.dtype and _alike(each, port)]
    named = [each for each in fits if each.name == port.name]
    if len(fits) == 1 or named:
        yield (named or fits)[0], port
        return
    names = listed(each.name for each in fits) if fits else "no output"
    what = f"the decoder's input {port.name!r} is {spell_port(port)}; {names} of {artifact} could be what it takes"
    faults.append(("ambiguous-port" if fits else "unclaimed-input", "", what, _DECLARE))


def _alike(made: Port, port: Port) -> bool:
    return rank_of(made) == rank_of(port) and (made.shape or (None,))[-1] == (port.shape or (None,))[-1]
