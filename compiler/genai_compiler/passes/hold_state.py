"""Keep the state cells of an authored loop in one buffer each where a component alone reads and writes them in place.

Before:  loop { %l, %next = invoke model(past=%cell, ids=%t); carry %cell -> %next }
After:   hold cache(%initial)
         loop { %l = invoke model(ids=%t) on cache; check cache within %max }

Needs all of: the group permits aliasing and appends; the cells are past and present of GroupQueryAttention operators,
all of the component's; nothing but that one invoke reads a cell or its next value, in the loop or after it; the total
length that bounds the operators' writes comes from inputs of this invoke. Otherwise the cells stay ordinary carried
values, and a decision says why.
"""

from collections import Counter
from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import (
    Carry,
    Check,
    CheckHeld,
    ExtentCheck,
    Hold,
    Invoke,
    Loop,
    Op,
    Plan,
    SymbolCheck,
    Type,
)
from genai_compiler.plan.state import GROWTH, ROWS, Slot, StateGroup
from genai_compiler.plan.unfit import Unfit
from genai_compiler.plan.uses import all_reads, back_edge, checked_values
from genai_compiler.read.attention import read_counts
from genai_compiler.read.document import AppendUpdate
from genai_compiler.read.document import StateGroup as DeclaredGroup
from genai_compiler.read.token_axis import new_token_source
from genai_compiler.read.total_length import total_length_sources, valid_length_source

HELD_DTYPES = ("float32", "float16")
SEQUENCE_AXIS = 2
"""Of GroupQueryAttention's past and present: [batch, heads, sequence, head size]."""


def hold_state(plan: Plan, profile: Profile) -> Plan:
    """The plan with every group that can be held, held; loops nested in others are left alone."""
    for op in plan.body:
        if isinstance(op, Loop) and not op.advance:
            for name in dict.fromkeys(_group_of(carry, plan) for carry in op.carried):
                if name and profile.groups[name].aliasing != "forbidden":
                    plan = _tried(plan, op.origin, name, profile)
    return plan


def _tried(plan: Plan, origin: str, name: str, profile: Profile) -> Plan:
    try:
        return _held(plan, origin, name, profile)
    except Unfit as why:
        return replace(plan, decisions=(*plan.decisions, f"hold_state: {name} stays carried: {why}"))


def _held(plan: Plan, origin: str, name: str, profile: Profile) -> Plan:
    at, loop = next((at, op) for at, op in enumerate(plan.body) if isinstance(op, Loop) and op.origin == origin)
    declared = profile.groups[name]
    carries = tuple(carry for carry in loop.carried if _group_of(carry, plan) == name)
    invoke = _updater(loop, carries, plan)
    pairs = _pairs(invoke, carries)
    _check_graph(invoke, pairs, profile)
    _check_private(plan, at, loop, carries)
    maximum = _check_law(carries, plan, declared)
    if any(group.name == name for group in plan.groups):
        raise Unfit("another loop holds it already")
    run = _without_cells(invoke, carries, plan, name)
    check = CheckHeld(name, maximum, loop.origin)
    body: tuple[Op, ...] = (*(run if op is invoke else op for op in loop.body), check)
    kept = tuple(carry for carry in loop.carried if carry not in carries)
    cells = tuple((carry.declared, carry.initial) for carry in carries)
    lengths = _lengths(invoke, profile)
    hold = Hold(name, cells, pairs, lengths, loop.max_iterations, SEQUENCE_AXIS, run, loop.origin)
    group = _group(name, invoke.component, carries, pairs, plan, hold)
    steps = (*plan.body[:at], hold, replace(loop, body=body, carried=kept), *plan.body[at + 1 :])
    note = f"hold_state: {name} is {group.storage}: {group.reason}"
    return replace(plan, body=steps, groups=(*plan.groups, group), decisions=(*plan.decisions, note))


def _lengths(invoke: Invoke, profile: Profile) -> tuple[tuple[str, str], ...]:
    """Which inputs tell the total length, the valid entries a row, and the new tokens."""
    model, bound = profile.graphs[invoke.component].model, dict(invoke.inputs)
    totals, valid, new = total_length_sources(model), valid_length_source(model), new_token_source(model)
    if not totals or any(port not in bound for _, port in totals):
        raise Unfit("the total length of its attention operators does not come from widths or sums of bound inputs")
    if valid not in bound:
        raise Unfit("the valid lengths of its attention operators are not row sums of a bound input")
    if new not in bound:
        raise Unfit("the new tokens of its attention operators can't be traced to a bound input")
    return (*totals, ("valid", valid), ("new", new))


def _without_cells(invoke: Invoke, carries: tuple[Carry, ...], plan: Plan, name: str) -> Invoke:
    """The invoke without the cells' ports; what its checks say of them is entailed, or enforced by the operators."""
    types = {value: plan.types[carry.cell] for carry in carries for value in (carry.cell, carry.next)}
    before, alike = _other_checks(invoke.before, types)
    after, _ = _other_checks(invoke.after, types)
    if not {carry.cell for carry in carries} <= alike:
        raise Unfit(f"no contract gives the cells that '{invoke.component}' takes one length")
    return replace(
        invoke,
        inputs=tuple(pair for pair in invoke.inputs if pair[1] not in types),
        outputs=tuple(pair for pair in invoke.outputs if pair[1] not in types),
        before=before,
        after=after,
        held=name,
    )


def _other_checks(checks: tuple[Check, ...], cells: dict[str, Type]) -> tuple[tuple[Check, ...], frozenset[str]]:
    """The checks that remain of these, and the cells of which one said that they are equally long."""
    kept: list[Check] = []
    alike = frozenset[str]()
    for check in checks:
        mentioned = checked_values(check) & set(cells)
        if not mentioned:
            kept.append(check)
        elif isinstance(check, SymbolCheck):
            if any(value in cells and axis == SEQUENCE_AXIS for value, axis, _ in check.places):
                if any(value not in cells or axis != SEQUENCE_AXIS for value, axis, _ in check.places):
                    raise Unfit(f"a contract ties the length of its cells to another extent ('{check.symbol}')")
                alike |= mentioned
            others = tuple(place for place in check.places if place[0] not in cells)
            kept += [replace(check, places=others)] if len(others) > 1 else []
        elif not isinstance(check, ExtentCheck) or check.extent != _fixed_extent(cells[check.value], check.axis):
            raise Unfit("a contract fixes an extent of its cells")
    return tuple(kept), alike


def _fixed_extent(type: Type, axis: int) -> int | str | None:
    return type.dims[axis] if axis != SEQUENCE_AXIS else None


def _group_of(carry: Carry, plan: Plan) -> str:
    return next((cell.group for cell in plan.cells if cell.name == carry.declared), "")


def _updater(loop: Loop, carries: tuple[Carry, ...], plan: Plan) -> Invoke:
    """The one invoke, directly in the loop, that makes every next value of the group."""
    wanted = {carry.next for carry in carries}
    makers = [op for op in loop.body if isinstance(op, Invoke) and wanted & {value for _, value in op.outputs}]
    if len(makers) != 1 or not wanted <= {value for _, value in makers[0].outputs}:
        raise Unfit("its next values are not all made by one step of the loop")
    if plan.component(makers[0].component).overridable or not plan.component(makers[0].component).pure:
        raise Unfit(f"component '{makers[0].component}' may be replaced, or has effects")
    return makers[0]


def _pairs(invoke: Invoke, carries: tuple[Carry, ...]) -> tuple[tuple[str, str], ...]:
    """(past port, present port) of every cell."""
    takes = {value: port for port, value in invoke.inputs}
    gives = {value: port for port, value in invoke.outputs}
    if any(carry.cell not in takes for carry in carries):
        raise Unfit(f"a cell is not read by the step that updates it ('{invoke.component}')")
    return tuple((takes[carry.cell], gives[carry.next]) for carry in carries)


def _check_graph(invoke: Invoke, pairs: tuple[tuple[str, str], ...], profile: Profile) -> None:
    graph = profile.graphs.get(invoke.component)
    if graph is None:
        raise Unfit(f"component '{invoke.component}' is no graph")
    if graph.absent:
        raise Unfit(f"the graph of '{invoke.component}' is absent, and nothing is proved without it")
    ops = graph.signature.cache_ops
    cached = {pair for op in ops for pair in ((op.past_key, op.present_key), (op.past_value, op.present_value))}
    if not ops or set(pairs) != cached:
        raise Unfit(f"its cells are not exactly past and present of the attention operators of '{invoke.component}'")
    other = next((op.op_type for op in ops if op.op_type != "GroupQueryAttention"), "")
    if other:
        raise Unfit(f"{other} is not known to write in place into a buffer that is longer than what is valid")
    if any(op.bounded for op in ops):
        raise Unfit("its attention operators drop what left their window")
    counts = read_counts(graph.model.graph)
    shown = next((present for _, present in pairs if counts[present] != 1), "")
    if shown:
        raise Unfit(f"'{shown}' is also read inside the graph of '{invoke.component}'")


def _check_private(plan: Plan, at: int, loop: Loop, carries: tuple[Carry, ...]) -> None:
    """Cells are read once, by the updater; next values by nothing; neither after the loop."""
    inside = Counter(value for op in loop.body for value in all_reads(op))
    inside.update(back_edge(loop))
    after = {value for op in plan.body[at + 1 :] for value in all_reads(op)}
    for carry in carries:
        if inside[carry.cell] != 1 or inside[carry.next] != 1 or carry.cell in after:
            raise Unfit(f"cell '{carry.declared}' is read by more than the step that updates it")
        if plan.types[carry.cell].dtype not in HELD_DTYPES:
            raise Unfit(f"its cells are {plan.types[carry.cell].dtype}")


def _check_law(carries: tuple[Carry, ...], plan: Plan, declared: DeclaredGroup) -> str:
    cells = [plan.cell(carry.declared) for carry in carries]
    if declared.update is not None and not isinstance(declared.update, AppendUpdate):
        raise Unfit(f"its update is {declared.update.kind}")
    if any(cell.scope != "invocation" or cell.recurrence != "bounded" for cell in cells):
        raise Unfit("a cell outlives the invocation, or is not bounded")
    axes = {declared.sequence_axis, *(cell.axis for cell in cells)}
    if axes != {SEQUENCE_AXIS} or len({carry.maximum for carry in carries}) != 1:
        raise Unfit("its cells are not bounded alike on the sequence axis")
    return carries[0].maximum


def _group(
    name: str,
    component: str,
    carries: tuple[Carry, ...],
    pairs: tuple[tuple[str, str], ...],
    plan: Plan,
    hold: Hold,
) -> StateGroup:
    slots = []
    for carry, (past, present) in zip(carries, pairs, strict=True):
        type = plan.types[carry.cell]
        dims = [_dim(axis, dim, hold.axis) for axis, dim in enumerate(type.dims)]
        slots.append(Slot(past, present, type.dtype, tuple(dims)))
    reason = f"only '{component}' reads and writes its cells, by GroupQueryAttention in place"
    return StateGroup(name, component, "shared-buffer", tuple(slots), None, reason, hold.origin)


def _dim(axis: int, dim: int | str | None, growth: int) -> int:
    if axis == growth:
        return GROWTH
    return dim if isinstance(dim, int) else ROWS
