"""Session cells that no loop carries: which inputs they stand in for, and which step's value they take (standard, 3.8).

A step that consumes a session cell's initializer reads what the session has stored; so does a step that feeds the
cell's port of its service group, whose output then becomes the cell.
"""

from collections.abc import Iterator

from genai_compiler.check.walk import invokes, walk
from genai_compiler.plan.report import WORKFLOW, Report
from genai_compiler.read.document import LoopStep, StateCell, StatePortAlias, Workflow


def session_inputs(workflow: Workflow, report: Report) -> dict[str, str]:
    """Workflow input -> the session cell whose stored value takes its place. Reports an input that two cells claim."""
    found: dict[str, str] = {}
    for name, cell in _session_cells(workflow):
        for given in sorted(_read_as(name, cell, workflow) & set(workflow.inputs)):
            if found.setdefault(given, name) != name:
                what = f"steps read '{given}' as the state of '{found[given]}' and of '{name}': which one is not told"
                report.error("shared-initializer", (*WORKFLOW, "state", name), what, "give each an input of its own")
    return found


def group_writes(workflow: Workflow) -> dict[str, str]:
    """Session cell -> the value that its group's component gives back, where a step binds that port."""
    return {
        name: step.outputs[alias.output]
        for name, cell in _session_cells(workflow)
        for component, alias in _aliases(name, cell, workflow)
        for _, step in invokes(workflow)
        if step.component == component and alias.output in step.outputs
    }


def _session_cells(workflow: Workflow) -> Iterator[tuple[str, StateCell]]:
    """Session cells that no loop carries, but for a conversation, which the runtime keeps itself.

    Where a loop carries the cell, that is how it is read, and its initializer is a value like any other.
    """
    carried = {each.cell for _, step in walk(workflow.steps) if isinstance(step, LoopStep) for each in step.carried}
    for name, cell in workflow.state.items():
        kept = cell.session is not None and cell.session.continuation is not None
        if cell.scope == "session" and name not in carried and not kept:
            yield name, cell


def _read_as(name: str, cell: StateCell, workflow: Workflow) -> set[str]:
    """Names by which steps read a cell outside a loop's carry."""
    ports = {(component, alias.input) for component, alias in _aliases(name, cell, workflow)}
    return {
        value
        for _, step in invokes(workflow)
        for port, value in step.inputs.items()
        if value == cell.initializer or (step.component, port) in ports
    }


def _aliases(name: str, cell: StateCell, workflow: Workflow) -> Iterator[tuple[str, StatePortAlias]]:
    groups = workflow.serving.state_service.groups if workflow.serving is not None else {}
    group = groups.get(cell.service_group or "")
    for component, cells in (group.ports if group is not None else {}).items():
        if name in cells:
            yield component, cells[name]
