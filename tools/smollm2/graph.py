"""The decoder as an ONNX graph, authored with onnxscript's graph builder.

    input_ids int64 [batch, sequence], attention_mask int64 [batch, total_sequence],
    past_key_values.N.{key,value} float32 [batch, kv_heads, past_sequence, head_size]
        -> logits float32 [batch, sequence, vocabulary], present.N.{key,value}

Rows are padded on the right: the mask only says how many tokens of each row are valid, counted from position 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnxscript import GraphBuilder

from tools.smollm2.checkpoint import Checkpoint, Layer
from tools.smollm2.precision import MICROSOFT, Float, Precision, Quantised
from tools.smollm2.weight_file import WeightFile

OPSET = 21
IR_VERSION = 10


def build_decoder(checkpoint: Checkpoint, weights: WeightFile, make: type[Float] | type[Quantised]) -> ir.Model:
    """The whole decoder in one precision; its initializers lie in `weights`, to be kept beside the graph."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET, MICROSOFT: 1}, name="decoder")
    builder = GraphBuilder(graph)
    Decoder(builder, weights, checkpoint, make(builder, weights)).build()
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="genai-compile tools.smollm2")


@dataclass
class Decoder:
    """One graph in the making."""

    builder: GraphBuilder
    weights: WeightFile
    checkpoint: Checkpoint
    maths: Precision

    def build(self) -> None:
        config = self.checkpoint.config
        input_ids = self._input("input_ids", ir.DataType.INT64, ["batch", "sequence"])
        mask = self._input("attention_mask", ir.DataType.INT64, ["batch", "total_sequence"])
        past = [self._state("past_key_values", "past_sequence", index) for index in range(config.layers)]
        lengths = self._lengths(input_ids, mask)
        caches = self._rotary_caches()
        residual = self.maths.embed(input_ids, self.checkpoint.embedding)
        x = self._norm(residual, self.checkpoint.layers[0].attention_norm, "layers.0.attention_norm")
        presents = []
        for index, layer in enumerate(self.checkpoint.layers):
            attended, present = self._attention(x, layer, index, past[index], (*lengths, *caches))
            presents.append(present)
            x, residual = self._skip_norm(
                attended, residual, layer.feed_forward_norm, f"layers.{index}.feed_forward_norm"
            )
            fed = self._feed_forward(x, layer, index)
            after = index + 1
            last = after == config.layers
            weight = self.checkpoint.final_norm if last else self.checkpoint.layers[after].attention_norm
            x, residual = self._skip_norm(
                fed, residual, weight, "final_norm" if last else f"layers.{after}.attention_norm"
            )
        logits = self.maths.head(x, self.checkpoint.embedding)
        self._output(logits, "logits", ["batch", "sequence", config.vocabulary])
        for index, pair in enumerate(presents):
            for value, part in zip(pair, ("key", "value"), strict=True):
                shape: list[int | str] = ["batch", config.kv_heads, "present_sequence", config.head_size]
                self._output(value, f"present.{index}.{part}", shape)

    def _lengths(self, input_ids: ir.Value, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
        """int32 [batch] last valid position, and int32 [] length of the longest row.

        The operator takes a call for a first prompt only when that length equals the sequence length, and positions
        start at 0 only then. So it comes from the mask's contents, not from its width, which may be a whole buffer;
        and it is never below the sequence length, for prompts padded beyond their longest row.
        """
        op = self.builder.op
        valid = op.ReduceSum(mask, [1], keepdims=0)
        last = op.Cast(op.Sub(valid, [1]), to=ir.DataType.INT32)
        sequence = op.Shape(input_ids, start=1, end=2)
        longest = op.Max(op.ReduceMax(valid, [0], keepdims=1), sequence)
        return last, op.Cast(longest, to=ir.DataType.INT32)

    def _rotary_caches(self) -> tuple[ir.Value, ir.Value]:
        config = self.checkpoint.config
        exponents = np.arange(0, config.head_size, 2, dtype=np.float64) / config.head_size
        angles = np.outer(np.arange(config.context_length), config.rope_base**-exponents)
        cos = self.weights.append("rotary.cos", np.cos(angles).astype(np.float32))
        sin = self.weights.append("rotary.sin", np.sin(angles).astype(np.float32))
        return self.builder.initializer(cos), self.builder.initializer(sin)

    def _attention(
        self, x: ir.Value, layer: Layer, index: int, past: tuple[ir.Value, ir.Value], rest: Sequence[ir.Value]
    ) -> tuple[ir.Value, tuple[ir.Value, ir.Value]]:
        config = self.checkpoint.config
        qkv = self.maths.project(x, layer.qkv, f"layers.{index}.qkv")
        context, key, value = self.builder.opset(MICROSOFT).GroupQueryAttention(
            qkv,
            None,
            None,
            *past,
            *rest,
            num_heads=config.heads,
            kv_num_heads=config.kv_heads,
            scale=config.head_size**-0.5,
            do_rotary=1,
            rotary_interleaved=0,
            _outputs=3,
        )
        return self.maths.project(context, layer.attention_output, f"layers.{index}.attention_output"), (key, value)

    def _feed_forward(self, x: ir.Value, layer: Layer, index: int) -> ir.Value:
        both = self.maths.project(x, layer.gate_up, f"layers.{index}.gate_up")
        gate, up = self.builder.op.Split(both, axis=-1, num_outputs=2, _outputs=2)
        silu = self.builder.opset(MICROSOFT).QuickGelu(gate, alpha=1.0)
        return self.maths.project(self.builder.op.Mul(silu, up), layer.down, f"layers.{index}.down", twice=True)

    def _norm(self, x: ir.Value, weight: NDArray[np.float32], name: str) -> ir.Value:
        """RMS norm in standard operators, which onnxruntime fuses: its own operator for this is not valid ONNX."""
        op = self.builder.op
        scale = self.builder.initializer(self.weights.append(name, weight))
        mean = op.ReduceMean(op.Pow(x, 2.0), [-1], keepdims=1)
        return op.Mul(op.Div(x, op.Sqrt(op.Add(mean, self.checkpoint.config.norm_epsilon))), scale)

    def _skip_norm(
        self, x: ir.Value, residual: ir.Value, weight: NDArray[np.float32], name: str
    ) -> tuple[ir.Value, ir.Value]:
        """RMS norm of x + residual, and that sum."""
        scale = self.builder.initializer(self.weights.append(name, weight))
        out = self.builder.opset(MICROSOFT).SkipSimplifiedLayerNormalization(
            x,
            residual,
            scale,
            epsilon=self.checkpoint.config.norm_epsilon,
            _outputs=[f"{name}.out", ir.Value(name=""), ir.Value(name=""), f"{name}.sum"],
        )
        return out[0], out[3]

    def _state(self, prefix: str, length: str, index: int) -> tuple[ir.Value, ir.Value]:
        config = self.checkpoint.config
        shape: list[int | str] = ["batch", config.kv_heads, length, config.head_size]
        key, value = (self._input(f"{prefix}.{index}.{part}", ir.DataType.FLOAT, shape) for part in ("key", "value"))
        return key, value

    def _input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
        return self.builder.input(name, dtype, shape)

    def _output(self, value: ir.Value, name: str, shape: Sequence[int | str]) -> None:
        value.type = ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape(shape)
        self.builder.add_output(value, name)
