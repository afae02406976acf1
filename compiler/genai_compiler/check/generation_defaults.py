"""`generation` against what will happen: every field is honoured, refused, or spoken of (standard, 1.8)."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from genai_compiler.check.context import context_of
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.document import GenerationDefaults, RuntimeRole, Workflow
from genai_compiler.read.package import Package
from genai_compiler.read.places import as_written, format_path
from genai_compiler.read.score_bounds import FORBIDS, LARGEST, SMALLEST_TEMPERATURE, bias_fault, is_token
from genai_compiler.read.suggest import did_you_mean

CARRIED = {
    "temperature": "sampling_temperature",
    "top_k": "sampling_top_k",
    "top_p": "sampling_top_p",
    "min_p": "sampling_min_p",
    "seed": "seed",
}
"""Option -> the runtime role whose input carries it to a sampler that is a graph."""

OWN_FIELDS = ("min_p", "random_seed", "logit_bias")
"""Defaults that this runtime takes beside the standard's; the struct is open (1.3)."""

_POLICY_ONLY: Mapping[str, Any] = {
    "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "logit_bias": {},
}  # fmt: skip
_BEAMS_ONLY = {"length_penalty": 1.0, "diversity_penalty": 0.0, "early_stopping": None}
_LARGEST_SEED = (1 << 64) - 1
Found = tuple[str, tuple[str, ...], str, str, Severity]
"""Code, path below `generation`, what is wrong, way out, severity."""


def check_generation_defaults(package: Package) -> tuple[Problem, ...]:
    """Errors for values that no run can take, warnings for those without effect."""
    generation = package.metadata.generation
    if generation is None:
        return ()
    found = list(_overrides(package.workflow, {name: each.input for name, each in generation.overrides.items()}))
    if generation.defaults is not None:
        found += _defaults(generation.defaults, package)
    return tuple(
        Problem(code, package.places.find(path), format_path(path), what, help, severity)
        for code, path, what, help, severity in (
            (code, ("generation", *field), what, help, severity) for code, field, what, help, severity in found
        )
    )


def _defaults(defaults: GenerationDefaults, package: Package) -> Iterator[Found]:
    stated = defaults.model_dump(exclude_none=True)
    yield from _bounds(stated)
    yield from _biases(stated.get("logit_bias"), package)
    yield from _searches(stated)
    yield from _lengths(stated, package)
    yield from _unreached(stated, package)
    known = {*GenerationDefaults.model_fields, *OWN_FIELDS}
    for field in sorted(set(stated) - known):
        yield _warned(field, f"'{field}' has no effect: it is no generation option here", did_you_mean(field, known))


def _bounds(stated: Mapping[str, Any]) -> Iterator[Found]:
    rules: dict[str, tuple[str, Callable[[float], bool]]] = {
        "temperature": (
            "0 (greedy), or within 1e-30 and 1e30",
            lambda v: v == 0 or SMALLEST_TEMPERATURE <= v <= LARGEST,
        ),
        "top_p": ("within 0 and 1", lambda v: 0 <= v <= 1),
        "min_p": ("within 0 and 1", lambda v: 0 <= v <= 1),
        "repetition_penalty": ("above 0, 1e30 at most; 1 is none", lambda v: 0 < v <= LARGEST),
        "random_seed": ("a whole number within 0 and 2**64-1; -1 is none", lambda v: -1 <= v <= _LARGEST_SEED),
    }
    for field, (wanted, fits) in rules.items():
        value = stated.get(field)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        whole = field != "random_seed" or isinstance(value, int)
        if value is not None and not (number and whole and fits(value)):
            yield (
                "bad-value",
                ("defaults", field),
                f"{field} is {as_written(value)}; it must be {wanted}",
                "",
                Severity.ERROR,
            )


def _biases(bias: Any, package: Package) -> Iterator[Found]:
    """`logit_bias`: token id, as text -> what is added to its score."""
    if bias is None:
        return
    path = ("defaults", "logit_bias")
    if not isinstance(bias, dict):
        help = 'write {"7": -2.5}'
        yield (
            "wrong-type",
            path,
            f"logit_bias is {as_written(bias)}; it maps token ids to numbers",
            help,
            Severity.ERROR,
        )
        return
    ids = [each for each in (package.text.ids.count, package.sampled_ids or 0, _width(package)) if each]
    entries: dict[Any, Any] = bias
    for token, delta in entries.items():
        if not is_token(token) or (ids and int(token) >= min(ids)):
            what = f"logit_bias names {as_written(token)}, which is no token id"
            help = f"ids are 0 to {min(ids) - 1}" if ids else "ids are whole numbers from 0 on"
            yield "bad-value", path, what, help, Severity.ERROR
        elif what := bias_fault(token, delta):
            yield "bad-value", path, what, FORBIDS, Severity.ERROR


def _width(package: Package) -> int:
    return (package.metadata.model and package.metadata.model.vocab_size) or 0


def _searches(stated: Mapping[str, Any]) -> Iterator[Found]:
    if stated.get("num_beams", 1) > 1:
        what = f"num_beams is {stated['num_beams']}: beam search is not compiled"
        help = "set it to 1 (greedy, or do_sample for sampling)"
        yield "unsupported-search", ("defaults", "num_beams"), what, help, Severity.ERROR
    if stated.get("num_return_sequences", 1) > 1:
        what = f"num_return_sequences is {stated['num_return_sequences']}: several sequences a prompt are not compiled"
        yield "unsupported-search", ("defaults", "num_return_sequences"), what, "set it to 1", Severity.ERROR
    for field, neutral in _BEAMS_ONLY.items():
        if field in stated and stated[field] != neutral:
            yield _warned(field, f"{field} has no effect: it weighs or ends beams, and there are none")


def _lengths(stated: Mapping[str, Any], package: Package) -> Iterator[Found]:
    least, most = stated.get("min_length", 0), stated.get("max_length")
    context = context_of(package)
    if most is not None and 0 < context.length < most:
        whose = "model's max_sequence_length is" if context.length == context.stated else "graph's positions are"
        what = f"max_length is {most}, but the {whose} {context.length}; {context.length} is taken"
        help = "max_length counts prompt and output together"
        yield "length-over-context", ("defaults", "max_length"), what, help, Severity.WARNING
    if most is not None and least > most:
        yield _warned("min_length", f"min_length {least} is above max_length {most}: output always ends there")


def _unreached(stated: Mapping[str, Any], package: Package) -> Iterator[Found]:
    """Defaults that a package with a sampler of its own has no input for."""
    if _runtime_policy(package.workflow):
        return
    roles = {each.role.role for each in package.workflow.inputs.values() if isinstance(each.role, RuntimeRole)}
    neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **_POLICY_ONLY}
    for field, value in neutral.items():
        if field in stated and stated[field] != value and CARRIED.get(field) not in roles:
            yield _warned(field, f"{field} has no effect: the package's own sampler has no input for it")


def _overrides(workflow: Workflow, inputs: Mapping[str, str]) -> Iterator[Found]:
    for field, name in inputs.items():
        declared, wanted = workflow.inputs.get(name), CARRIED.get(field)
        if declared is None or wanted is None or not isinstance(declared.role, RuntimeRole):
            continue
        if declared.role.role != wanted:
            what = f"a caller's {field} goes to the input of role {wanted}, and '{name}' has role {declared.role.role}"
            help = f"name the input of role {wanted}"
            yield "override-role", ("overrides", field, "input"), what, help, Severity.WARNING


def _runtime_policy(workflow: Workflow) -> bool:
    """Whether the runtime chooses tokens: every option then has an effect."""
    return any(
        each.contract is not None and each.contract.id == "onnx-genai.token-policy"
        for each in workflow.components.values()
    )


def _warned(field: str, what: str, help: str = "remove it") -> Found:
    return "ignored-key", ("defaults", field), what, help, Severity.WARNING
