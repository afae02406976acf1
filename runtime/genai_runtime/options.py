"""A caller's generation options against what the package says: explicit value > package default > greedy (1.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from genai_runtime.problem import RequestError
from genai_runtime.sample import SamplingOptions

_DEFAULTED = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size")
SAMPLING = tuple(each.name for each in fields(SamplingOptions))
ROLES = {
    "temperature": "sampling_temperature",
    "top_k": "sampling_top_k",
    "top_p": "sampling_top_p",
    "min_p": "sampling_min_p",
    "seed": "seed",
}
"""Which runtime role carries an option into a workflow that has its own sampler (standard, 3.1)."""


@dataclass(frozen=True)
class Limits:
    """Lengths of one request: `new` tokens at most, `context` positions in all (0: unlimited)."""

    new: int
    context: int


def resolve_sampling(
    given: Mapping[str, Any], package: Mapping[str, Any], prompt_lengths: Sequence[int]
) -> tuple[SamplingOptions, ...]:
    """One set of options a row. given: what the caller set; a list gives one value a row. Raises RequestError."""
    _refuse_unknown(given)
    rows = len(prompt_lengths)
    return tuple(_row_options(row_values(given, row, rows), package, prompt_lengths[row]) for row in range(rows))


def _row_options(given: Mapping[str, Any], package: Mapping[str, Any], prompt_length: int) -> SamplingOptions:
    base = {name: package[name] for name in _DEFAULTED if package.get(name) is not None}
    base["min_new_tokens"] = max(0, int(package.get("min_length") or 0) - prompt_length)
    if int(package.get("random_seed", -1)) >= 0:
        base["seed"] = int(package["random_seed"])
    if any(name in given for name in ("temperature", "top_k", "top_p", "min_p")) and "do_sample" not in given:
        # who turns a sampling knob wants to sample, whatever the package's default
        base["do_sample"] = None if given.get("temperature") == 0 else True
    options = replace(SamplingOptions(do_sample=False), **{**base, **given})
    options.validate()
    return options


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - set(SAMPLING))
    if unknown:
        raise RequestError(
            "unknown-option", f"no such option: {', '.join(unknown)}", help=f"options: {', '.join(SAMPLING)}"
        )


def row_values(given: Mapping[str, Any], row: int, rows: int) -> dict[str, Any]:
    """One row's options: a list's entry of that row. Raises RequestError `wrong-row-count`."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, list | tuple):
            if len(value) != rows:
                raise RequestError("wrong-row-count", f"{name} has {len(value)} entries for {rows} rows")
            value = value[row]
        if value is not None:
            values[name] = value
    return values


def resolve_limits(max_new: int | None, prompts: Sequence[Sequence[int]], generation: Mapping[str, Any]) -> Limits:
    """How far a request may go. Raises RequestError `context-exceeded` (with the numbers), `bad-length`.

    Terms: context_length is what the model was made for, prompt and output together; max_length (a package default)
    bounds the same sum; max_new_tokens counts the output alone and is what a caller gives.
    """
    context = int(generation["context_length"])
    longest = max(len(each) for each in prompts)
    if max_new is not None and (isinstance(max_new, bool) or not isinstance(max_new, int) or max_new < 0):
        raise RequestError("bad-length", f"max_new_tokens must be a whole number >= 0, got {max_new!r}")
    if context and longest >= context:
        wanted = "its default" if max_new is None else max_new
        raise RequestError(
            "context-exceeded",
            f"the prompt has {longest} tokens and max_new_tokens is {wanted}; the context holds {context} in all",
            help="shorten the prompt",
        )
    if max_new is None:
        total = int(generation["defaults"].get("max_length") or context or longest + 256)
        max_new = max(0, min(total, context or total) - longest)
    return Limits(max_new, context)


def workflow_roles(given: Mapping[str, Any], declared: frozenset[str]) -> dict[str, int | float]:
    """Role values for a package that samples with its own graph. Raises RequestError for what it has no input for."""
    _refuse_unknown(given)
    set_by_caller = {name: value for name, value in given.items() if value is not None and name != "do_sample"}
    greedy = given.get("do_sample") is False or given.get("temperature") == 0
    unable = [name for name in set_by_caller if ROLES.get(name) not in declared]
    if unable:
        what = f"the package samples with its own graph, which has no input for {', '.join(sorted(unable))}"
        raise RequestError("unsupported-option", what, help=f"it takes {', '.join(sorted(declared)) or 'no options'}")
    roles = {ROLES[name]: value for name, value in set_by_caller.items()}
    if greedy:
        neutral = {"sampling_temperature": 0.0, "sampling_top_k": 1, "sampling_top_p": 1.0, "sampling_min_p": 0.0}
        roles |= {role: value for role, value in neutral.items() if role in declared}
    return roles
