"""What a manifest declares of a package's inputs, and a request held against it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from genai_runtime.problem import RequestError
from genai_runtime.values import NUMPY, Array

Data = Mapping[str, Any]
"""A manifest's content."""


def input_of(data: Data, *roles: str) -> Mapping[str, Any] | None:
    """The first input with one of these roles."""
    return next((each for each in data["inputs"] if each["role"] in roles), None)


def prompt_tensor(data: Data, prompts: Sequence[Sequence[int]]) -> dict[str, Array]:
    """The prompt input's value: rows right-padded to the longest. Raises RequestError `no-prompt-input`."""
    spec = input_of(data, "prompt_tokens")
    if spec is None:
        raise RequestError("no-prompt-input", "the package has no input for prompt tokens", help="use run(inputs)")
    width = max(len(each) for each in prompts)
    pad, end = data["generation"]["pad_id"] or 0, spec.get("entries") or 1 << 31
    ids = np.full((len(prompts), width), pad if 0 <= pad < end else 0, dtype=NUMPY[spec["dtype"]])
    for row, each in enumerate(prompts):
        ids[row, : len(each)] = each
    return {spec["name"]: ids if spec["rank"] == 2 else ids[0]}


def length_roles(data: Data, most: int) -> dict[str, int]:
    """The roles that bound a run's length, as far as the package has inputs for them."""
    roles = ("max_output_tokens", "max_iterations")
    return {each["role"]: most for each in data["inputs"] if each["role"] in roles}


def given_for(data: Data, tensors: Mapping[str, Array], role: str) -> Array | None:
    """What a caller gave for the input of a role, under its name or its application alias."""
    spec = input_of(data, role)
    if spec is None:
        return None
    return next((tensors[name] for name in (spec["name"], spec["application"]) if name in tensors), None)


def refuse_owned(data: Data, tensors: Mapping[str, Array]) -> None:
    """Values that the runtime's own decoding forms can't be given. Raises RequestError `owned-input`."""
    owned = sorted(set(tensors) & set(data["owned_inputs"]))
    if owned:
        what = f"{', '.join(owned)}: in this package the runtime forms these values itself"
        help = "leave them out; prompts of several lengths go through generate"
        raise RequestError("owned-input", what, help=help)


def checked_overrides(data: Data, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Component overrides that are legal, whether or not the call comes to them (standard 3.10, V338).

    Raises RequestError `bad-override`.
    """
    known: dict[str, list[str]] = {each["component"]: each["replacements"] for each in data["overridable"]}
    unknown = sorted(set(overrides) - set(known))
    if unknown:
        what = f"the package lets no request replace {', '.join(unknown)}"
        raise RequestError("bad-override", what, help=f"replaceable: {', '.join(known) or 'nothing'}")
    for target, other in overrides.items():
        if other != target and other not in known[target]:
            what = f"component '{other}' can't stand in for '{target}'"
            legal = ", ".join(known[target]) or "none"
            raise RequestError(
                "bad-override", what, help=f"components with the same contract, roles and ports: {legal}"
            )
    return overrides
