"""What a model's `config.json` states of its decoder: to hold against the graph, and to fill what that leaves open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from genai_compiler.lower.bare_decoder import DecoderSource
from genai_compiler.lower.stated import Fact, Stated
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import load_graph, signature_of

_TEXT_PART = "text_config"
_KEYS: Mapping[Fact, tuple[str, ...]] = {
    "kv_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "vocab_size": ("vocab_size",),
    "context_length": ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len"),
}
_HEADS, _WIDTH = ("num_attention_heads", "n_head", "n_heads"), ("hidden_size", "n_embd", "d_model")


@dataclass(frozen=True)
class StatedNumbers:
    """numbers: by fact; keys: where each stands, or would. derived: what the file only implies."""

    numbers: Mapping[Fact, int]
    keys: Mapping[Fact, DocPath]
    derived: Mapping[Fact, int]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "StatedNumbers":
        part = config.get(_TEXT_PART)
        inside = isinstance(part, dict) and "vocab_size" in part
        holder: Mapping[str, Any] = part if inside and isinstance(part, dict) else config
        start: DocPath = (_TEXT_PART,) if inside else ()
        numbers: dict[Fact, int] = {}
        keys: dict[Fact, DocPath] = {}
        for fact, names in _KEYS.items():
            name = next((each for each in names if _number(holder, each) is not None), None)
            keys[fact] = (*start, name or names[0])
            if name is not None:
                numbers[fact] = _number(holder, name) or 0
        heads, width = _first(holder, _HEADS), _first(holder, _WIDTH)
        derived: dict[Fact, int] = {} if heads is None else {"kv_heads": heads}
        if heads is not None and width is not None and width % heads == 0:
            derived["head_size"] = width // heads
        return cls(numbers, keys, derived)


def _number(holder: Mapping[str, Any], name: str) -> int | None:
    value = holder.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None


def _first(holder: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((found for each in names if (found := _number(holder, each)) is not None), None)


@dataclass(frozen=True)
class PlainSource(DecoderSource):
    """The graph, with the numbers of `config.json` in the place of a document's."""

    numbers: StatedNumbers = field(default_factory=lambda: StatedNumbers({}, {}, {}))

    def _stated(self) -> Stated:
        """As of a document; what `config.json` only implies fills extents that the graph leaves open."""
        said, keys = self.numbers.numbers, self.numbers.keys
        open_axes = _open_axes(self)
        implied = {fact: n for fact, n in self.numbers.derived.items() if fact in open_axes and fact not in said}
        every = {**implied, **said}
        nowhere: DocPath = ()
        others: dict[Fact, DocPath] = dict.fromkeys(
            ("window", "share_buffer", "key", "value", "combined", "state"), nowhere
        )
        return Stated(
            kv_heads=every.get("kv_heads"),
            head_size=every.get("head_size"),
            layers=said.get("layers"),
            vocab_size=said.get("vocab_size"),
            context_length=said.get("context_length"),
            share_buffer=False,
            window=None,
            paths={**others, **keys},
            place=self.places.find,
        )


def _open_axes(source: DecoderSource) -> set[Fact]:
    """Which numbers of its caches a graph leaves to others."""
    model = load_graph(source.root / source.artifact, source.root)
    signature = signature_of(model, source.artifact, source.root)
    named = set(source.io.kv_inputs or ())
    shapes = [each.shape for each in signature.inputs if each.name in named and each.shape and len(each.shape) == 4]
    axes: tuple[tuple[Fact, int], ...] = (("kv_heads", 1), ("head_size", 3))
    return {fact for fact, axis in axes if any(not isinstance(shape[axis], int) for shape in shapes)}
