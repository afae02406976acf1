"""What a graph's weights and one run of it take, against arithmetic by hand on small graphs."""

import numpy as np
import pytest
from genai_compiler.read.activations import PLACES, workspace
from genai_compiler.read.kernel_scratch import Scratch, scratch
from genai_compiler.read.packing import WINDOW, weight_memory
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

CONTRIB = "com.microsoft"


def weight(name: str, *dims: int, external: bool = False, dtype: type = np.float32) -> TensorProto:
    made = numpy_helper.from_array(np.zeros(dims, dtype), name)
    if external:
        made.ClearField("raw_data")
        made.data_location = TensorProto.EXTERNAL
        made.external_data.add(key="location", value="weights.bin")
    return made


def graph(nodes: list[NodeProto], weights: list[TensorProto], ids: str = "ids", out: str = "y") -> ModelProto:
    given = [helper.make_tensor_value_info(ids, TensorProto.INT64, ["rows", "tokens"])]
    made = [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(helper.make_graph(nodes, "g", given, made, weights), opset_imports=opsets)


def layers() -> ModelProto:
    """ids -> 4 numbers a token -> 8 numbers a token -> their positive parts."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["y"]),
    ]
    return graph(nodes, [weight("table", 10, 4), weight("w", 4, 8)])


def test_values_live_until_their_last_reader_and_relu_writes_over_its_operand() -> None:
    found = workspace(layers(), {"ids": (32, 5)}, {}, {})
    assert found.peak == 32 * 5 * (4 + 8) * 4
    assert found.unknown == 0


def test_an_output_in_a_buffer_of_the_callers_costs_nothing() -> None:
    ids, y = (32, 5), (32, 5, 8)
    assert workspace(layers(), {"ids": ids}, {"y": y}, {}).peak == 32 * 5 * (4 + 8) * 4
    assert workspace(layers(), {"ids": ids}, {"y": y, "wide": y}, {}).peak == 32 * 5 * 4 * 4


def test_an_operand_that_is_read_again_is_not_written_over() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["flat"]),
        helper.make_node("Reshape", ["flat", "back"], ["b"]),
        helper.make_node("Add", ["b", "h"], ["y"]),
    ]
    shapes = [numpy_helper.from_array(np.array(each), name) for name, each in (("shape", [-1]), ("back", [32, 3, 4]))]
    assert (
        workspace(graph(nodes, [weight("table", 10, 4), *shapes]), {"ids": (32, 3)}, {}, {}).peak == 2 * 32 * 3 * 4 * 4
    )


def test_what_nothing_tells_the_size_of_is_counted_not_guessed() -> None:
    nodes = [helper.make_node("Mystery", ["ids"], ["y"], domain="nobody")]
    found = workspace(graph(nodes, []), {"ids": (3, 5)}, {}, {})
    assert (found.peak, found.unknown) == (0, 1)


def test_a_matrix_is_packed_in_panels_of_16_columns_once_a_reader() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["a"]),
        helper.make_node("MatMul", ["h", "w"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    found = weight_memory(graph(nodes, [weight("table", 10, 4), weight("w", 4, 18)]))
    assert found.packed == 2 * 4 * 32 * 4
    assert found.inside == 10 * 4 * 4
    assert found.source == 4 * 18 * 4
    assert found.loaded == found.packed + found.inside


@pytest.mark.parametrize(("level", "packed"), [(1, 32 * 2 * 16), (4, 32 * 2 * 16 + 4 * 2 * (32 + 32))])
def test_quants_are_packed_with_scales_and_sums_where_products_are_integers(level: int, packed: int) -> None:
    """N = 32, K = 64, blocks of 32 numbers of four bits: two blocks a column."""
    kind = {"N": 32, "K": 64, "bits": 4, "block_size": 32, "accuracy_level": level}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["h"]),
        helper.make_node("MatMulNBits", ["h", "quants", "scale"], ["y"], domain=CONTRIB, **kind),
    ]
    quants, scale = weight("quants", 32, 2, 16, external=True, dtype=np.uint8), weight("scale", 64, external=True)
    found = weight_memory(graph(nodes, [weight("table", 10, 64), quants, scale]))
    assert found.packed == packed
    assert found.mapped == 64 * 4
    assert found.early == (64 * 4 if level == 4 else 0)


def test_of_a_table_in_a_file_only_the_pages_around_read_rows_are_in_memory() -> None:
    table = weight("table", 100 * WINDOW // 16, 4, external=True)
    found = weight_memory(graph([helper.make_node("Gather", ["table", "ids"], ["y"])], [table]))
    assert found.loaded == 0
    assert found.gathered(1, 1) == WINDOW
    assert WINDOW < found.gathered(2, 1) <= 2 * WINDOW
    assert found.gathered(1_000_000, 1) == 100 * WINDOW


def grouped(**attributes: float) -> NodeProto:
    return helper.make_node(
        "GroupQueryAttention",
        ["qkv", "", "", "pk", "pv", "n", "t"],
        ["o", "k", "v"],
        domain=CONTRIB,
        num_heads=6,
        **attributes,
    )


def test_grouped_attention_keeps_projections_twice_and_scores_only_for_a_step() -> None:
    """2 rows, 6 heads, a buffer of 40; query, key and value lie together, 10 heads of 8; a position has 8 bytes."""
    cache = {"pk": (2, 2, 40, 8), "pv": (2, 2, 40, 8)}
    prompt, step = ({"qkv": (2, new, 80), **cache} for new in (5, 1))
    assert scratch(grouped(softcap=0.0), prompt).arena == (4 * 2 * 5 * 80, 8 * 2 * 5, 4 * 2 * 5 * 80, 0)
    assert scratch(grouped(), step).arena == (4 * 2 * 80, 8 * 2, 4 * 2 * 80, 4 * 2 * 6 * 40)
    assert scratch(grouped(softcap=50.0), prompt).arena[-1] == 4 * 2 * 6 * 5 * 40
    assert scratch(grouped(), {"qkv": (2, 5, None)}) == Scratch()


def test_storage_that_another_value_takes_later_stays_in_use_between_the_two() -> None:
    """a and c have one shape: a's storage waits for c, so that b, which is smaller, has its own all the same."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["a"]),
        helper.make_node("MatMul", ["a", "4to8"], ["wide"]),
        helper.make_node("MatMul", ["wide", "8to2"], ["b"]),
        helper.make_node("MatMul", ["b", "2to4"], ["c"]),
        helper.make_node("MatMul", ["c", "4to8"], ["y"]),
    ]
    weights = [weight("table", 10, 4), weight("4to8", 4, 8), weight("8to2", 8, 2), weight("2to4", 2, 4)]
    made = graph(nodes, weights)
    untold = workspace(made, {"ids": (64, 4)}, {"y": (64, 4, 8)}, {})
    assert untold.peak == 64 * 4 * (4 + 8) * 4, "b where a was, c where the wide one was"
    for name in ("a", "c"):
        told = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "tokens", 4])
        made.graph.value_info.append(told)
    assert workspace(made, {"ids": (64, 4)}, {"y": (64, 4, 8)}, {}).peak == 64 * 4 * (4 + 8 + 2) * 4


def test_the_other_operand_of_integer_products_lies_beside_the_arena() -> None:
    """A byte a number and 8 bytes a block of 32; found anew in so many places."""
    kind = {"N": 32, "K": 64, "bits": 4, "block_size": 32, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["h", "quants", "scale"], ["y"], domain=CONTRIB, **kind)
    assert scratch(node, {"h": (16, 8, 64)}) == Scratch(outside=16 * 8 * (64 + 2 * 8))
    nodes = [helper.make_node("Gather", ["table", "ids"], ["h"]), node]
    weights = [weight("table", 10, 64), weight("quants", 32, 2, 16, dtype=np.uint8), weight("scale", 64)]
    found = workspace(graph(nodes, weights), {"ids": (16, 8)}, {"y": (16, 8, 32)}, {})
    assert found.peak == 16 * 8 * 64 * 4 + PLACES * 16 * 8 * (64 + 2 * 8)


def test_senseless_attributes_make_no_failure() -> None:
    """Such a graph is refused when it is opened; a prediction only must not fall over it."""
    nodes = [
        helper.make_node("GatherBlockQuantized", ["table", "ids", "scale"], ["h"], domain=CONTRIB, bits=0),
        helper.make_node("MatMulNBits", ["h", "q", "scale"], ["y"], domain=CONTRIB, N=0, K=-4, block_size=0, bits=-1),
        helper.make_node("GroupQueryAttention", ["y", "", "", "p", "p"], [], domain=CONTRIB),
    ]
    weights = [weight("table", 10, 4, dtype=np.uint8), weight("scale", 10), weight("q", 2, 2, dtype=np.uint8)]
    made = graph(nodes, weights)
    assert weight_memory(made).inside >= 40
    assert workspace(made, {"ids": (3, 5), "p": (1, 2, 3, 4)}, {}, {}).peak >= 0
