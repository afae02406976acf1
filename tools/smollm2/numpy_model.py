"""The network in plain numpy, from the dequantised weights: an independent route to the logits.

It shares the checkpoint reader with the graph's author, and nothing else. Sources: RMSNorm (Zhang, Sennrich 2019),
rotary embedding with half-split pairs (Su et al. 2021), grouped-query attention (Ainslie et al. 2023), SwiGLU (Shazeer
2020).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tools.smollm2.checkpoint import Checkpoint, Config, Layer

Array = NDArray[np.float32]


def logits(checkpoint: Checkpoint, ids: Sequence[int]) -> Array:
    """float32 [len(ids), vocabulary]: the logits at each position of one unpadded row, no cache involved."""
    config = checkpoint.config
    table = checkpoint.embedding.dequantised()
    x = table[np.asarray(ids)]
    cos, sin = _rotation(len(ids), config)
    for layer in checkpoint.layers:
        x = x + _attention(_norm(x, layer.attention_norm, config), layer, config, cos, sin)
        x = x + _feed_forward(_norm(x, layer.feed_forward_norm, config), layer)
    result: Array = _norm(x, checkpoint.final_norm, config) @ table.T
    return result


def _norm(x: Array, weight: Array, config: Config) -> Array:
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    result: Array = x / np.sqrt(mean + np.float32(config.norm_epsilon)) * weight
    return result


def _rotation(length: int, config: Config) -> tuple[Array, Array]:
    """cos and sin, float32 [length, 1, head_size / 2], of position times each pair's frequency."""
    frequency = config.rope_base ** (-np.arange(config.head_size // 2) / (config.head_size // 2))
    angles = (np.arange(length)[:, None] * frequency)[:, None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _rotate(heads: Array, cos: Array, sin: Array) -> Array:
    """float32 [length, heads, head_size] with the pairs (i, i + head_size / 2) turned."""
    first, second = np.split(heads, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _attention(x: Array, layer: Layer, config: Config, cos: Array, sin: Array) -> Array:
    length = x.shape[0]
    projected = x @ layer.qkv.dequantised().T
    split = [config.heads * config.head_size, (config.heads + config.kv_heads) * config.head_size]
    query, key, value = (part.reshape(length, -1, config.head_size) for part in np.split(projected, split, axis=1))
    group = config.heads // config.kv_heads
    query = _rotate(query, cos, sin).swapaxes(0, 1)
    key = np.repeat(_rotate(key, cos, sin), group, axis=1).swapaxes(0, 1)
    value = np.repeat(value, group, axis=1).swapaxes(0, 1)
    scores = query @ key.swapaxes(1, 2) / np.sqrt(np.float32(config.head_size))
    scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    context = (weights @ value).swapaxes(0, 1).reshape(length, -1)
    result: Array = context @ layer.attention_output.dequantised().T
    return result


def _feed_forward(x: Array, layer: Layer) -> Array:
    gate, up = np.split(x @ layer.gate_up.dequantised().T, 2, axis=-1)
    result: Array = (gate / (1 + np.exp(-gate)) * up) @ layer.down.dequantised().T
    return result
