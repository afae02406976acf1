"""Heads and head sizes that an attention operator tells by its attributes and by the width of what it takes."""

import pytest
from genai_compiler.read.cache_sizes import CacheSize, cache_sizes
from onnx import ModelProto, TensorProto, helper


def model(keys: str, heads: int, kv_heads: int, **widths: int) -> ModelProto:
    """GroupQueryAttention over values of these widths."""
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", keys, "v" if keys else "", "past.key", "past.value"],
        ["y", "present.key", "present.value"],
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=kv_heads,
    )
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "s", width]) for name, width in widths.items()
    ]
    return helper.make_model(helper.make_graph([node], "g", [], [], value_info=values))


@pytest.mark.parametrize(
    ("keys", "widths", "wanted"),
    [
        ("k", {"q": 64, "k": 32}, CacheSize(2, 16)),  # 2 heads of 16
        ("", {"q": 128}, CacheSize(2, 16)),  # 4 heads of queries, 2 of keys, 2 of values
        ("", {"q": 129}, None),
        ("k", {"q": 64}, None),
    ],
)
def test_the_width_is_shared_by_the_heads(keys: str, widths: dict[str, int], wanted: CacheSize | None) -> None:
    assert cache_sizes(model(keys, 4, 2, **widths)) == ({} if wanted is None else {"past.key": wanted})


@pytest.mark.parametrize(("heads", "kv_heads"), [(0, 2), (4, 0), (4, -1)])
def test_an_operator_without_heads_tells_nothing(heads: int, kv_heads: int) -> None:
    assert cache_sizes(model("k", heads, kv_heads, q=64, k=32)) == {}
