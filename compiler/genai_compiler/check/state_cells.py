"""State cells: leases, recurrences, groups, ownership (standard, 12.9)."""

from collections.abc import Iterator

from genai_compiler.check.fault import STATE, Fault, Faults, Path, Rule, Rules
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
    "V180": Rule("state-escapes", "A cell the workflow does not manage leaves through a checkpoint only."),
}


def check_cells(workflow: Workflow) -> Faults:
    """Every cell by itself and as a member of its group."""
    emitted = {step.value for _, step in walk(workflow.steps) if isinstance(step, EmitStep)}
    for name, cell in workflow.state.items():
        path, rule = (*STATE, name), cell.recurrence
        yield from _lease(cell, path)
        yield from _release(cell, path)
        yield from _export(name, cell, workflow, emitted, path)
        if isinstance(rule, Growing | Bounded) and rule.axis >= cell.contract.rank:
            what = f"the cell varies on axis {rule.axis} and has rank {cell.contract.rank}"
            yield Fault("V169", (*path, "recurrence", "axis"), what, "axes count from 0")
        if cell.service_group is not None:
            yield from _membership(cell, workflow, path)


def members(workflow: Workflow, group: str) -> Iterator[tuple[str, StateCell]]:
    """The cells that a group holds."""
    return ((name, cell) for name, cell in workflow.state.items() if cell.service_group == group)


def groups_of(workflow: Workflow) -> dict[str, StateGroup]:
    """The declared groups."""
    return workflow.serving.state_service.groups if workflow.serving is not None else {}


def _lease(cell: StateCell, path: Path) -> Faults:
    lease, place = cell.session, (*path, "session")
    if lease is None:
        return
    if cell.scope != "session" and lease.continuation is None:
        what = "session settings stand on a cell that lives for one invocation"
        yield Fault("V165", place, what, "remove them, or write scope: session")
    if lease.policy == "copy_on_write":
        what = "copy-on-write sessions are not part of this runtime generation"
        yield Fault("V166", (*place, "policy"), what, "write policy: exclusive")
    if lease.ttl_seconds is not None:
        what = "sessions with a time to live are not part of this runtime generation"
        yield Fault("V167", (*place, "ttl_seconds"), what, "remove ttl_seconds")
    if lease.optimistic_metadata_version:
        what = "optimistic versions of session state are not part of this runtime generation"
        yield Fault("V168", (*place, "optimistic_metadata_version"), what, "remove the field")


def _release(cell: StateCell, path: Path) -> Faults:
    place = (*path, "release_boundary")
    if cell.management != "workflow" and cell.release_boundary is None:
        what = f"the cell is managed by '{cell.management}' and does not say when it is released"
        yield Fault("V177", path, what, "add release_boundary: invocation, session or row")
    elif cell.management == "workflow" and cell.release_boundary is not None:
        what = "the workflow manages this cell, so nothing outside releases it"
        yield Fault("V178", place, what, "remove release_boundary, or write management: runtime")
    elif cell.release_boundary == "session" and cell.scope != "session":
        what = "the cell lives for one invocation and can't be released at the end of a session"
        yield Fault("V179", place, what, "write release_boundary: invocation or row, or scope: session")


def _export(name: str, cell: StateCell, workflow: Workflow, emitted: set[str], path: Path) -> Faults:
    if cell.management == "workflow" or not (name in emitted or name in workflow.outputs):
        return
    group = groups_of(workflow).get(cell.service_group or "")
    if group is None or group.checkpoint is None:
        how = "is emitted" if name in emitted else "has the name of a workflow output"
        what = f"the cell is managed by '{cell.management}' and {how}, but no checkpoint exports it"
        yield Fault("V180", path, what, "publish another value, or declare the group's checkpoint")


def _membership(cell: StateCell, workflow: Workflow, path: Path) -> Faults:
    groups, name = groups_of(workflow), cell.service_group or ""
    group = groups.get(name)
    if group is None:
        what = f"no state-service group '{name}' is declared"
        yield Fault("V170", (*path, "service_group"), what, did_you_mean(name, groups))
        return
    yield from _member_axis(cell, name, group, path)
    if request_axis(cell.contract) is None:
        what = f"group '{name}' serves rows and the cell's contract has no request axis"
        yield Fault("V174", (*path, "contract"), what, "declare batch_layout request_aligned")
    if cell.management != "runtime":
        what = f"the cell belongs to group '{name}' and is managed by '{cell.management}'"
        yield Fault("V176", (*path, "management"), what, "write management: runtime")
    accepted = workflow.serving.accepted_len if workflow.serving is not None else None
    rule = cell.recurrence
    if isinstance(rule, Growing) and accepted is not None and rule.increment != accepted:
        what = f"a cell of a group grows by what serving accepts ('{accepted}'), not by '{rule.increment}'"
        yield Fault("V175", (*path, "recurrence", "increment"), what, f"write increment: {accepted}")


def _member_axis(cell: StateCell, name: str, group: StateGroup, path: Path) -> Faults:
    axis, rule = group.sequence_axis, cell.recurrence
    if axis is not None and axis >= cell.contract.rank:
        what = f"group '{name}' grows on axis {axis} and the cell has rank {cell.contract.rank}"
        yield Fault("V171", (*path, "contract"), what, "correct the group's sequence_axis or the cell's rank")
    if not isinstance(rule, Growing | Bounded) or isinstance(group.update, ReplaceUpdate | IndexedScatter):
        return
    if axis is None:
        what = f"the cell varies on axis {rule.axis} and its group '{name}' has no sequence_axis"
        yield Fault("V173", (*path, "recurrence"), what, f"add sequence_axis: {rule.axis} to the group")
    elif rule.axis != axis and rule.axis < cell.contract.rank:
        what = f"the cell varies on axis {rule.axis} and its group '{name}' on axis {axis}"
        yield Fault("V172", (*path, "recurrence", "axis"), what, "write the same axis on both")
