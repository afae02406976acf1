"""State cells: leases, recurrences, groups, ownership (standard, 12.9)."""

from collections.abc import Iterator

from genai_compiler.check.fault import STATE, Faults, Path, Rule, Rules
from genai_compiler.check.tensors import request_axis
from genai_compiler.check.walk import walk
from genai_compiler.read.document import (
    Bounded,
    EmitStep,
    Growing,
    IndexedScatter,
    ReplaceUpdate,
    StateCell,
    StateGroup,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V165": Rule("session-settings", "Only a session-scoped cell has session settings."),
    "V166": Rule("session-policy", "A session lease is exclusive."),
    "V167": Rule("session-lease", "A session lease has no time to live."),
    "V168": Rule("session-lease", "A session lease has no optimistic versioning."),
    "V169": Rule("axis-out-of-rank", "A recurrence varies an axis that its cell has."),
    "V170": Rule("unknown-group", "A cell's service group is declared."),
    "V171": Rule("axis-out-of-rank", "A group's sequence axis is an axis of each member cell."),
    "V172": Rule("member-axis", "A member cell varies on its group's sequence axis."),
    "V173": Rule("member-axis", "A member cell varies only where its group has a sequence axis."),
    "V174": Rule("member-rows", "A member cell has a request axis."),
    "V175": Rule("member-growth", "A growing member cell grows by the value of `serving.accepted_len`."),
    "V176": Rule("member-management", "A member cell is managed by the runtime."),
    "V177": Rule("release-boundary", "A cell that a runtime or an external owner manages says when it is released."),
    "V178": Rule("release-boundary", "A cell that the workflow manages has no release boundary."),
    "V179": Rule("release-boundary", "Only a session-scoped cell is released at the end of a session."),
    "V180": Rule("state-escapes", "A cell that the workflow does not manage leaves the package through a checkpoint only."),
}


def check_cells(workflow: Workflow) -> Faults:
    """Every cell by itself and as a member of its group."""
    emitted = {step.value for _, step in walk(workflow.steps) if isinstance(step, EmitStep)}
    for name, cell in workflow.state.items():
        path = (*STATE, name)
        yield from _lease(cell, path)
        yield from _ownership(name, cell, workflow, emitted, path)
        rule = cell.recurrence
        if isinstance(rule, Growing | Bounded) and rule.axis >= cell.contract.rank:
            what = f"the cell varies on axis {rule.axis} and has rank {cell.contract.rank}"
            yield "V169", (*path, "recurrence", "axis"), what, "axes count from 0"  # type: ignore[misc]
        if cell.service_group is not None:
            yield from _membership(name, cell, workflow, path)


def members(workflow: Workflow, group: str) -> Iterator[tuple[str, StateCell]]:
    """The cells that a group holds."""
    return ((name, cell) for name, cell in workflow.state.items() if cell.service_group == group)


def groups_of(workflow: Workflow) -> dict[str, StateGroup]:
    """The declared groups."""
    return workflow.serving.state_service.groups if workflow.serving is not None else {}
