"""The steps a runtime supplies in the canonical single-decoder form (metadata standard 10.3), greedy only."""

from collections.abc import Mapping

import numpy as np

from tests.reference.graphs import session
from tests.reference.machine import Env, Machine
from tests.reference.values import Array, Document

DECODE = "onnx-genai.autoregressive-decode"
POLICY = "onnx-genai.token-policy"


def _contract(component: Document) -> str:
    return str((component.get("contract") or {}).get("id", ""))


def is_token_policy(component: Document) -> bool:
    """A binding that a runtime must execute: the standard's token policy."""
    return component["implementation"]["kind"] == "binding" and _contract(component) == POLICY


def is_canonical(workflow: Document) -> bool:
    """A document that leaves its decode step to the runtime."""
    return any(is_token_policy(component) for component in workflow["components"].values())


def synthesised_inputs(workflow: Document) -> set[str]:
    """Required application inputs a runtime forms itself: masks and positions of the decode step."""
    if not is_canonical(workflow):
        return set()
    names: set[str] = set()
    for component in workflow["components"].values():
        if _contract(component) == DECODE:
            roles = component["ports"].get("roles", {})
            names |= {port for port, role in roles.items() if role in ("attention_mask", "position_ids")}
    return {
        name
        for name, spec in workflow["inputs"].items()
        if spec["source"]["kind"] == "application" and spec["source"]["name"] in names
    }


def adjust_feeds(
    machine: Machine, name: str, bound: Mapping[str, str], feeds: Mapping[str, Array], env: Env
) -> dict[str, Array]:
    """The feeds of the decode step with the gaps of the canonical form filled; any other step is left alone."""
    component = machine.workflow["components"][name]
    fed = dict(feeds)
    if _contract(component) != DECODE or not is_canonical(machine.workflow):
        return fed
    roles = component["ports"].get("roles", {})
    tokens = next(port for port, role in roles.items() if role == "token_ids")
    fed[tokens] = _sequence(machine, bound[tokens], env)
    past = _past(machine, name, fed, len(fed[tokens]))
    machine.prompt_mask = _mask(machine, fed, roles, fed[tokens].shape, past)
    positions = np.maximum(np.cumsum(machine.prompt_mask, axis=1) - 1, 0)
    for port, role in roles.items():
        if role == "attention_mask":
            fed[port] = machine.prompt_mask
        if role == "position_ids":
            fed[port] = positions[:, past:]
    return fed


def _sequence(machine: Machine, value: str, env: Env) -> Array:
    """The cell that the bound prompt initialises: the prompt at first, the last token afterwards."""
    for cell, spec in machine.cells.items():
        if spec["initializer"] == value and cell in env:
            return env[cell]
    return env[value]


def _past(machine: Machine, name: str, fed: dict[str, Array], rows: int) -> int:
    """Replace seeds by empty caches; how many positions the caches hold."""
    graph = session(machine.package / machine.workflow["components"][name]["implementation"]["artifact"])
    shapes = {port.name: port.shape for port in graph.get_inputs()}
    past = 0
    for group in machine.groups.values():
        axis = group.get("sequence_axis")
        for alias in group.get("ports", {}).get(name, {}).values():
            port = alias["input"]
            extents = [dim if isinstance(dim, int) else 0 for dim in shapes[port]]
            extents[0] = rows
            if machine.prompt_mask is None:
                fed[port] = np.zeros(extents, fed[port].dtype)
            if axis is not None:
                past = fed[port].shape[axis]
    return past


def _mask(
    machine: Machine, fed: Mapping[str, Array], roles: Mapping[str, str], shape: tuple[int, ...], past: int
) -> Array:
    ones = np.ones(shape, np.int64)
    if machine.prompt_mask is not None:
        return np.concatenate([machine.prompt_mask, ones], axis=1)
    given = [fed[port] for port, role in roles.items() if role == "attention_mask" and port in fed]
    return given[0].astype(np.int64) if given else ones


def token_policy(machine: Machine, feeds: Mapping[str, Array], env: Env) -> dict[str, Array]:
    """The next token of each row by argmax at its last position, and who goes on (standard 4.3).

    logits [B,S,V] -> token int64 [B,1], active bool [B], done bool [B], accepted_len int64 [B].
    """
    logits = feeds["logits"]
    rows, width = logits.shape[0], logits.shape[1]
    assert machine.prompt_mask is not None
    new = machine.prompt_mask[:, -width:]
    last = width - 1 - np.argmax(new[:, ::-1] != 0, axis=1)
    token = logits[np.arange(rows), last].argmax(axis=-1).astype(np.int64)
    ended = np.isin(token, _stop_ids(machine, env)) if machine.stop_on_eos else np.zeros(rows, np.bool_)
    active = env["active"] & ~ended
    accepted = env["active"].astype(np.int64)
    return {"token": token[:, None], "active": active, "done": ~active, "accepted_len": accepted}


def _stop_ids(machine: Machine, env: Env) -> Array:
    for name, spec in machine.workflow["inputs"].items():
        if spec["role"].get("role") == "eos_token_ids" and name in env:
            return env[name].reshape(-1)
    return np.array([], np.int64)
