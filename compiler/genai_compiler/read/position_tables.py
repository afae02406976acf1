"""How many positions a decoder's graph has: the rows of its shortest table of positions."""

from onnx import ModelProto

from genai_compiler.read.own_tables import grown_rows
from genai_compiler.read.signature import Signature
from genai_compiler.read.value_flow import Edges


def table_rows(model: ModelProto, signature: Signature, positions: str, mask: str) -> int | None:
    """Rows of the shortest table of positions: of the input `positions`, or of what the graph counts by its mask, or by
    how much its caches hold.
    """
    counted = [each.most for each in signature.limits if mask and (each.input, each.axis) == (mask, 1)]
    return min(filter(None, (Edges(model.graph).position_rows(positions), *counted, grown_rows(model))), default=None)
