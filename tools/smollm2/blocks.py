"""Block-quantised matrices in the layout of ONNX Runtime's MatMulNBits and GatherBlockQuantized.

Q4_1 weights are w = d * q + m with a float minimum m per block. MatMulNBits computes d * (q - 8) when it has no zero
points, and has a slow path only for float ones. So the product is split, exactly:

    x @ w.T = x @ (d * (q - 8)).T + blocksum(x) @ (m + 8 * d).T        docs/decisions/0002-block-sum-correction.md

where blocksum(x)[b] is the sum of x over block b.
"""

import numpy as np
from numpy.typing import NDArray

from tools.smollm2.checkpoint import BLOCK, AffineBlocks, SymmetricBlocks

MIDDLE_4BIT = 8
MIDDLE_8BIT = 128


def pack_4bit(quants: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 [rows, columns] in 0..15 -> uint8 [rows, columns / 32, 16]; byte i is weight 2i low, 2i + 1 high.

    Source: com.microsoft.MatMulNBits, input B.
    """
    pairs = quants.reshape(quants.shape[0], -1, BLOCK // 2, 2)
    packed: NDArray[np.uint8] = np.bitwise_or(pairs[..., 0], np.left_shift(pairs[..., 1], np.uint8(4)))
    return packed


def center_matrix(blocks: AffineBlocks) -> NDArray[np.float32]:
    """float32 [columns / 32, rows]: what each block adds per unit of its inputs' sum, m + 8 * d, transposed."""
    return np.ascontiguousarray((blocks.minimum + MIDDLE_4BIT * blocks.scale).T)


def block_sum_matrix(columns: int) -> NDArray[np.float32]:
    """float32 [columns, columns / 32] of zeros and ones: x @ it sums x over each block of 32."""
    return np.repeat(np.eye(columns // BLOCK, dtype=np.float32), BLOCK, axis=0)


def offset_8bit(blocks: SymmetricBlocks) -> NDArray[np.uint8]:
    """int8 weights as uint8 around 128, the default zero point of both 8-bit operators: uint8 [rows, columns]."""
    return (blocks.quants.astype(np.int16) + MIDDLE_8BIT).astype(np.uint8)
