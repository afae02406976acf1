"""What a loaded package says about itself, as plain data."""

from collections.abc import Mapping
from typing import Any

from genai_runtime.options import ROLES
from genai_runtime.row_selection import ROLE as ROW_SELECTION
from genai_runtime.runtime_steps import DECODE, POLICY
from genai_runtime.sessions import Sessions
from genai_runtime.speculation import described as drafting


def is_asked_for(given: Mapping[str, Any]) -> bool:
    """Whether a caller has to give it: `run` refuses to go without. What the document itself holds is no question."""
    answered = given["source"] == "request" and given["role"] in {*ROLES.values(), ROW_SELECTION}
    return bool(given["required"]) and given["default"] is None and not answered


def described(data: Mapping[str, Any], sessions: Sessions) -> dict[str, Any]:
    """The manifest's facts that a caller acts on, and what the sessions really use."""
    return {
        "name": data["name"],
        "dialect": data["dialect"],
        "compiler": data["compiler"],
        "identity": data["identity"],
        "cache_dependencies": data["cache_dependencies"],
        "inputs": [{**each, "required": is_asked_for(each)} for each in data["inputs"]],
        "media": [{name: each[name] for name in ("kind", "input", "tensors", "required")} for each in data["media"]],
        "outputs": data["outputs"],
        "profiles": [
            {name: each[name] for name in ("name", "kind", "version", "batch_invariance", "outputs", "pooling")}
            for each in data["profiles"]
        ],
        "state_groups": data["state_groups"],
        "session_cells": data["session_cells"],
        "adapters": [each["alias"] for each in data["adapters"].get("artifacts", ())],
        "policy": data["generation"]["policy"],
        "runtime_steps": [DECODE, POLICY] if data["generation"]["policy"] == "runtime" else [],
        "speculation": drafting(data),
        "prefill_chunk": sessions.prefill_chunk,
        "context_length": data["generation"]["context_length"],
        "end_ids": data["generation"]["end_ids"],
        "providers": sessions.active_providers(),
        "threads": sessions.settings.options.get("intra_op_num_threads"),
        "threads_from": sessions.settings.threads_from,
    }
