"""Bind the inputs of one invocation (metadata standard 3.1, 3.2)."""

from collections.abc import Mapping

import numpy as np

from tests.reference.values import Array, Document, ReferenceError, Scope, literal, request_scalar

# What a runtime supplies for a request field that neither the caller nor the document gives (1.8, 3.1).
# A request that asks for nothing is greedy, and a greedy one "forces temperature 0, top_k 1, top_p 1, min_p 0" (3.1).
FALLBACKS: dict[str, bool | int | float] = {
    "seed": 0,
    "sampling_temperature": 0.0,
    "sampling_top_k": 1,
    "sampling_top_p": 1.0,
    "sampling_min_p": 0.0,
}


def bind_inputs(workflow: Document, given: Mapping[str, Array], scope: Scope) -> dict[str, Array]:
    """The environment of the root region: one value a bound input, one bool a `present_as`.

    Raises ReferenceError: unknown_input, missing_input, literal, or a contract's failure.
    """
    declared: Document = workflow.get("inputs", {})
    _refuse_unknown(declared, given)
    env: dict[str, Array] = {}
    for name in sorted(declared):
        value = _caller_value(name, declared[name], given)
        if value is not None:
            scope.check(name, value, declared[name]["contract"])
            env[name] = value
    for name in sorted(declared):
        _refuse_missing(name, declared[name], env)
    for name in sorted(declared):
        value = _default(name, declared[name], scope) if name not in env else None
        if value is not None:
            scope.check(name, value, declared[name]["contract"])
            env[name] = value
    for name in sorted(declared):
        if declared[name].get("present_as"):
            env[declared[name]["present_as"]] = np.array(name in env)
    return env


def _refuse_unknown(declared: Document, given: Mapping[str, Array]) -> None:
    known = set(declared) | {
        spec["source"]["name"] for spec in declared.values() if spec["source"]["kind"] == "application"
    }
    unknown = sorted(set(given) - known)
    if unknown:
        raise ReferenceError("unknown_input", f"undeclared inputs {unknown}")


def _caller_value(name: str, spec: Document, given: Mapping[str, Array]) -> Array | None:
    if name in given:
        return np.asarray(given[name])
    if spec["source"]["kind"] == "application" and spec["source"]["name"] in given:
        return np.asarray(given[spec["source"]["name"]])
    return None


def _default(name: str, spec: Document, scope: Scope) -> Array | None:
    """What an input takes that nobody gave: its literal (3.2), else the runtime's own scalar for its role (3.1)."""
    if spec["source"]["kind"] == "artifact":
        raise ReferenceError("artifact", "an artifact source is no tensor")
    if spec.get("default") is not None:
        return literal(name, spec["default"], spec["contract"], scope)
    role = spec["role"].get("role", "") if spec["source"]["kind"] == "request" else ""
    return request_scalar(name, FALLBACKS[role], spec["contract"], scope) if role in FALLBACKS else None


def _refuse_missing(name: str, spec: Document, env: dict[str, Array]) -> None:
    kind = spec["source"]["kind"]
    role = spec["role"].get("role", "") if kind == "request" else ""
    made = spec.get("default") is not None or role in FALLBACKS or kind == "artifact"
    if name not in env and spec.get("required", True) and not made:
        raise ReferenceError("missing_input", f"required input {name!r} was not supplied")
