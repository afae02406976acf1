"""Read the GGUF checkpoint: typed configuration, weights still in their quantised blocks, and the tokenizer's raw data.

Sources: the GGUF specification (key/value names, reversed shapes) and ggml's `block_q4_1` and `block_q8_0`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

BLOCK = 32  # weights that share one scale, in both block types


@dataclass(frozen=True)
class Config:
    """Shape facts of the decoder, all from the GGUF header (sizes in elements, lengths in tokens)."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context_length: int
    rope_base: float
    norm_epsilon: float


@dataclass(frozen=True)
class AffineBlocks:
    """A matrix in Q4_1 blocks along its input axis: weight = scale * quant + minimum.

    quants uint8 [rows, columns] in 0..15; scale and minimum float32 [rows, columns / 32].
    """

    quants: NDArray[np.uint8]
    scale: NDArray[np.float32]
    minimum: NDArray[np.float32]

    def dequantised(self) -> NDArray[np.float32]:
        """float32 [rows, columns]."""
        scale, minimum = (np.repeat(part, BLOCK, axis=1) for part in (self.scale, self.minimum))
        return scale * self.quants.astype(np.float32) + minimum

    def rows(self, order: NDArray[np.int64]) -> "AffineBlocks":
        """The same matrix with its rows in another order (blocks run along columns, so nothing is lost)."""
        return AffineBlocks(self.quants[order], self.scale[order], self.minimum[order])


@dataclass(frozen=True)
class SymmetricBlocks:
    """A matrix in Q8_0 blocks: weight = scale * quant.

    quants int8 [rows, columns]; scale float32 [rows, columns / 32].
    """

    quants: NDArray[np.int8]
    scale: NDArray[np.float32]

    def dequantised(self) -> NDArray[np.float32]:
        """float32 [rows, columns]."""
        return np.repeat(self.scale, BLOCK, axis=1) * self.quants.astype(np.float32)


@dataclass(frozen=True)
class Layer:
    """One decoder layer; projections are [outputs, inputs], norms float32 [hidden].

    `qkv` stacks query, key and value rows and `gate_up` stacks gate and up rows: each pair of matrices reads the
    same input, so one product serves both. Query and key rows are in half-split rotary order.
    """

    attention_norm: NDArray[np.float32]
    qkv: AffineBlocks
    attention_output: AffineBlocks
    feed_forward_norm: NDArray[np.float32]
    gate_up: AffineBlocks
    down: AffineBlocks


@dataclass(frozen=True)
class Vocabulary:
    """The GGUF's tokenizer data. `kinds` holds ggml token types (3 = control)."""

    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    merges: tuple[str, ...]
    bos: int
    eos: int
    unknown: int
    padding: int
    chat_template: str


@dataclass(frozen=True)
class Checkpoint:
    """Everything the package is made of. The output head is the embedding matrix (tied)."""

    config: Config
    vocabulary: Vocabulary
    embedding: SymmetricBlocks
    layers: tuple[Layer, ...]
    final_norm: NDArray[np.float32]


def unpack_q4_1(data: NDArray[np.uint8]) -> AffineBlocks:
    """Split raw Q4_1 rows, uint8 [rows, blocks * 20], into quants, scales and minima.

    A block is two float16 (scale, minimum) and 16 bytes; byte i holds weight i low and weight i + 16 high.
    """
    blocks = data.reshape(data.shape[0], -1, 20)
    halves = np.ascontiguousarray(blocks[:, :, :4]).view(np.float16).astype(np.float32)
    packed = blocks[:, :, 4:]
    quants = np.concatenate([packed & 0x0F, packed >> 4], axis=2).reshape(data.shape[0], -1)
    return AffineBlocks(quants, halves[:, :, 0].copy(), halves[:, :, 1].copy())


def unpack_q8_0(data: NDArray[np.uint8]) -> SymmetricBlocks:
    """Split raw Q8_0 rows, uint8 [rows, blocks * 34]: a float16 scale, then 32 int8 weights."""
    blocks = data.reshape(data.shape[0], -1, 34)
    scale = np.ascontiguousarray(blocks[:, :, :2]).view(np.float16)[:, :, 0].astype(np.float32)
    quants = np.ascontiguousarray(blocks[:, :, 2:]).view(np.int8).reshape(data.shape[0], -1)
    return SymmetricBlocks(quants, scale)


def half_split_rows(heads: int, head_size: int) -> NDArray[np.int64]:
    """Row order that undoes GGUF's rotary permutation: even rows of each head first, then odd ones.

    GGUF stores rotary pairs side by side (2i, 2i + 1); GroupQueryAttention pairs i with i + head_size / 2.
    """
    order = np.arange(heads * head_size).reshape(heads, head_size // 2, 2)
    return order.swapaxes(1, 2).reshape(-1)


def stack(*parts: AffineBlocks) -> AffineBlocks:
    """Matrices with the same inputs, stacked along their output rows."""
    quants = np.concatenate([part.quants for part in parts])
    scale = np.concatenate([part.scale for part in parts])
    return AffineBlocks(quants, scale, np.concatenate([part.minimum for part in parts]))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read `path`, a GGUF file with Q4_1 projections, a Q8_0 embedding, float32 norms and a tied head.

    Raises:
        ValueError: a tensor has another block type than the package is designed for, or there is an own head.
    """
    reader = gguf.GGUFReader(str(path))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "output.weight" in tensors:
        raise ValueError(f"{path.name}: an output head of its own; this tool ties head and embedding")
    config = _config(fields)
    layers = tuple(_layer(tensors, f"blk.{index}", config) for index in range(config.layers))
    embedding = unpack_q8_0(_raw(tensors, "token_embd.weight", "Q8_0"))
    return Checkpoint(config, _vocabulary(fields), embedding, layers, _norm(tensors, "output_norm"))


def _config(fields: dict[str, Any]) -> Config:
    def value(key: str) -> Any:
        return fields[f"{fields['general.architecture']}.{key}"]

    return Config(
        layers=value("block_count"),
        hidden=value("embedding_length"),
        feed_forward=value("feed_forward_length"),
        heads=value("attention.head_count"),
        kv_heads=value("attention.head_count_kv"),
        head_size=value("rope.dimension_count"),
        vocabulary=value("vocab_size"),
        context_length=value("context_length"),
        rope_base=float(value("rope.freq_base")),
        norm_epsilon=float(value("attention.layer_norm_rms_epsilon")),
    )


def _vocabulary(fields: dict[str, Any]) -> Vocabulary:
    return Vocabulary(
        tokens=tuple(fields["tokenizer.ggml.tokens"]),
        kinds=tuple(fields["tokenizer.ggml.token_type"]),
        merges=tuple(fields["tokenizer.ggml.merges"]),
        bos=fields["tokenizer.ggml.bos_token_id"],
        eos=fields["tokenizer.ggml.eos_token_id"],
        unknown=fields["tokenizer.ggml.unknown_token_id"],
        padding=fields["tokenizer.ggml.padding_token_id"],
        chat_template=fields["tokenizer.chat_template"],
    )


def _layer(tensors: dict[str, Any], prefix: str, config: Config) -> Layer:
    def matrix(name: str) -> AffineBlocks:
        return unpack_q4_1(_raw(tensors, f"{prefix}.{name}.weight", "Q4_1"))

    query = matrix("attn_q").rows(half_split_rows(config.heads, config.head_size))
    key = matrix("attn_k").rows(half_split_rows(config.kv_heads, config.head_size))
    return Layer(
        attention_norm=_norm(tensors, f"{prefix}.attn_norm"),
        qkv=stack(query, key, matrix("attn_v")),
        attention_output=matrix("attn_output"),
        feed_forward_norm=_norm(tensors, f"{prefix}.ffn_norm"),
        gate_up=stack(matrix("ffn_gate"), matrix("ffn_up")),
        down=matrix("ffn_down"),
    )


def _norm(tensors: dict[str, Any], name: str) -> NDArray[np.float32]:
    tensor = tensors[f"{name}.weight"]
    return np.array(tensor.data, dtype=np.float32).reshape(-1)


def _raw(tensors: dict[str, Any], name: str, kind: str) -> NDArray[np.uint8]:
    tensor = tensors[name]
    if tensor.tensor_type.name != kind:
        raise ValueError(f"{name} is {tensor.tensor_type.name}; this tool reads {kind} here")
    return np.asarray(tensor.data, dtype=np.uint8)
