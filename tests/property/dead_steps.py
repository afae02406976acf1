"""The document without what nothing needs: pure components, and branch outputs, whose values no step reads."""

import copy
from typing import Any

from tests.property.kinds import Document
from tests.reference.document import steps_below


def without_dead_steps(document: Document) -> Document | None:
    """A copy without them; None when every step is needed."""
    changed = copy.deepcopy(document)
    workflow = changed["pipeline"]["workflow"]
    found = False
    while _drop_unread_phis(workflow) or _dead(workflow):
        found = True
        workflow["steps"] = _kept(workflow["steps"], _dead(workflow))
    return changed if found else None


def _drop_unread_phis(workflow: Document) -> bool:
    """Take out branch outputs that nothing reads; those of session cells may be final values and stay."""
    read = set(_reads(workflow))
    if any(cell["scope"] == "session" for cell in (workflow.get("state") or {}).values()):
        return False
    found = False
    for step in list(steps_below(workflow["steps"])):
        outputs = step.get("outputs") if step["kind"] == "branch" else None
        for name in [name for name in outputs or {} if name not in read]:
            del step["outputs"][name]
            found = True
    return found


def _dead(workflow: Document) -> set[int]:
    read = set(_reads(workflow))
    return {
        id(step)
        for step in steps_below(workflow["steps"])
        if step["kind"] == "invoke"
        and not workflow["components"][step["component"]].get("effects")
        and not read & set((step.get("outputs") or {}).values())
    }


def _reads(workflow: Document) -> list[str]:
    """Every name that something reads, in steps, cells and services."""
    names: list[Any] = []
    for step in steps_below(workflow["steps"]):
        names += (step.get("inputs") or {}).values() if step["kind"] == "invoke" else ()
        names += [
            step.get(key) for key in ("value", "when", "valid_length", "predicate", "continue_when", "max_iterations")
        ]
        for carry in step.get("carried") or []:
            names += [carry["next"], carry.get("initial")]
        for phi in (step.get("outputs") or {}).values() if step["kind"] == "branch" else ():
            names += [*phi["cases"].values(), phi.get("default")]
    for cell in (workflow.get("state") or {}).values():
        names += [cell["initializer"], *cell["recurrence"].values()]
    serving = workflow.get("serving") or {}
    return [name for name in (*names, *serving.values()) if isinstance(name, str)]


def _kept(steps: list[Document], dead: set[int]) -> list[Document]:
    kept = [step for step in steps if id(step) not in dead]
    for step in kept:
        for key in ("steps", "setup"):
            if step.get(key):
                step[key] = _kept(step[key], dead)
        for key, case in (step.get("cases") or {}).items() if step["kind"] == "branch" else ():
            step["cases"][key] = {"kind": "sequence", "steps": _kept([case], dead)}
        if step.get("default"):
            step["default"] = {"kind": "sequence", "steps": _kept([step["default"]], dead)}
    return kept
