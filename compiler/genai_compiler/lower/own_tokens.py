"""A decoder that takes token ids beside the embeddings that another graph makes of them: its input for the ids.

A name finds it; else the graph does: ids look into a table that has a row for every column of the logits.
"""

from collections.abc import Iterable

from onnx import GraphProto

from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.value_flow import Edges


def other_tokens(port: Port, tokens: Port) -> str:
    """Why a decoder's input is not for the token ids that go to `tokens` of the graph before it, "" where it is."""
    if port.dtype == tokens.dtype and rank_of(port) in (2, None):
        return ""
    what = f"the decoder takes {port.name!r} beside embeddings as {spell_port(port)}, and the graph that makes these "
    return f"{what}takes {tokens.name!r} as {spell_port(tokens)}; the same token ids go into both"


def looked_up(graph: GraphProto, signature: Signature, flat: Iterable[Port]) -> frozenset[str]:
    """Of integer inputs, those that look into a table with as many rows as an output has columns, and are no angles."""
    outputs = [each for each in signature.outputs if "float" in each.dtype and rank_of(each) in (2, 3) and each.shape]
    widths = {each.shape[-1] for each in outputs if each.shape and isinstance(each.shape[-1], int)}
    edges = Edges(graph)
    return frozenset(each.name for each in flat if widths & edges.table_rows(each.name) and not edges.turns(each.name))
