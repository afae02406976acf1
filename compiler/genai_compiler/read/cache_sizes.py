"""Heads and head size of an attention cache, from the operator that fills it, where its ports leave them open.

GroupQueryAttention and its kin state their heads (onnxruntime ContribOperators.md: num_heads, kv_num_heads) and take
queries, keys and values as [batch, sequence, heads * size], or all three in one: the declared width tells the size.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto

_QUERY, _KEY, _PAST = 0, 1, 3
_OPERATORS = frozenset({("com.microsoft", "GroupQueryAttention"), ("com.microsoft", "PagedAttention")})


@dataclass(frozen=True)
class CacheSize:
    """heads: of keys and values. head_size: elements of one of them."""

    heads: int
    head_size: int


def cache_sizes(model: ModelProto) -> Mapping[str, CacheSize]:
    """Input for past keys -> its size, for the operators that tell it."""
    widths = _widths(model.graph)
    sizes = {node.input[_PAST]: _size(node, widths) for node in model.graph.node if _fills_a_cache(node)}
    return {name: size for name, size in sizes.items() if name and size is not None}


def _fills_a_cache(node: NodeProto) -> bool:
    return (node.domain, node.op_type) in _OPERATORS and len(node.input) > _PAST


def _size(node: NodeProto, widths: Mapping[str, int]) -> CacheSize | None:
    numbers = {each.name: each.i for each in node.attribute}
    heads, queries = numbers.get("kv_num_heads", 0), numbers.get("num_heads", 0)
    packed = not node.input[_KEY]
    width = widths.get(node.input[_QUERY if packed else _KEY], 0)
    parts = queries + 2 * heads if packed else heads
    if heads <= 0 or queries <= 0 or width <= 0 or width % parts:
        return None
    return CacheSize(heads, width // parts)


def _widths(graph: GraphProto) -> Mapping[str, int]:
    """The last extent of every value that the graph declares with a number there."""
    found: dict[str, int] = {}
    for value in (*graph.value_info, *graph.input):
        extents = value.type.tensor_type.shape.dim
        if extents and extents[-1].dim_value > 0:
            found[value.name] = extents[-1].dim_value
    return found
