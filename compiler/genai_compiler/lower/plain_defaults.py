"""`generation_config.json`, as a model's publisher wrote it -> `generation.defaults`.

Its words mean what `search` of a genai_config.json means, but for names; what has no counterpart is said to have no
effect, never dropped in silence.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from genai_compiler.lower.search_defaults import search_defaults
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.genai_config import genai_config_of
from genai_compiler.read.places import Places

FILE = "generation_config.json"
_SAME = (
    *("do_sample", "temperature", "top_k", "top_p", "repetition_penalty", "no_repeat_ngram_size"),
    *("min_length", "max_length", "num_beams", "num_return_sequences"),
)
_OF_TOKENS = frozenset({"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"})
_OF_BEAMS = frozenset({"early_stopping", "length_penalty", "diversity_penalty", "num_beam_groups"})
_NO_WORDS = frozenset({"transformers_version", "use_cache", "cache_implementation", "return_dict_in_generate"})
_ABSENT: tuple[object, ...] = (None, False, [], {}, "")
_NEUTRAL: Mapping[str, float] = {
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "guidance_scale": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "min_new_tokens": 0,
    "num_assistant_tokens": 0,
}


def plain_defaults(
    stated: Mapping[str, Any], places: Places, limit: int, vocabulary: int | None
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """(generation defaults, problems at the file's own keys). limit: the context length; vocabulary: ids there are."""
    search = search_of(stated)
    text = json.dumps({"model": {}, "search": search}).encode()
    config, read = genai_config_of(parse_config(text, FILE))
    defaults, found = search_defaults(config, limit, vocabulary)
    problems = [placed(each, places) for each in (*read, *found) if each.path.startswith("search.")]
    return defaults, (*problems, *without_effect(stated, places))


def search_of(stated: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says in words that `search` has as well."""
    return {key: stated[key] for key in _SAME if stated.get(key) is not None}


def placed(problem: Problem, places: Places) -> Problem:
    """A problem of `search` at the file's own key."""
    key = problem.path.removeprefix("search.")
    return replace(problem, where=places.find((key,)), path=key)


def without_effect(stated: Mapping[str, Any], places: Places) -> list[Problem]:
    """Warnings for what has no counterpart."""
    known = {*_SAME, *_OF_TOKENS, *_OF_BEAMS, *_NO_WORDS}
    return [
        Problem(
            "ignored-key",
            places.find((key,)),
            key,
            f"{key} has no effect: the runtime's sampler does not know it",
            "remove it, or export its rule as a graph",
            Severity.WARNING,
        )
        for key, value in stated.items()
        if key not in known and not key.startswith("_") and value not in _ABSENT and value != _NEUTRAL.get(key)
    ]
