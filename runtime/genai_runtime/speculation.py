"""Whether a request's tokens are drafted: as it asks, else as the package's own promise has it (standard, 7.4)."""

from collections.abc import Mapping
from typing import Any

from genai_runtime.given import hold_flags
from genai_runtime.problem import RequestError

_UNSAID: Mapping[str, str] = {
    "workflow": "its document has no 'speculative' block",
    "genai_config v1": "its genai_config.json names no draft model that can be driven (model.draft)",
    "genai_config v2": "its genai_config.json names no session that can draft (pipeline.roles.draft)",
    "model.io": "a document without pipeline.workflow names no proposer",
    "pipeline.models": "a document without pipeline.workflow names no proposer",
    "plain folder": "a folder that declares nothing names no draft model",
}
"""Dialect -> why nothing drafts, where the package says nothing of it that could be followed."""


def speculates(manifest: Mapping[str, Any], wanted: bool | None) -> bool:
    """The answer for one request. wanted: None for the package's own. Raises RequestError
    `no-proposer`, `bad-option`."""
    facts = manifest["speculation"]
    driven = facts is not None and bool(facts["driven"])
    if wanted is None:
        return driven and bool(facts["by_itself"])
    hold_flags(speculate=wanted)
    if wanted and not driven:
        reason = facts["reason"] if facts is not None else _UNSAID.get(manifest["dialect"], "it names no proposer")
        what = f"nothing drafts tokens for this package: {reason}"
        raise RequestError("no-proposer", what, help="leave speculate (--speculate) out; the tokens are the same")
    return wanted


def described(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `describe()` says of it; None for a package without a `speculative` block."""
    facts = manifest["speculation"]
    return None if facts is None else dict(facts)
