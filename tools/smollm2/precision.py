"""How the decoder graph multiplies by the checkpoint's matrices: as they are quantised, or dequantised to float32."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir
from onnxscript import GraphBuilder

from tools.smollm2.blocks import MIDDLE_4BIT, block_sum_matrix, center_matrix, offset_8bit, pack_4bit
from tools.smollm2.checkpoint import BLOCK, AffineBlocks, SymmetricBlocks
from tools.smollm2.weight_file import WeightFile

MICROSOFT = "com.microsoft"

FLOAT32_ACTIVATIONS = 1  # MatMulNBits accuracy levels; which product takes which is measured in decision 0002
INT8_ACTIVATIONS = 4


class Precision(Protocol):
    """One instance serves one graph."""

    def embed(self, input_ids: ir.Value, table: SymmetricBlocks) -> ir.Value:
        """int64 [batch, sequence] -> float32 [batch, sequence, hidden]."""
        ...

    def project(self, x: ir.Value, matrix: AffineBlocks, name: str, *, twice: bool = False) -> ir.Value:
        """float32 [batch, sequence, columns] -> [batch, sequence, rows]; `twice` permits two int8 passes."""
        ...

    def head(self, x: ir.Value, table: SymmetricBlocks) -> ir.Value:
        """float32 [batch, sequence, hidden] -> [batch, sequence, vocabulary]; called after `embed`."""
        ...


@dataclass
class Float:
    """The dequantised weights in float32: the form that other forms are measured against."""

    builder: GraphBuilder
    weights: WeightFile

    def embed(self, input_ids: ir.Value, table: SymmetricBlocks) -> ir.Value:
        tensor = self.weights.append("embedding.weight", table.dequantised())
        return self.builder.op.Gather(self.builder.initializer(tensor), input_ids)

    def project(self, x: ir.Value, matrix: AffineBlocks, name: str, *, twice: bool = False) -> ir.Value:
        tensor = self.weights.append(f"{name}.weight", matrix.dequantised().T)
        return self.builder.op.MatMul(x, self.builder.initializer(tensor))

    def head(self, x: ir.Value, table: SymmetricBlocks) -> ir.Value:
        # A transposed copy: onnxruntime would make the same one at load from a Transpose of the embedding.
        tensor = self.weights.append("head.weight", table.dequantised().T)
        return self.builder.op.MatMul(x, self.builder.initializer(tensor))


@dataclass(frozen=True)
class SharedTable:
    """The embedding's regions in the weight file: uint8 [vocabulary, hidden] and its block scales."""

    quants: ir.ExternalTensor
    scale: ir.ExternalTensor


@dataclass(frozen=True)
class Blocks:
    """Operands of one MatMulNBits: weights [rows, columns] in blocks of 32 with the middle as zero point."""

    quants: ir.ExternalTensor
    scale: ir.ExternalTensor
    rows: int
    columns: int
    bits: int


@dataclass
class Quantised:
    """The checkpoint's own blocks: 4-bit products with the block-sum correction, one 8-bit table for both ends."""

    builder: GraphBuilder
    weights: WeightFile
    table: SharedTable | None = None

    def embed(self, input_ids: ir.Value, table: SymmetricBlocks) -> ir.Value:
        self.table = SharedTable(
            self.weights.append("embedding.quants", offset_8bit(table)),
            self.weights.append("embedding.scale", table.scale),
        )
        return self.builder.opset(MICROSOFT).GatherBlockQuantized(
            self._constant(self.table.quants),
            input_ids,
            self._constant(self.table.scale),
            gather_axis=0,
            quantize_axis=1,
            block_size=BLOCK,
            bits=8,
        )

    def project(self, x: ir.Value, matrix: AffineBlocks, name: str, *, twice: bool = False) -> ir.Value:
        op = self.builder.op
        blocks = Blocks(
            self.weights.append(f"{name}.quants", pack_4bit(matrix.quants)),
            self.weights.append(f"{name}.scale", matrix.scale.reshape(-1)),
            rows=matrix.quants.shape[0],
            columns=matrix.quants.shape[1],
            bits=4,
        )
        product = self._in_two_passes(x, blocks) if twice else self._product(x, blocks, FLOAT32_ACTIVATIONS)
        sums = op.MatMul(x, self._block_sums(blocks.columns))
        centers = self.weights.append(f"{name}.centers", center_matrix(matrix))
        return op.Add(product, op.MatMul(sums, self._constant(centers)))

    def head(self, x: ir.Value, table: SymmetricBlocks) -> ir.Value:
        assert self.table is not None
        rows, columns = table.quants.shape
        quants = self.weights.alias("head.quants", self.table.quants, (rows, columns // BLOCK, BLOCK))
        scale = self.weights.alias("head.scale", self.table.scale, (rows * columns // BLOCK,))
        return self._in_two_passes(x, Blocks(quants, scale, rows, columns, bits=8))

    def _in_two_passes(self, x: ir.Value, blocks: Blocks) -> ir.Value:
        """x @ blocks.T with int8 activations, once for x and once for what its rounding loses.

        The kernel rounds each block of 32 activations to int8. Its own product with an identity matrix reads the
        rounded values back, so x minus that is exactly what the first pass ignores; both passes are rows of one
        product.
        """
        op = self.builder.op
        per_block = op.Reshape(x, [0, 0, -1, BLOCK])
        lost = op.Reshape(op.Sub(per_block, self._product(per_block, self._identity(), INT8_ACTIVATIONS)), [0, 0, -1])
        both = self._product(op.Concat(x, lost, axis=0), blocks, INT8_ACTIVATIONS)
        first, second = op.Split(both, axis=0, num_outputs=2, _outputs=2)
        return op.Add(first, second)

    def _product(self, x: ir.Value, blocks: Blocks, accuracy_level: int) -> ir.Value:
        return self.builder.opset(MICROSOFT).MatMulNBits(
            x,
            self._constant(blocks.quants),
            self._constant(blocks.scale),
            N=blocks.rows,
            K=blocks.columns,
            bits=blocks.bits,
            block_size=BLOCK,
            accuracy_level=accuracy_level,
        )

    def _identity(self) -> Blocks:
        known = self.builder.graph.initializers
        if "identity.quants" not in known:
            ones = (np.eye(BLOCK) + MIDDLE_4BIT).astype(np.uint8)
            self._constant(self.weights.append("identity.quants", pack_4bit(ones)))
            self._constant(self.weights.append("identity.scale", np.ones(BLOCK, np.float32)))
        quants, scale = (known[f"identity.{part}"].const_value for part in ("quants", "scale"))
        assert isinstance(quants, ir.ExternalTensor)
        assert isinstance(scale, ir.ExternalTensor)
        return Blocks(quants, scale, BLOCK, BLOCK, bits=4)

    def _block_sums(self, columns: int) -> ir.Value:
        name = f"block_sums.{columns}"
        known = self.builder.graph.initializers
        return known[name] if name in known else self._constant(self.weights.append(name, block_sum_matrix(columns)))

    def _constant(self, tensor: ir.ExternalTensor) -> ir.Value:
        assert tensor.name is not None
        known = self.builder.graph.initializers.get(tensor.name)
        return self.builder.initializer(tensor) if known is None else known
