"""What a model's `config.json` states of its decoder: to hold against the graph, and to fill what that leaves open."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import ModelProto

from genai_compiler.lower.bare_decoder import DecoderSource
from genai_compiler.lower.plain_pair import Pair
from genai_compiler.lower.stated import Fact, Stated
from genai_compiler.lower.switched_state import SwitchedDecoder
from genai_compiler.problem import Problem
from genai_compiler.read.places import DocPath, Places
from genai_compiler.read.side_files import is_whole, odd_number
from genai_compiler.read.signature import Signature, load_graph, signature_of

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
    """numbers: by fact; keys: where each stands, or would. derived: what the file only implies. odd: path and
    value of what stands at such keys and is no number.
    """

    numbers: Mapping[Fact, int]
    keys: Mapping[Fact, DocPath]
    derived: Mapping[Fact, int]
    odd: tuple[tuple[DocPath, object], ...] = ()

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
        stated = sorted({name for group in (*_KEYS.values(), _HEADS, _WIDTH) for name in group} & holder.keys())
        odd = tuple(((*start, each), holder[each]) for each in stated if _is_odd(holder[each]))
        return cls(numbers, keys, derived, odd)

    def doubts(self, places: Places) -> tuple[Problem, ...]:
        """Warnings for what is no number. places: of the file."""
        return tuple(odd_number(places.find(path), path, value) for path, value in self.odd)

    def implied(self, signature: Signature, caches: Iterable[str]) -> dict[Fact, int]:
        """What the file only implies, of extents that the graph leaves open. caches: inputs of the graph."""
        named = set(caches)
        shapes = [each.shape for each in signature.inputs if each.name in named and each.shape and len(each.shape) == 4]
        axes: tuple[tuple[Fact, int], ...] = (("kv_heads", 1), ("head_size", 3))
        left = {fact for fact, axis in axes if any(not isinstance(shape[axis], int) for shape in shapes)}
        return {fact: n for fact, n in self.derived.items() if fact in left and fact not in self.numbers}


def _is_odd(value: object) -> bool:
    """Whether a value is stated and can't be a number of things; a list has one a layer, which no fact here is."""
    return value is not None and not isinstance(value, list) and not (is_whole(value) and value > 0)


def _number(holder: Mapping[str, Any], name: str) -> int | None:
    value = holder.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None


def _first(holder: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((found for each in names if (found := _number(holder, each)) is not None), None)


@dataclass(frozen=True)
class PlainSource(DecoderSource):
    """The graph, with the numbers of `config.json` in the place of a document's. pair: the two that it is."""

    numbers: StatedNumbers = field(default_factory=lambda: StatedNumbers({}, {}, {}))
    pair: Pair | None = None

    def _opened(self) -> tuple[ModelProto, Signature, SwitchedDecoder | None]:
        if self.pair is None:
            return super()._opened()
        return self.pair.later.model, self.pair.signature, self.pair.networks

    def _beside(self) -> tuple[ModelProto, ...]:
        return () if self.pair is None else (self.pair.first_model,)

    def _stated(self) -> Stated:
        """As of a document; what `config.json` only implies fills extents that the graph leaves open."""
        said, keys = self.numbers.numbers, self.numbers.keys
        model = load_graph(self.root / self.artifact, self.root)
        signature = signature_of(model, self.artifact, self.root)
        every = {**self.numbers.implied(signature, self.io.kv_inputs or ()), **said}
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
