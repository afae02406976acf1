"""What a document states of one decoder, whatever its dialect: numbers to hold against the graph, and their places."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from genai_compiler.problem import Place
from genai_compiler.read.genai_config import GenaiConfig, SlidingWindow
from genai_compiler.read.places import DocPath

Fact = Literal[
    "kv_heads", "head_size", "layers", "vocab_size", "context_length", "share_buffer", "window",
    "key", "value", "combined", "state",
]  # fmt: skip
"""`key`, `value`, `combined`: where the caches are named; `state`: where states of one size are; `window`: the sliding
window."""


@dataclass(frozen=True)
class Stated:
    """Numbers are None where the document does not state them. paths: where it does, or would, state each fact."""

    kv_heads: int | None
    head_size: int | None
    layers: int | None
    vocab_size: int | None
    context_length: int | None
    share_buffer: bool
    window: SlidingWindow | None
    paths: Mapping[Fact, DocPath]
    place: Callable[[DocPath], Place]


_DECODER: DocPath = ("model", "decoder")
_CONFIG_PATHS: Mapping[Fact, DocPath] = {
    "kv_heads": (*_DECODER, "num_key_value_heads"),
    "head_size": (*_DECODER, "head_size"),
    "layers": (*_DECODER, "num_hidden_layers"),
    "vocab_size": ("model", "vocab_size"),
    "context_length": ("model", "context_length"),
    "share_buffer": ("search", "past_present_share_buffer"),
    "key": (*_DECODER, "inputs", "past_key_names"),
    "combined": (*_DECODER, "inputs", "past_names"),
    "value": (*_DECODER, "inputs", "past_value_names"),
    "state": (*_DECODER, "inputs"),
}


def stated_by_config(config: GenaiConfig) -> Stated:
    """What `genai_config.json` v1 states of its decoder."""
    decoder = config.decoder
    window: DocPath = (*_DECODER, "sliding_window") if decoder.sliding_window is not None else _DECODER
    return Stated(
        kv_heads=decoder.num_key_value_heads,
        head_size=decoder.head_size,
        layers=decoder.num_hidden_layers,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        share_buffer=bool(config.search.get("past_present_share_buffer")),
        window=decoder.sliding_window,
        paths={**_CONFIG_PATHS, "window": window},
        place=config.place,
    )
