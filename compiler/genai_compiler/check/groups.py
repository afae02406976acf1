"""State-service groups: layout, lengths, updates (standard, 12.9)."""

from genai_compiler.check.fault import GROUPS, STATE, Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.check.state_cells import groups_of, members
from genai_compiler.check.tensors import is_control, is_integer
from genai_compiler.check.walk import inputs_of
from genai_compiler.read.document import (
    AppendUpdate,
    IndexedScatter,
    Invariant,
    ReplaceUpdate,
    StateCell,
    StateGroup,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V181": Rule("blank-name", "A group names its layout."),
    "V182": Rule("unknown-cell", "A group's `logical_lengths` is a declared cell."),
    "V183": Rule("row-counts", "A group's `logical_lengths` is a semantic integer cell of rank 1."),
    "V184": Rule("unknown-cell", "A group's `total_length` is a declared cell."),
    "V185": Rule("group-axis", "A group that appends or scatters has a sequence axis."),
    "V186": Rule("group-axis", "A group that replaces has no sequence axis."),
    "V187": Rule("group-invariant", "A cell of a group that replaces keeps its shape."),
    "V188": Rule("scatter-lengths", "A group that scatters has `logical_lengths`."),
    "V189": Rule("unknown-cell", "A scatter's `write_indices` is a declared cell."),
    "V190": Rule("row-counts", "A scatter's `write_indices` is a semantic integer cell of rank 1."),
    "V191": Rule("scatter-capacity", "A scatter's `capacity` is a declared input or cell."),
    "V192": Rule("scatter-capacity", "A scatter's `capacity` is one integer."),
    "V193": Rule("unknown-component", "A scatter names ports of declared components."),
    "V194": Rule("unknown-port", "A scatter names input ports that their component declares."),
    "V195": Rule("scatter-ports", "A scatter says where each component of the group takes its write indices."),
    "V196": Rule("scatter-ports", "A scatter says where each component with keys and values takes its lengths."),
    "V197": Rule("group-invariant", "A cell of a group that scatters keeps its shape."),
    "V201": Rule("unknown-group", "A cascade names declared groups."),
    "V202": Rule("rollback-bound", "A group that can roll back can roll back at least one position."),
}


def check_groups(workflow: Workflow) -> Faults:
    """Every state-service group by itself."""
    groups = groups_of(workflow)
    for name, group in groups.items():
        path = (*GROUPS, name)
        if blank(group.layout):
            yield Fault("V181", (*path, "layout"), f"group '{name}' names no layout", "e.g. layout: bnsh")
        yield from _row_cell(workflow, group.logical_lengths, "V182", "V183", (*path, "logical_lengths"))
        if group.total_length is not None and group.total_length not in workflow.state:
            what = f"no state cell '{group.total_length}' is declared"
            yield Fault("V184", (*path, "total_length"), what, did_you_mean(group.total_length, workflow.state))
        yield from _update(workflow, name, group, path)
        yield from _capabilities(groups, group, (*path, "capabilities"))


def _row_cell(workflow: Workflow, name: str | None, unknown: str, wrong: str, path: Path) -> Faults:
    """A cell with one semantic integer a row."""
    if name is None:
        return
    cell = workflow.state.get(name)
    if cell is None:
        yield Fault(unknown, path, f"no state cell '{name}' is declared", did_you_mean(name, workflow.state))
    elif not is_integer(cell.contract) or cell.contract.rank != 1 or cell.state_class != "semantic":
        what = f"cell '{name}' does not hold one semantic integer for each row"
        yield Fault(wrong, path, what, "use an integer cell of rank 1 and class semantic")


def _update(workflow: Workflow, name: str, group: StateGroup, path: Path) -> Faults:
    update, axis = group.update, group.sequence_axis
    if isinstance(update, AppendUpdate | IndexedScatter) and axis is None:
        what = f"group '{name}' is updated by {update.kind} and does not say on which axis"
        yield Fault("V185", path, what, "add sequence_axis")
    if isinstance(update, ReplaceUpdate):
        if axis is not None:
            what = f"group '{name}' is replaced whole, so it has no sequence axis"
            yield Fault("V186", (*path, "sequence_axis"), what, "remove it, or use append or indexed_scatter")
        yield from _invariant("V187", name, dict(members(workflow, name)), "replaces")
    if isinstance(update, IndexedScatter):
        yield from _scatter(workflow, name, group, update, path)


def _invariant(rule: str, group: str, cells: dict[str, StateCell], how: str) -> Faults:
    for name, cell in cells.items():
        if not isinstance(cell.recurrence, Invariant):
            what = f"group '{group}' {how} its state, so cell '{name}' can't be {cell.recurrence.kind}"
            yield Fault(rule, (*STATE, name, "recurrence"), what, "write kind: invariant")


def _scatter(workflow: Workflow, name: str, group: StateGroup, update: IndexedScatter, path: Path) -> Faults:
    place = (*path, "update")
    if group.logical_lengths is None:
        what = f"group '{name}' writes by index and does not say how much of each row is valid"
        yield Fault("V188", path, what, "add logical_lengths")
    yield from _row_cell(workflow, update.write_indices, "V189", "V190", (*place, "write_indices"))
    yield from _capacity(workflow, update.capacity, (*place, "capacity"))
    for field, ports in (
        ("write_indices_ports", update.write_indices_ports),
        ("kv_length_ports", update.kv_length_ports),
    ):
        yield from _ports(workflow, ports, (*place, field))
    yield from _entries(name, group, update, place)
    cells = dict(members(workflow, name))
    for each in (update.write_indices, group.logical_lengths):
        cells.pop(each or "", None)
    yield from _invariant("V197", name, cells, "scatters into")


def _capacity(workflow: Workflow, name: str, path: Path) -> Faults:
    declared = workflow.inputs.get(name) or workflow.state.get(name)
    if declared is None:
        what = f"the capacity '{name}' is neither an input nor a state cell"
        yield Fault("V191", path, what, did_you_mean(name, (*workflow.inputs, *workflow.state)))
    elif not is_control(declared.contract):
        yield Fault("V192", path, f"the capacity '{name}' is not one integer", "use rank 0, or the static shape [1]")


def _ports(workflow: Workflow, ports: dict[str, str], path: Path) -> Faults:
    for name, port in ports.items():
        component = workflow.components.get(name)
        if component is None:
            help = did_you_mean(name, workflow.components)
            yield Fault("V193", (*path, name), f"no component '{name}' is declared", help)
            continue
        declared = inputs_of(component)
        if declared is not None and port not in declared:
            what = f"component '{name}' declares no input '{port}'"
            yield Fault("V194", (*path, name), what, did_you_mean(port, declared))


def _entries(name: str, group: StateGroup, update: IndexedScatter, path: Path) -> Faults:
    for component, cells in group.ports.items():
        if component not in update.write_indices_ports:
            what = f"nothing says which port of '{component}' takes the write indices of group '{name}'"
            yield Fault("V195", (*path, "write_indices_ports"), what, f"add an entry for '{component}'")
        paired = any(alias.role in ("key", "value") for alias in cells.values())
        if paired and component not in update.kv_length_ports:
            what = f"nothing says which port of '{component}' takes the lengths of group '{name}'"
            yield Fault("V196", (*path, "kv_length_ports"), what, f"add an entry for '{component}'")


def _capabilities(groups: dict[str, StateGroup], group: StateGroup, path: Path) -> Faults:
    for at, name in enumerate(group.capabilities.cascade):
        if name not in groups:
            what = f"no state-service group '{name}' is declared"
            yield Fault("V201", (*path, "cascade", at), what, did_you_mean(name, groups))
    if group.capabilities.rollback_positions == 0:
        what = "a rollback of 0 positions is none"
        yield Fault("V202", (*path, "rollback_positions"), what, "remove it, or write how many positions can be undone")
