"""The arithmetic of the quantised blocks, against the gguf library and plain numpy products."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx_ir as ir
import pytest
from onnxscript import GraphBuilder

from tests.tools.tiny_checkpoint import affine, symmetric
from tools.smollm2.blocks import block_sum_matrix, center_matrix, offset_8bit, pack_4bit
from tools.smollm2.checkpoint import half_split_rows, stack, unpack_q4_1, unpack_q8_0
from tools.smollm2.plain_loop import open_session
from tools.smollm2.precision import Quantised
from tools.smollm2.weight_file import ALIGNMENT, WeightFile

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(("kind", "unpack"), [("Q4_1", unpack_q4_1), ("Q8_0", unpack_q8_0)])
def test_unpacked_blocks_dequantise_as_gguf_does(kind: str, unpack: Any) -> None:
    kind = gguf.GGMLQuantizationType[kind]
    raw = gguf.quants.quantize(RNG.standard_normal((6, 96)).astype(np.float32), kind)
    np.testing.assert_array_equal(unpack(raw).dequantised(), gguf.quants.dequantize(raw, kind))


def test_packed_nibbles_are_two_weights_a_byte_the_earlier_one_low() -> None:
    quants = np.arange(64, dtype=np.uint8).reshape(1, 64) % 16
    packed = pack_4bit(quants)
    assert packed.shape == (1, 2, 16)
    assert packed[0, 0, :3].tolist() == [0x10, 0x32, 0x54]


def test_offset_weights_are_around_128() -> None:
    blocks = symmetric(RNG, 4, 64)
    np.testing.assert_array_equal(offset_8bit(blocks).astype(int) - 128, blocks.quants)


def test_half_split_order_gathers_even_rows_of_each_head_first() -> None:
    assert half_split_rows(2, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_the_block_sum_correction_is_exact_in_integers() -> None:
    # Integer scales, minima and inputs make every product and sum exact, so the identity must hold bit for bit.
    blocks = affine(RNG, 5, 96)
    blocks = type(blocks)(blocks.quants, np.rint(blocks.scale * 99), np.rint(blocks.minimum * 99))
    x = RNG.integers(-9, 10, (3, 96)).astype(np.float32)
    symmetric_part = np.repeat(blocks.scale, 32, axis=1) * (blocks.quants.astype(np.float32) - 8)
    corrected = x @ symmetric_part.T + (x @ block_sum_matrix(96)) @ center_matrix(blocks)
    np.testing.assert_array_equal(corrected, x @ blocks.dequantised().T)


def test_stacked_matrices_give_both_products() -> None:
    first, second = affine(RNG, 3, 64), affine(RNG, 2, 64)
    expected = np.concatenate([first.dequantised(), second.dequantised()])
    np.testing.assert_array_equal(stack(first, second).dequantised(), expected)


def project(folder: Path, x: Any, matrix: Any, *, twice: bool) -> Any:
    """Run one projection of the quantised precision in onnxruntime."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 21, "com.microsoft": 1}, name="one")
    builder = GraphBuilder(graph)
    with WeightFile(folder / "one.data") as weights:
        port = builder.input("x", ir.DataType.FLOAT, list(x.shape))
        y = Quantised(builder, weights).project(port, matrix, "matrix", twice=twice)
    y.type = ir.TensorType(ir.DataType.FLOAT)
    builder.add_output(y, "y")
    ir.save(ir.Model(graph, ir_version=10), folder / "one.onnx")
    return open_session(folder / "one.onnx").run(None, {"x": x})[0]


@pytest.mark.parametrize(("twice", "tolerance"), [(False, 1e-6), (True, 2e-4)])
@pytest.mark.parametrize("length", [1, 7])
def test_projections_equal_the_dequantised_product(tmp_path: Path, length: int, twice: bool, tolerance: float) -> None:
    matrix = affine(RNG, 48, 96)
    x = RNG.standard_normal((2, length, 96)).astype(np.float32)
    expected = x.astype(np.float64) @ matrix.dequantised().astype(np.float64).T
    got = project(tmp_path, x, matrix, twice=twice)
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


def test_aliases_name_the_same_bytes_and_regions_are_aligned(tmp_path: Path) -> None:
    with WeightFile(tmp_path / "w.data") as weights:
        weights.append("first", np.ones(3, np.float32))
        second = weights.append("second", np.arange(8, dtype=np.uint8))
        alias = weights.alias("again", second, (2, 4))
    assert second.offset == ALIGNMENT
    assert (alias.offset, alias.length) == (second.offset, second.length)
    np.testing.assert_array_equal(alias.numpy(), np.arange(8).reshape(2, 4))
