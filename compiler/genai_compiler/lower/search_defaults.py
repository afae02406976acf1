"""`search` of a v1 configuration -> `generation.defaults`; every key has an effect there or gives a problem here.

Meanings are those of onnxruntime-genai (its search.cpp and documentation): lengths count prompt and output together,
top_k defaults to 50, top_p 0 beside a top_k means "no nucleus".
"""

from collections.abc import Callable, Mapping
from typing import Any

from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import as_written
from genai_compiler.read.prompt_chunk import PromptChunk
from genai_compiler.read.score_bounds import LARGEST, SMALLEST_TEMPERATURE

_TOP_K = 50
Report = Callable[..., None]


def search_defaults(
    config: GenaiConfig, limit: int, vocabulary: int | None
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """(generation defaults, problems).

    limit: the model's context length. vocabulary: ids there are, None when unknown. Besides the standard's fields the
    defaults may hold `random_seed`.
    """
    return defaults_of(config.search, lambda key: named(config, ("search", key)), limit, vocabulary)


def defaults_of(
    search: Mapping[str, Any], where: Callable[[str], tuple[Place, str]], limit: int, vocabulary: int | None
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """The same of any document with these keys. where: the place and the path of a key."""
    problems: list[Problem] = []

    def report(code: str, key: str, what: str, help: str = "", error: bool = False) -> None:
        severity = Severity.ERROR if error else Severity.WARNING
        problems.append(Problem(code, *where(key), what, help, severity))

    defaults: dict[str, Any] = {"do_sample": bool(search.get("do_sample", False))}
    defaults |= _sampling(search, vocabulary, report)
    defaults |= _lengths(search, limit, report)
    defaults |= _penalties(search, report)
    defaults |= _run_time(search, report)
    _refuse_beams(search, report)
    _note_ignored(search, report)
    return defaults, tuple(problems)


def prompt_chunk(search: Mapping[str, Any], where: Callable[[str], tuple[Place, str]]) -> PromptChunk | None:
    """What `chunk_size` asks for: a fraction is cut off, and less than one token is none (reference, 1.12)."""
    size = int(search.get("chunk_size", 0))
    return PromptChunk(size, *where("chunk_size"), setting=True) if size >= 1 else None


def _sampling(search: Mapping[str, Any], vocabulary: int | None, report: Report) -> dict[str, Any]:
    temperature, top_p = float(search.get("temperature", 1.0)), float(search.get("top_p", 0.0))
    top_k = int(search.get("top_k", _TOP_K))
    if temperature < 0:
        report(
            "bad-value", "temperature", f"temperature is {temperature}; it must not be negative", "0 is greedy", True
        )
    elif temperature and not SMALLEST_TEMPERATURE <= temperature <= LARGEST:
        what = f"temperature is {temperature}; it is 0, or between {SMALLEST_TEMPERATURE} and {LARGEST}"
        report("bad-value", "temperature", what, "0 is greedy", True)
    if not 0 <= top_p <= 1:
        report("bad-value", "top_p", f"top_p is {top_p}; it lies between 0 and 1", "1 keeps all tokens", True)
    if top_k < 0:
        report("bad-value", "top_k", f"top_k is {top_k}; it must not be negative", "0 turns it off", True)
    if top_k == 0 and top_p == 0:
        if search.get("do_sample"):
            stated = "top_p" in search
            what = "top_k 0 with top_p 0" if stated else "top_k 0 with top_p left out, which is 0 in this format,"
            help = "write top_p 1 to sample of all tokens"
            report("config-read-as", "top_p" if stated else "top_k", f"{what} keeps one token: read as top_k 1", help)
        top_k = 1
    if vocabulary is not None and top_k > vocabulary:
        if "top_k" in search:
            report("config-read-as", "top_k", f"top_k is {top_k}, but there are {vocabulary} ids; all are kept")
        top_k = vocabulary
    return {"temperature": temperature, "top_k": max(top_k, 0), "top_p": top_p if top_p > 0 else 1.0}


def _lengths(search: Mapping[str, Any], limit: int, report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("min_length", "max_length"):
        value = int(search.get(key, 0))
        if value < 0:
            report("bad-value", key, f"{key} is {value}; it must not be negative", error=True)
        elif value > limit:
            what = f"{key} is {value}, but the model's context_length allows {limit}; {limit} is taken"
            help = (
                "max_length counts prompt and output together, as context_length does; "
                "a request limits its own output with max_new_tokens"
            )
            report("length-over-context", key, what, help)
        if value > 0:
            found[key] = min(value, limit)
    if found.get("min_length", 0) > found.get("max_length", limit):
        what = f"min_length {found['min_length']} is above max_length {found['max_length']}: output always ends there"
        report("config-read-as", "min_length", what)
    return {"max_length": limit, **found}


def _penalties(search: Mapping[str, Any], report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {}
    penalty = float(search.get("repetition_penalty", 1.0))
    if penalty <= 0:
        report(
            "bad-value", "repetition_penalty", f"repetition_penalty is {penalty}; it must be above 0", "1 is none", True
        )
    elif penalty > LARGEST:
        what = f"repetition_penalty is {penalty}; it must not be above {LARGEST}"
        report("bad-value", "repetition_penalty", what, "1 is none", True)
    elif penalty != 1:
        found["repetition_penalty"] = penalty
    ngram = int(search.get("no_repeat_ngram_size", 0))
    if ngram < 0:
        report("bad-value", "no_repeat_ngram_size", f"no_repeat_ngram_size is {ngram}", "0 turns it off", True)
    elif ngram:
        found["no_repeat_ngram_size"] = ngram
    return found


def _run_time(search: Mapping[str, Any], report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if int(search.get("random_seed", -1)) >= 0:
        found["random_seed"] = int(search["random_seed"])
    batch = int(search.get("batch_size", 1))
    if batch != 1:
        report(
            "ignored-key", "batch_size", f"batch_size {batch} has no effect: a request brings as many rows as it has"
        )
    return found


def _refuse_beams(search: Mapping[str, Any], report: Report) -> None:
    beams, sequences = int(search.get("num_beams", 1)), int(search.get("num_return_sequences", 1))
    if beams != 1:
        what = f"num_beams is {beams}: beam search is not compiled"
        report("unsupported-search", "num_beams", what, "set it to 1 (greedy, or do_sample for sampling)", True)
    if sequences != 1:
        what = f"num_return_sequences is {sequences}: several sequences come from beam search, which is not compiled"
        report("unsupported-search", "num_return_sequences", what, "set it to 1", True)


# Keys whose neutral value means "nothing asked for", and what they would belong to.
_IGNORED: Mapping[str, tuple[float, str]] = {
    "length_penalty": (1.0, "it weighs beams against each other, and there are none"),
    "diversity_penalty": (0.0, "no runtime applies it"),
    "blank_penalty": (0.0, "it belongs to transducers"),
    "audio_temperature": (0.0, "it belongs to models with speech output"),
    "audio_top_k": (0.0, "it belongs to models with speech output"),
    "audio_interleaved": (0.0, "it belongs to models with speech output"),
}


def _note_ignored(search: Mapping[str, Any], report: Report) -> None:
    for key, (neutral, why) in _IGNORED.items():
        if key in search and float(search[key]) != neutral:
            report("ignored-key", key, f"{key} {as_written(search[key])} has no effect: {why}", "remove it")
    if search.get("early_stopping") is False:
        report("ignored-key", "early_stopping", "early_stopping false has no effect: it ends beams, and there are none")
