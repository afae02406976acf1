"""A random checkpoint of the same make as the real one, small enough for every test run."""

import numpy as np

from tools.smollm2.checkpoint import AffineBlocks, Checkpoint, Config, Layer, SymmetricBlocks, Vocabulary

CONFIG = Config(
    layers=2,
    hidden=64,
    feed_forward=96,
    heads=4,
    kv_heads=2,
    head_size=16,
    vocabulary=96,
    context_length=128,
    rope_base=10000.0,
    norm_epsilon=1e-5,
)
TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "1", "2", "a", "b", "Ġ", "ab", "Ġab")
VOCABULARY = Vocabulary(
    tokens=TOKENS,
    kinds=(3, 3, 3, 1, 1, 1, 1, 1, 1, 1),
    merges=("a b", "Ġ ab"),
    bos=1,
    eos=2,
    unknown=0,
    padding=2,
    chat_template="{{ messages[0]['content'] }}",
)


def affine(rng: np.random.Generator, rows: int, columns: int) -> AffineBlocks:
    """Q4_1-like blocks with weights of about unit size over the square root of the inputs."""
    size = 2 / np.sqrt(columns)
    scale = rng.uniform(0.05, 0.15, (rows, columns // 32)).astype(np.float32) * np.float32(size)
    minimum = (-rng.uniform(6, 9, scale.shape) * scale).astype(np.float32)
    return AffineBlocks(rng.integers(0, 16, (rows, columns)).astype(np.uint8), scale, minimum)


def symmetric(rng: np.random.Generator, rows: int, columns: int) -> SymmetricBlocks:
    """Q8_0-like blocks with weights of about unit size."""
    scale = rng.uniform(0.005, 0.02, (rows, columns // 32)).astype(np.float32)
    return SymmetricBlocks(rng.integers(-127, 128, (rows, columns)).astype(np.int8), scale)


def tiny_checkpoint(seed: int = 0) -> Checkpoint:
    """Two layers with the shapes of CONFIG."""
    rng = np.random.default_rng(seed)
    heads, kv_heads = CONFIG.heads * CONFIG.head_size, CONFIG.kv_heads * CONFIG.head_size

    def norm() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.uniform(0.5, 1.5, CONFIG.hidden).astype(np.float32)

    layers = tuple(
        Layer(
            attention_norm=norm(),
            qkv=affine(rng, heads + 2 * kv_heads, CONFIG.hidden),
            attention_output=affine(rng, CONFIG.hidden, heads),
            feed_forward_norm=norm(),
            gate_up=affine(rng, 2 * CONFIG.feed_forward, CONFIG.hidden),
            down=affine(rng, CONFIG.hidden, CONFIG.feed_forward),
        )
        for _ in range(CONFIG.layers)
    )
    return Checkpoint(CONFIG, VOCABULARY, symmetric(rng, CONFIG.vocabulary, CONFIG.hidden), layers, norm())
