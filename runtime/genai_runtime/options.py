"""A caller's generation options against what the package says: explicit value > package default > greedy (1.8)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, cast

import numpy as np

from genai_runtime.context import shorten
from genai_runtime.problem import LoadError, RequestError
from genai_runtime.sample import SamplingOptions
from genai_runtime.values import Array, from_bfloat16

_DEFAULTED = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size")
SAMPLING = tuple(each.name for each in fields(SamplingOptions))
OF_GENERATE = (
    "max_new_tokens", "stop", "stop_on_eos", "add_special_tokens", "skip_special_tokens", "images", "audio", "adapters",
    "session", "speculate", "prefill_chunk",
)  # fmt: skip
"""Options of `generate` beside those of sampling."""
ROLES = {
    "temperature": "sampling_temperature",
    "top_k": "sampling_top_k",
    "top_p": "sampling_top_p",
    "min_p": "sampling_min_p",
    "seed": "seed",
}
"""Which runtime role carries an option into a workflow that has its own sampler (standard, 3.1)."""

KNOBS = ("temperature", "top_k", "top_p", "min_p")
GREEDY: Mapping[str, int | float] = {"temperature": 0.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0}
"""What a greedy request gives a sampler (standard, 3.1)."""

DEFAULT_NEW = 256
"""New tokens a row where neither caller nor package bounds them."""

CONTRACT_FIELDS = ("temperature", "top_p", "top_k", "do_sample")
"""Fields of the request that a generation contract governs whether it lists them or not (standard, 1.8)."""


@dataclass(frozen=True)
class Limits:
    """Lengths of one request: new tokens at most of each row (`rows`), `context` positions in all (0: unlimited)."""

    rows: tuple[int, ...]
    context: int


def resolve_sampling(
    given: Mapping[str, Any], package: Mapping[str, Any], prompt_lengths: Sequence[int]
) -> tuple[SamplingOptions, ...]:
    """One set of options a row. given: what the caller set; a list gives one value a row. Raises RequestError."""
    _refuse_unknown(given)
    rows = len(prompt_lengths)
    return tuple(_row_options(row_values(given, row, rows), package, prompt_lengths[row]) for row in range(rows))


def _row_options(given: Mapping[str, Any], package: Mapping[str, Any], prompt_length: int) -> SamplingOptions:
    options = _merged(plain_values(given), package, prompt_length)
    options.validate()
    return options


def _merged(given: Mapping[str, Any], package: Mapping[str, Any], prompt_length: int) -> SamplingOptions:
    base = {name: package[name] for name in _DEFAULTED if package.get(name) is not None}
    base["min_new_tokens"] = max(0, int(package.get("min_length") or 0) - prompt_length)
    if package.get("logit_bias"):
        base["logit_bias"] = {int(token): delta for token, delta in package["logit_bias"].items()}
    if int(package.get("random_seed", -1)) >= 0:
        base["seed"] = int(package["random_seed"])
    if any(name in given for name in KNOBS) and "do_sample" not in given:
        # who turns a sampling knob wants to sample, whatever the package's default
        base["do_sample"] = None if given.get("temperature") == 0 else True
    return replace(SamplingOptions(do_sample=False), **{**base, **given})


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - set(SAMPLING))
    if unknown:
        from difflib import get_close_matches

        known = (*OF_GENERATE, *SAMPLING)
        near = [name for each in unknown for name in get_close_matches(each[:64], known, n=1)]
        meant = f"did you mean {' and '.join(dict.fromkeys(near))}? " if near else ""
        what = f"no such option: {', '.join(unknown)}"
        raise RequestError("unknown-option", what, help=f"{meant}options: {', '.join(known)}")


def row_values(given: Mapping[str, Any], row: int, rows: int) -> dict[str, Any]:
    """One row's options: a list's entry of that row. Raises RequestError `wrong-row-count`."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, list | tuple):
            if len(value) != rows:
                what = f"{name} has {len(value)} entries for {rows} rows"
                raise RequestError("wrong-row-count", what, help="give one value for all rows, or one a row")
            value = value[row]
        if value is not None:
            values[name] = value
    return values


def plain_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same in Python's own numbers and truth values, where numpy's were given.

    Raises RequestError `bad-sampling-options` for an array: which of its entries is meant, nobody says.
    """
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            what = (
                f"{name} is an array of {value.dtype} {list(value.shape)}; it takes one value, or a list with one a row"
            )
            raise RequestError("bad-sampling-options", what, help="give a number, or array.tolist()")
    return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    return float(value) if isinstance(value, np.floating) else value  # also of types whose item() is no float


def tensor_options(tensors: Mapping[str, Array | None]) -> dict[str, list[Any]]:
    """What a caller gave as tensors by option, an entry a row. A fraction in uint16 stands there as bfloat16 bits."""
    given: dict[str, list[Any]] = {}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.size:
            bits = tensor.dtype == np.uint16 and name in ("temperature", "top_p", "min_p")
            given[name] = (from_bfloat16(tensor) if bits else tensor).reshape(-1).tolist()
    return given


def resolve_limits(
    max_new: int | Sequence[int | None] | None, prompts: Sequence[Sequence[int]], generation: Mapping[str, Any]
) -> Limits:
    """How far a request may go. max_new: for all rows, or a list with one a row.

    Raises RequestError `context-exceeded` (with the numbers), `bad-length`, `wrong-row-count`.

    Terms: context_length is what the model was made for, prompt and output together; max_length (a package default)
    bounds the same sum; max_new_tokens counts the output alone and is what a caller gives.
    """
    context = int(generation["context_length"])
    longest = max(len(each) for each in prompts)
    wanted = [
        row_values({"max_new_tokens": max_new}, row, len(prompts)).get("max_new_tokens") for row in range(len(prompts))
    ]
    for each in wanted:
        whole = isinstance(each, int | np.integer) and not isinstance(each, bool)
        if each is not None and not (whole and 0 <= each < 2**63):
            what = f"max_new_tokens must be a whole number within 0..2**63-1, got {each!r}"
            raise RequestError("bad-length", what, help="give one for all rows, or a list with one a row")
    if context and longest >= context:
        said = "its default" if max_new is None else max_new
        raise RequestError(
            "context-exceeded",
            f"the prompt has {longest} tokens and max_new_tokens is {said}; the context holds {context} in all",
            help=shorten(context),
        )
    left = _left(prompts, context, generation) if None in wanted else [0] * len(prompts)
    return Limits(tuple(room if own is None else int(own) for own, room in zip(wanted, left, strict=True)), context)


def _left(prompts: Sequence[Sequence[int]], context: int, generation: Mapping[str, Any]) -> list[int]:
    """New tokens of each row where the caller states no number."""
    most = int(generation["defaults"].get("max_length") or context)
    total = min(most, context or most)
    return [max(0, total - len(each)) if total else DEFAULT_NEW for each in prompts]


def resolve_roles(
    given: Mapping[str, Any], package: Mapping[str, Any], declared: frozenset[str], always_greedy: bool = False
) -> tuple[dict[str, int | float], SamplingOptions]:
    """One row's values for a package that samples with its own graph, and the options that its fallbacks follow.

    Explicit value > `generation.defaults` are the role values; an input's own default comes next, `role_fallbacks`
    last. declared: roles that have an input. always_greedy: the sampler never draws. A greedy request sets all sampling
    roles (standard, 3.1). Raises RequestError `unknown-option`, `unsupported-option`, `bad-sampling-options`.
    """
    _refuse_unknown(given)
    given = plain_values({name: value for name, value in given.items() if value is not None})
    _refuse_unable(given, declared, always_greedy)
    options = _merged(given, package, 0)
    stated = [name for name in (*KNOBS, "do_sample") if name in given or package.get(name) is not None]
    if not stated:
        options = replace(options, do_sample=None)
    values = {name: getattr(options, name) for name in stated if name in ROLES}
    if options.seed is not None:
        values["seed"] = options.seed
    if stated and _forced_greedy(options):
        values |= GREEDY
    return {ROLES[name]: value for name, value in values.items() if ROLES[name] in declared}, options


def role_fallbacks(options: SamplingOptions, defaults: Mapping[str, Any]) -> dict[str, int | float]:
    """Role values where neither request nor document says: greedy, unless one of the two asks for sampling (1.8).

    defaults: option -> the own default of the input that carries it, a number or one a row.
    """
    neutral = {name: getattr(SamplingOptions(), name) for name in KNOBS}
    samples = options.do_sample
    if samples is None:
        turned = any(np.any(np.asarray(defaults[name]) != neutral[name]) for name in KNOBS if name in defaults)
        samples = turned and bool(np.any(np.asarray(defaults.get("temperature", 1.0)) != 0))
    chosen = neutral if samples and options.temperature != 0 else GREEDY
    return {"seed": 0, **{ROLES[name]: value for name, value in chosen.items()}}


def _forced_greedy(options: SamplingOptions) -> bool:
    return options.do_sample is False or options.temperature == 0


def _refuse_unable(given: Mapping[str, Any], declared: frozenset[str], always_greedy: bool) -> None:
    """What the package's sampler can't be told. Zero temperature and do_sample=False ask for one thing: greedy."""
    unable = {name for name in given if name != "do_sample" and ROLES.get(name) not in declared}
    steered = bool({"sampling_temperature", "sampling_top_k"} & declared)
    if given.get("temperature") == 0 and (steered or always_greedy):
        unable.discard("temperature")
    wish = given.get("do_sample")
    if (wish is False and not steered and not always_greedy) or (wish is True and always_greedy):
        unable.add("do_sample")
    if unable:
        what = f"the package samples with its own graph, which has no input for {', '.join(sorted(unable))}"
        raise RequestError("unsupported-option", what, help=f"it takes {', '.join(sorted(declared)) or 'no options'}")


def refuse_overrides(given: Mapping[str, Any], generation: Mapping[str, Any]) -> None:
    """Hold what a caller set against the package's generation contract (standard, 1.8); a list has one value a row.

    The contract's four sampling fields must be listed in it; any field that it lists must lie within its bounds. Other
    options are this runtime's own, and a contract that does not list them says nothing of them.
    Raises RequestError `option-not-allowed`, `option-out-of-bounds`.
    """
    listed = _listed(generation)
    if not generation["contract"]:
        return
    for name, value in given.items():
        rows = cast(Sequence[Any], value) if isinstance(value, list | tuple) else [value]
        values = [each for each in rows if each is not None]
        if values and name in CONTRACT_FIELDS and name not in listed:
            what = f"the package does not let a caller set {name}"
            raise RequestError("option-not-allowed", what, help=f"it lets set {', '.join(sorted(listed)) or 'nothing'}")
        for each in values:
            _refuse_outside(name, each, listed.get(name, {}))


def refuse_tensors(
    tensors: Mapping[str, Array], inputs: Sequence[Mapping[str, Any]], generation: Mapping[str, Any]
) -> None:
    """Hold tensors that a caller of `run` gave for a contract's inputs against its bounds, whatever the field's name.

    Raises RequestError `option-out-of-bounds`.
    """
    aliases = {str(each["name"]): str(each["application"]) for each in inputs}
    for field, bounds in _listed(generation).items():
        name: Any = bounds.get("input", "")
        given = next((tensors[each] for each in (name, aliases.get(name, "")) if each in tensors), None)
        for each in tensor_options({field: given}).get(field, ()):
            _refuse_outside(field, each, bounds)


def _listed(generation: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The contract's fields and their bounds, as the manifest has them. Raises LoadError `damaged-folder`."""
    listed: Any = generation.get("overrides", {})
    sound = isinstance(listed, dict) and all(map(_is_bounds, cast(dict[str, Any], listed).values()))
    if not sound:
        raise LoadError("damaged-folder", f"the manifest's overrides are damaged: {listed!r}", help="compile again")
    return cast(Mapping[str, Mapping[str, Any]], listed)


def _is_bounds(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    bounds = cast(dict[str, Any], entry)
    return all(isinstance(bounds.get(name, 0), int | float) for name in ("minimum", "maximum"))


def _refuse_outside(name: str, value: Any, bounds: Mapping[str, Any]) -> None:
    low, high = bounds.get("minimum", -math.inf), bounds.get("maximum", math.inf)
    number = isinstance(value, Real) and (low, high) != (-math.inf, math.inf)
    if number and not low <= value <= high:
        what = f"{name} is {value!r}; the package allows {low:g} to {high:g}"
        raise RequestError("option-out-of-bounds", what)
