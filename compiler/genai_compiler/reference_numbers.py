"""Numbers of a configuration that the reference runtime checks when it makes a generator, in its order.

A transducer's generator checks none of them but the context length.
"""

from collections.abc import Iterator

from genai_compiler.read.config_json import Json
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.reference_classes import Reason, is_transducer, reference_table

_COUNTS = (("batch_size", 1, 32), ("num_beams", 1, 32))
_DRAFTS = (("max_draft_tokens", 4, 1, 16), ("ngram_size", 0, 0, 16), ("min_adaptive_k", 0, 0, 16))
"""Key, what it is where nothing is stated, the least and the most."""


def number_reasons(config: GenaiConfig, text: Json) -> Iterator[Reason]:
    """Why no generator is made. text: the whole configuration."""
    if config.context_length is None and config.model_type not in reference_table()["without_context_length"]:
        yield ("model", "context_length"), "context_length must be stated, above 0", ""
    yield from _of_other_sections(text)
    if is_transducer(config.model_type or ""):
        return
    vocabulary, search = config.vocab_size, config.search
    beams = search.get("num_beams", 1)
    if vocabulary is None:
        yield ("model", "vocab_size"), "vocab_size must be 1 or greater", ""
    elif vocabulary < 2 and beams > 1:
        yield ("model", "vocab_size"), "vocab_size must be 2 or greater with beams", ""
    for each in config.eos:
        if each < 0 or (vocabulary is not None and each >= vocabulary):
            yield ("model", "eos_token_id"), f"end token {each} is no id of the vocabulary", ""
    longest = search.get("max_length", 0)
    if config.context_length is not None and longest > config.context_length:
        why = f"max_length {longest} is above context_length {config.context_length}, so that no generator is made"
        yield ("search", "max_length"), why, ""
    for key, low, high in (*_COUNTS, ("num_return_sequences", 1, beams)):
        if not low <= search.get(key, 1) <= high:
            yield ("search", key), f"{key} must lie between {low} and {high}", ""
    if search.get("do_sample"):
        yield from _of_sampling(config)


def _of_sampling(config: GenaiConfig) -> Iterator[Reason]:
    vocabulary, top_k, top_p = config.vocab_size, config.search.get("top_k", 50), config.search.get("top_p", 0)
    if top_k < 0 or (vocabulary is not None and top_k > vocabulary):
        yield ("search", "top_k"), f"top_k {top_k} is not within the vocabulary when sampling", ""
    if not 0 <= top_p <= 1:
        yield ("search", "top_p"), f"top_p {top_p} is not between 0 and 1", ""


def _of_other_sections(text: Json) -> Iterator[Reason]:
    """`speculative` and `runtime_profiles`, which are the reference's own."""
    root = text if isinstance(text, dict) else {}
    drafts = root.get("speculative")
    stated = drafts if isinstance(drafts, dict) else {}
    for key, default, low, high in _DRAFTS:
        value = stated.get(key, default)
        if (isinstance(value, int | float) and not (low <= value <= high)) or (key, value) == ("ngram_size", 1):
            yield ("speculative", key), f"{key} must lie between {low} and {high}", ""
    if stated.get("ngram_chained_lookup") and not stated.get("ngram_size"):
        yield ("speculative", "ngram_chained_lookup"), "ngram_chained_lookup needs an ngram_size", ""
    if root.get("runtime_profiles"):
        yield ("runtime_profiles",), "it takes runtime_profiles on CUDA only", "leave them out"
