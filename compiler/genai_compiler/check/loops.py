"""Loops: bounds, predicates, induction values and carried cells (standard, 12.10)."""

from collections.abc import Callable

from genai_compiler.check.fault import STATE, Path, Rule, Rules
from genai_compiler.check.finals import Finals, hidden
from genai_compiler.check.scope import REPORTED, Scope, Value
from genai_compiler.check.tensors import described, is_control, is_flag, mismatch
from genai_compiler.check.walk import Walk
from genai_compiler.read.document import Bounded, Carry, Growing, LoopStep, StateCell, Step
from genai_compiler.read.places import format_path
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V238": Rule("loop-limit", "`max_iterations` is one integer, visible after the loop's setup."),
    "V239": Rule("induction-type", "An induction value is int64 of rank 0 or 1."),
    "V240": Rule("induction-shape", "An induction value has as many shape entries as its rank."),
    "V241": Rule("unknown-cell", "A carry names a declared state cell."),
    "V242": Rule("unknown-value", "The initializer of a carried cell is visible where its loop stands."),
    "V243": Rule("type-mismatch", "The initializer of a carried cell fits the cell (a bounded axis may differ)."),
    "V244": Rule("unknown-value", "A carry's `initial` is visible where its loop stands."),
    "V245": Rule("type-mismatch", "A carry's `initial` fits the cell (a bounded axis may differ)."),
    "V246": Rule("unknown-value", "A recurrence's `increment` and `max` are visible outside the loop body."),
    "V247": Rule("recurrence-control", "A recurrence's `increment` and `max` are one integer each."),
    "V248": Rule("unknown-value", "`continue_when` is visible before the body runs."),
    "V249": Rule("loop-predicate", "`continue_when` is a bool of rank 0 or 1."),
    "V250": Rule("unknown-value", "A carry's `next` is defined in the loop body."),
    "V251": Rule("type-mismatch", "A carry's `next` fits the cell (the varying axis may differ)."),
    "V252": Rule("cell-carried-twice", "A cell is carried once in a chain of scopes."),
}

Run = Callable[[Walk, tuple[Step, ...], Path, Scope], Finals]


def check_loop(walk: Walk, step: LoopStep, path: Path, scope: Scope, run: Run) -> Finals:
    """One loop; afterwards its setup values and its cells are visible in `scope`."""
    final = run(walk, step.setup, (*path, "setup"), scope)
    _limit(walk, step, path, scope)
    body = scope.inner()
    for at, carry in enumerate(step.carried):
        _enter(walk, carry, (*path, "carried", at), scope, body)
    _predicate(walk, step, path, body)
    _induction(walk, step, path, body)
    if not step.steps:
        walk.fault("V229", (*path, "steps"), "the loop has no body", "remove the loop, or say what it does")
    inside = run(walk, step.steps, (*path, "steps"), body)
    after = {each.cell: _next(walk, each, (*path, "carried", at), body) for at, each in enumerate(step.carried)}
    for cell, value in after.items():
        if scope.taken(cell) is None:
            scope.names[cell] = value
    state = walk.workflow.state
    carried: Finals = {cell: cell for cell in after if cell in state and state[cell].scope == "session"}
    return {**final, **hidden(inside), **carried}


def _limit(walk: Walk, step: LoopStep, path: Path, scope: Scope) -> None:
    place, name = (*path, "max_iterations"), step.max_iterations
    value = walk.read("V238", name, place, scope, f"'{name}' is not visible where the loop reads its bound")
    if value is not None and value.contract is not None and not is_control(value.contract):
        what = f"the bound '{name}' is {described(value.contract)}, not one integer"
        walk.fault("V238", place, what, "use an integer of rank 0, or of shape [1]")


def _predicate(walk: Walk, step: LoopStep, path: Path, body: Scope) -> None:
    place, name = (*path, "continue_when"), step.continue_when
    needs = f"'{name}' is not visible before the loop body runs"
    value = walk.read("V248", name, place, body, needs)
    if value is not None and value.contract is not None and not is_flag(value.contract):
        what = f"the predicate '{name}' is {described(value.contract)}, not a bool of rank 0 or 1"
        walk.fault("V249", place, what, "carry a liveness cell of dtype bool")


def _induction(walk: Walk, step: LoopStep, path: Path, body: Scope) -> None:
    if step.iteration is None:
        return
    contract, place = step.iteration.contract, (*path, "iteration")
    if contract.dtype != "int64" or contract.rank > 1:
        what = f"the induction value is {described(contract)}, not int64 of rank 0 or 1"
        walk.fault("V239", (*place, "contract"), what, "declare it int64 with rank 0, or rank 1")
    elif (contract.rank == 0 and contract.shape) or (contract.rank == 1 and len(contract.shape or ()) != 1):
        what = f"the induction value has rank {contract.rank} and shape {list(contract.shape or ())}"
        walk.fault("V240", (*place, "contract"), what, "write shape [] for rank 0, one extent for rank 1")
    walk.define(step.iteration.value, Value(contract), place, body)


def _enter(walk: Walk, carry: Carry, path: Path, scope: Scope, body: Scope) -> None:
    cell = walk.workflow.state.get(carry.cell)
    if cell is None:
        what = f"no state cell '{carry.cell}' is declared"
        walk.fault("V241", (*path, "cell"), what, did_you_mean(carry.cell, walk.workflow.state))
        body.names[carry.cell] = REPORTED
        return
    _initial(walk, carry, cell, path, scope)
    _controls(walk, carry, cell, path, scope)
    known = body.taken(carry.cell)
    if known is not None and known.carried:
        what = f"the cell '{carry.cell}' is already carried by a loop visible from here"
        walk.fault("V252", (*path, "cell"), what, "use a cell of its own for this loop")
    elif known is not None:
        what = f"'{carry.cell}' already names another value, so no loop can carry a cell of that name here"
        walk.fault("V236", (*path, "cell"), what, "rename one of them")
    body.names[carry.cell] = Value(cell.contract, carried=True)


def _initial(walk: Walk, carry: Carry, cell: StateCell, path: Path, scope: Scope) -> None:
    exempt = cell.recurrence.axis if isinstance(cell.recurrence, Bounded) else None
    name, field = cell.initializer, format_path((*STATE, carry.cell, "initializer"))
    seeded = scope.find(name)
    if carry.initial is None or seeded is None:
        needs = f"the initializer '{name}' of cell '{carry.cell}' ({field}) is not visible at the loop that carries it"
        seeded = walk.read("V242", name, path, scope, needs)
    if seeded is not None and seeded.contract is not None:
        fault = mismatch(seeded.contract, cell.contract, exempt)
        if fault:
            what = f"the initializer '{name}' can't seed cell '{carry.cell}' ({field}): {fault}"
            walk.fault("V243", path, what, "make the initializer and the cell's contract agree")
    if carry.initial is None:
        return
    place = (*path, "initial")
    needs = f"'{carry.initial}' is not visible at the loop that starts cell '{carry.cell}' from it"
    value = walk.read("V244", carry.initial, place, scope, needs)
    if value is not None and value.contract is not None:
        fault = mismatch(value.contract, cell.contract, exempt)
        if fault:
            what = f"'{carry.initial}' can't start cell '{carry.cell}': {fault}"
            walk.fault("V245", place, what, "make it and the cell's contract agree")


def _controls(walk: Walk, carry: Carry, cell: StateCell, path: Path, scope: Scope) -> None:
    rule = cell.recurrence
    controls = {"max": rule.max} if isinstance(rule, Growing | Bounded) else {}
    if isinstance(rule, Growing):
        controls = {"increment": rule.increment, **controls}
    for field, name in controls.items():
        where = format_path((*STATE, carry.cell, "recurrence", field))
        needs = f"'{name}' ({where}) is not visible outside the body of the loop that carries '{carry.cell}'"
        value = walk.read("V246", name, path, scope, needs)
        if value is not None and value.contract is not None and not is_control(value.contract):
            what = f"'{name}' ({where}) is {described(value.contract)}, not one integer"
            walk.fault("V247", path, what, "use an integer of rank 0, or of shape [1]")


def _next(walk: Walk, carry: Carry, path: Path, body: Scope) -> Value:
    """Check the carry's `next`; returns what the cell's name means after the loop."""
    place, cell = (*path, "next"), walk.workflow.state.get(carry.cell)
    needs = f"the loop body defines no '{carry.next}', the next value of cell '{carry.cell}'"
    value = walk.read("V250", carry.next, place, body, needs)
    if value is None or cell is None:
        return Value(carried=True, reported=True)
    if value.contract is not None:
        varying = cell.recurrence.axis if isinstance(cell.recurrence, Growing | Bounded) else None
        fault = mismatch(value.contract, cell.contract, varying)
        if fault:
            what = f"'{carry.next}' can't become cell '{carry.cell}': {fault}"
            walk.fault("V251", place, what, "make it and the cell's contract agree")
    return Value(value.contract, carried=True, reported=value.reported)
