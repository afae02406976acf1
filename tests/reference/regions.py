"""Sequences, loops and branches (metadata standard 3.4, 3.5)."""

import numpy as np

from tests.reference import executors
from tests.reference.document import child_steps
from tests.reference.invoke import invoke
from tests.reference.machine import Env, Machine, read
from tests.reference.values import (
    Array,
    Document,
    ReferenceError,
    literal_shape,
    row_axis,
    row_factor,
    whole_number,
    whole_numbers,
)


def run_steps(machine: Machine, steps: list[Document], env: Env) -> None:
    """Run steps in order; their definitions go into `env`."""
    for step in steps:
        match step["kind"]:
            case "sequence":
                run_steps(machine, step["steps"], env)
            case "invoke":
                invoke(machine, step, env)
            case "emit":
                read(env, step["value"])
                machine.publisher.emit(step, env)
            case "branch":
                _branch(machine, step, env)
            case "loop":
                _loop(machine, step, env)
            case other:
                raise ReferenceError("execution", f"step kind {other!r}")


def _branch(machine: Machine, step: Document, env: Env) -> None:
    key = _branch_key(step["predicate"], read(env, step["predicate"]))
    chosen = step["cases"].get(key, step.get("default"))
    if chosen is None:
        raise ReferenceError("predicate", f"no case for {key!r} and no default")
    inside = dict(env)
    run_steps(machine, [chosen], inside)
    for name, phi in (step.get("outputs") or {}).items():
        source = phi["cases"].get(key) if key in step["cases"] else phi.get("default")
        if source is None or source not in inside:
            raise ReferenceError("phi", f"branch output {name!r} has no source for {key!r}")
        env[name] = inside[source]
        for cell in _final_phis(machine.workflow["steps"]).get((id(step), name), ()):
            if machine.cells[cell]["scope"] == "session":
                machine.final_cells[cell] = env[name]


def _final_phis(steps: list[Document]) -> dict[tuple[int, str], list[str]]:
    """Branch outputs by step and name -> the cells whose final reference they become (3.5).

    A cell's final reference is its name after the loop that carries it, then each phi that has the last as a source.
    """
    final: dict[str, str] = {}
    found: dict[tuple[int, str], list[str]] = {}

    def visit(steps: list[Document]) -> None:
        for step in steps:
            visit(child_steps(step))
            final.update({carry["cell"]: carry["cell"] for carry in step.get("carried") or []})
            for name, phi in (step.get("outputs") or {}).items() if step["kind"] == "branch" else ():
                sources = {*phi["cases"].values(), phi.get("default")}
                moved = [cell for cell, last in final.items() if last in sources]
                final.update(dict.fromkeys(moved, name))
                found[id(step), name] = moved

    visit(steps)
    return found


def _branch_key(name: str, predicate: Array) -> str:
    if predicate.size != 1 or predicate.dtype.kind not in "biu":
        raise ReferenceError("predicate", f"predicate {name!r} must be one bool or integer")
    only = predicate.reshape(()).item()
    return str(only).lower() if isinstance(only, bool) else str(only)


def _loop(machine: Machine, step: Document, env: Env) -> None:
    run_steps(machine, step.get("setup") or [], env)
    limit = whole_number(step["max_iterations"], read(env, step["max_iterations"]))
    cells = {carry["cell"]: _first_value(machine, carry, env).copy() for carry in step.get("carried") or []}
    iteration = step.get("iteration")
    if iteration and iteration["value"] in env:
        raise ReferenceError("control", f"induction value {iteration['value']!r} exists already")
    for index in range(limit):
        body = {**env, **cells}
        active = _active_rows(machine, step, body)
        if not active.any():
            break
        if iteration:
            body[iteration["value"]] = _induction(machine, iteration["contract"], index)
        machine.iterations += 1
        run_steps(machine, step["steps"], body)
        cells = (
            {carry["cell"]: _next_value(machine, carry, cells, body, active) for carry in step["carried"]}
            if step.get("carried")
            else {}
        )
    env.update(cells)
    for cell, value in cells.items():
        if machine.cells[cell]["scope"] == "session":
            machine.final_cells[cell] = value


def _first_value(machine: Machine, carry: Document, env: Env) -> Array:
    cell = machine.cells[carry["cell"]]
    value = machine.stored(carry["cell"])
    if value is None:
        value = read(env, carry.get("initial") or cell["initializer"])
    machine.scope.check(carry["cell"], value, cell["contract"])
    return value


def _active_rows(machine: Machine, step: Document, body: Env) -> Array:
    """The rows of the pre-test; a request that ignores EOS doesn't look at a generation loop's predicate."""
    in_graph = not executors.is_canonical(machine.workflow)
    if step.get("termination") == "generation_eos" and not machine.stop_on_eos and in_graph:
        return np.ones(1, np.bool_)
    predicate = read(body, step["continue_when"])
    if predicate.dtype != np.bool_ or predicate.ndim > 1 or predicate.size == 0:
        raise ReferenceError("predicate", f"{step['continue_when']!r} must be bool, scalar or [B]")
    return predicate.reshape(-1)


def _induction(machine: Machine, contract: Document, index: int) -> Array:
    return np.full(literal_shape(contract, None, machine.scope), index, np.int64)


def _next_value(machine: Machine, carry: Document, cells: Env, body: Env, active: Array) -> Array:
    name, cell = carry["cell"], machine.cells[carry["cell"]]
    current = cells[name]
    if cell.get("service_group") and carry["next"] not in body:
        return current
    following = read(body, carry["next"])
    _check_recurrence(machine, name, current, following, body)
    if active.size == 1 or active.all() or cell.get("service_group"):
        return following.copy()
    return _keep_inactive(name, cell, current, following, active)


def _keep_inactive(name: str, cell: Document, current: Array, following: Array, active: Array) -> Array:
    """The body's value with the old coordinates of inactive rows restored."""
    axis = row_axis(cell["contract"])
    if axis is None:
        raise ReferenceError("inactive_rows", f"state {name!r} has no request axis to keep rows on")
    rows = np.repeat(active, row_factor(cell["contract"]))
    for value in (current, following):
        if value.shape[axis] != len(rows):
            raise ReferenceError("inactive_rows", f"state {name!r} batch {value.shape[axis]} vs {len(rows)} rows")
    grown = cell["recurrence"]["kind"] == "growing"
    if current.shape != following.shape and not grown:
        raise ReferenceError("inactive_rows", f"state {name!r} changes shape while rows are inactive")
    merged = following.copy()
    old = tuple(slice(0, extent) for extent in current.shape)
    mask = (~rows).reshape([-1 if at == axis else 1 for at in range(current.ndim)])
    merged[old] = np.where(mask, current, merged[old])
    return merged


def _check_recurrence(machine: Machine, name: str, current: Array, following: Array, body: Env) -> None:
    cell = machine.cells[name]
    law = cell["recurrence"]
    if current.dtype != following.dtype or current.ndim != following.ndim:
        raise ReferenceError("recurrence", f"state {name!r} changes its type or rank")
    free = law.get("axis") if law["kind"] != "invariant" else _runtime_axis(machine, cell)
    for axis, (before, after) in enumerate(zip(current.shape, following.shape, strict=True)):
        if axis != free and before != after:
            raise ReferenceError("recurrence", f"state {name!r} axis {axis} changes from {before} to {after}")
    if law["kind"] == "invariant":
        return
    limits = whole_numbers(law["max"], read(body, law["max"]))
    before, after = current.shape[law["axis"]], following.shape[law["axis"]]
    if law["kind"] == "growing":
        steps = whole_numbers(law["increment"], read(body, law["increment"]))
        _check_growth(name, cell, before, after, steps, limits)
    elif before > max(limits, default=0):
        raise ReferenceError("recurrence", f"state {name!r} stood at {before}, above {max(limits, default=0)}")
    if after > max(limits, default=0):
        raise ReferenceError("recurrence", f"state {name!r} reached {after}, above {max(limits, default=0)}")


def _check_growth(name: str, cell: Document, before: int, after: int, steps: list[int], limits: list[int]) -> None:
    if len(steps) == 1 and len(limits) == 1:
        if after != before + steps[0]:
            raise ReferenceError("recurrence", f"state {name!r} grew by {after - before}, declared {steps[0]}")
        return
    if not cell.get("service_group"):
        raise ReferenceError("recurrence", f"state {name!r} grows per row without a service group")
    if len(limits) not in (1, len(steps)) and len(steps) != 1:
        raise ReferenceError("recurrence", f"state {name!r} has {len(steps)} increments, {len(limits)} limits")
    pairs = max(len(steps), len(limits))
    wide_steps, wide_limits = (x * pairs if len(x) == 1 else x for x in (steps, limits))
    if any(step > limit for step, limit in zip(wide_steps, wide_limits, strict=True)):
        raise ReferenceError("recurrence", f"state {name!r} grows a row beyond its limit")


def _runtime_axis(machine: Machine, cell: Document) -> int | None:
    """The axis on which an executor-owned dense cache may grow although it is declared invariant (10.3)."""
    group = machine.groups.get(cell.get("service_group") or "", {})
    owned = cell.get("management") == "runtime" and executors.is_canonical(machine.workflow)
    replaced = (group.get("update") or {}).get("kind") in ("indexed_scatter", "replace")
    return group.get("sequence_axis") if owned and not replaced else None
