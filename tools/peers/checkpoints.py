"""Checkpoints for the peer's builder: folders with config.json, model.safetensors and a tokenizer, float32.

Sources: the names of tensors and of config.json's fields are those of transformers' llama decoders.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tools.smollm2.checkpoint import Checkpoint, Config
from tools.smollm2.tokenizer import write_text_files

Array = NDArray[np.float32]
CONTEXT = 8448
"""Positions of a random decoder: contexts of 8,000 tokens and some new ones."""


@dataclass(frozen=True)
class Size:
    """A random decoder's shape; its head is not tied, and a head has hidden / heads numbers."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int


def write_real(folder: Path, checkpoint: Checkpoint) -> None:
    """The checkpoint, its weights dequantised to float32; the head is the embedding matrix."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = dict(_real_tensors(checkpoint))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    vocabulary = checkpoint.vocabulary
    ids = {"bos_token_id": vocabulary.bos, "eos_token_id": vocabulary.eos, "pad_token_id": vocabulary.padding}
    _write_config(folder, checkpoint.config, tied=True, ids=ids)
    write_text_files(folder, vocabulary, checkpoint.config.context_length)


def write_random(folder: Path, size: Size) -> None:
    """A decoder of random weights: the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(_random_tensors(size)), str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = Config(
        layers=size.layers, hidden=size.hidden, feed_forward=size.feed_forward, heads=size.heads,
        kv_heads=size.kv_heads, head_size=size.hidden // size.heads, vocabulary=size.vocabulary,
        context_length=CONTEXT, rope_base=10000.0, norm_epsilon=1e-5,
    )  # fmt: skip
    _write_config(folder, config, tied=False, ids={"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1})
    _write_byte_tokenizer(folder, size.vocabulary)


def _real_tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, Array]]:
    config = checkpoint.config
    query, kv = config.heads * config.head_size, config.kv_heads * config.head_size
    yield "model.embed_tokens.weight", checkpoint.embedding.dequantised()
    yield "model.norm.weight", checkpoint.final_norm
    for number, layer in enumerate(checkpoint.layers):
        name = f"model.layers.{number}"
        qkv, gate_up = layer.qkv.dequantised(), layer.gate_up.dequantised()
        parts = np.split(qkv, [query, query + kv])
        for part, rows in zip(("q", "k", "v"), parts, strict=True):
            yield f"{name}.self_attn.{part}_proj.weight", np.ascontiguousarray(rows)
        yield f"{name}.self_attn.o_proj.weight", layer.attention_output.dequantised()
        for part, rows in zip(("gate", "up"), np.split(gate_up, 2), strict=True):
            yield f"{name}.mlp.{part}_proj.weight", np.ascontiguousarray(rows)
        yield f"{name}.mlp.down_proj.weight", layer.down.dequantised()
        yield f"{name}.input_layernorm.weight", layer.attention_norm
        yield f"{name}.post_attention_layernorm.weight", layer.feed_forward_norm


def _random_tensors(size: Size) -> Iterator[tuple[str, Array]]:
    draw = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Array:
        drawn: Array = (draw.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)
        return drawn

    kv = size.hidden // size.heads * size.kv_heads
    ones = np.ones(size.hidden, np.float32)
    yield "model.embed_tokens.weight", matrix(size.vocabulary, size.hidden)
    head = matrix(size.vocabulary, size.hidden)
    head[-1] = 0  # never the likeliest, so that it can stand for an end token that does not come
    yield "lm_head.weight", head
    yield "model.norm.weight", ones
    for number in range(size.layers):
        name = f"model.layers.{number}"
        for part, rows in (("q", size.hidden), ("k", kv), ("v", kv), ("o", size.hidden)):
            yield f"{name}.self_attn.{part}_proj.weight", matrix(rows, size.hidden)
        yield f"{name}.mlp.gate_proj.weight", matrix(size.feed_forward, size.hidden)
        yield f"{name}.mlp.up_proj.weight", matrix(size.feed_forward, size.hidden)
        yield f"{name}.mlp.down_proj.weight", matrix(size.hidden, size.feed_forward)
        yield f"{name}.input_layernorm.weight", ones.copy()
        yield f"{name}.post_attention_layernorm.weight", ones.copy()


def _write_config(folder: Path, config: Config, tied: bool, ids: dict[str, int]) -> None:
    data: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_size": config.hidden,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.context_length,
        "vocab_size": config.vocabulary,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_base,
        "tie_word_embeddings": tied,
        "torch_dtype": "float32",
        **ids,
    }
    for name, content in (("config.json", data), ("generation_config.json", {**ids, "do_sample": False})):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _write_byte_tokenizer(folder: Path, vocabulary: int) -> None:
    """A token for each byte, and names for the ids above them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "</s>", *alphabet]
    tokens += [f"<x{number}>" for number in range(vocabulary - len(tokens))]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    content = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
