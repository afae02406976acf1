"""How many positions a decoder's graph has: the rows of its shortest table of positions."""

from onnx import ModelProto

from genai_compiler.read.own_tables import grown_rows, shifted_rows
from genai_compiler.read.signature import Signature
from genai_compiler.read.value_flow import Edges


def table_rows(model: ModelProto, signature: Signature, positions: str, mask: str) -> int | None:
    """Rows of the shortest table of positions: of the input `positions`, also with a number added to it, or of what
    the graph counts by its mask, or by how much its caches hold.
    """
    counted = [each.most for each in signature.limits if mask and (each.input, each.axis) == (mask, 1)]
    stated = [Edges(model.graph).position_rows(positions), shifted_rows(model, positions) if positions else None]
    return min(filter(None, (*stated, *counted, grown_rows(model))), default=None)
