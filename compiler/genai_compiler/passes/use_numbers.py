"""Let Python compute what a light run makes of single numbers, for one row that has settled.

Before:  loop { %m, %n = invoke update(mask=%mask, length=%length) steady; ... }
After:   loop { %m, %n = invoke update(mask=%mask, length=%length) steady in numbers; ... }

A session run costs some microseconds before it has computed anything; an addition of two numbers some hundredths of
one. For one row the counters, flags and comparisons of a policy are single numbers, its mask gains one entry, and its
end tokens are a list that stays as it is. The shorter way through the loop (plan/settled_loops.py) then does without
the session: it reads the numbers where the run would read them, and writes what it makes of them where the run would
have written it. Where a number would leave its type, or a place its row or table, the session runs after all, and says
or does what it always did. So results are the same to the last bit; batches and the first iterations are as they were.
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.passes.joinable import Joinable
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.edits import Linked, Member
from genai_compiler.plan.ir import Fused, Invoke, Loop, Op, Plan, Type
from genai_compiler.plan.settled_loops import Surroundings, has_shorter_way, run_of
from genai_compiler.plan.uses import all_reads, defines
from genai_compiler.read.single_numbers import DTYPES, GraphOfNumbers, NotNumbers, NumberProgram, number_program

STEP = 0.04
"""Microseconds of a step, about."""
MOST = 60
"""Steps up to which Python is certainly faster than a session: it takes 3 us at least (ONNX Runtime 1.32)."""


def use_numbers(plan: Plan, profile: Profile) -> Plan:
    """The plan in which such runs say what is computed of numbers."""
    around, notes = Surroundings(plan), list[str]()
    body = tuple(
        _in_numbers(op, plan, profile, notes) if isinstance(op, Loop) and has_shorter_way(op, around) else op
        for op in plan.body
    )
    return replace(plan, body=body, decisions=(*plan.decisions, *notes)) if notes else plan


def _in_numbers(loop: Loop, plan: Plan, profile: Profile, notes: list[str]) -> Loop:
    wanted, moving = _wanted(loop), _moving(loop)
    return replace(loop, body=tuple(_judged(op, wanted, moving, plan, profile, notes) for op in loop.body))


def _judged(
    op: Op, wanted: frozenset[str], moving: frozenset[str], plan: Plan, profile: Profile, notes: list[str]
) -> Op:
    run = run_of(op)
    if run is None or run.held or plan.component(run.component).host is not None:
        return op
    try:
        program = _program(run, wanted, moving, plan, profile)
    except NotNumbers as why:
        notes.append(f"use_numbers: {run.component} stays a run of a session: {why}")
        return op
    notes.append(f"use_numbers: {run.component}: {len(program.steps)} steps of single numbers for one row that settled")
    run = replace(run, numbers=program)
    return replace(op, run=run) if isinstance(op, Fused) else run


def _wanted(loop: Loop) -> frozenset[str]:
    """What is read in the loop, and what cells that are read have been."""
    found = {loop.continue_when, *(value for op in loop.body for value in all_reads(op))}
    for _ in loop.carried:
        found |= {each.next for each in loop.carried if each.cell in found}
    return frozenset(found)


def _moving(loop: Loop) -> frozenset[str]:
    """What may be another tensor in another iteration."""
    made = {value for op in loop.body for value in defines(op)}
    return frozenset({*made, *(each.cell for each in loop.carried), loop.iteration})


def _program(
    run: Invoke, wanted: frozenset[str], moving: frozenset[str], plan: Plan, profile: Profile
) -> NumberProgram:
    """The run's graphs in numbers; names around them are the run's own ports."""
    types = {port: plan.types[value] for port, value in run.inputs}
    numbers = {port: type.dtype for port, type in types.items() if _is_one(type)}
    rows = {port: type.dtype for port, type in types.items() if port not in numbers and _is_row(type)}
    results = [port for port, value in run.outputs if value in wanted]
    lists = {port: types[port].dtype for port, value in run.inputs if value not in moving and _is_list(types[port])}
    lists = {port: dtype for port, dtype in lists.items() if port not in numbers}
    program = number_program(list(_graphs(run, plan, profile)), numbers, rows, results, lists)
    if len(program.steps) > MOST:
        raise NotNumbers(f"it has {len(program.steps)} steps")
    odd = next((port for port, _ in program.outputs if not _is_one(plan.types[dict(run.outputs)[port]])), "")
    if odd:
        raise NotNumbers(f"'{odd}' is not declared as one number a row")
    return program


def _graphs(run: Invoke, plan: Plan, profile: Profile) -> Iterator[GraphOfNumbers]:
    edit = plan.component(run.component).edit
    reason = Joinable(plan, profile, {}).fixed(run) if edit is None else ""
    if reason:
        raise NotNumbers(reason)
    if edit is not None and (not isinstance(edit, Linked) or edit.hoist is not None or edit.own):
        raise NotNumbers("its graph is changed in another way")
    inputs, outputs = (tuple((port, port) for port, _ in ports) for ports in (run.inputs, run.outputs))
    alone = Member(run.component, inputs, outputs)
    for at, member in enumerate(edit.members if edit is not None else (alone,)):
        graph = profile.graphs.get(member.component)
        if graph is None or graph.absent:
            raise NotNumbers(f"there is no graph of '{member.component}'")
        yield GraphOfNumbers(graph.model, f"{at}.{member.component}/", dict(member.inputs), dict(member.outputs))


def _is_one(type: Type) -> bool:
    """Whether a tensor has one element when there is one row."""
    return type.dtype in DTYPES.values() and type.ranked and all(_single(type))


def _is_row(type: Type) -> bool:
    return type.dtype in DTYPES.values() and type.ranked and type.rank == 2 and next(_single(type))


def _is_list(type: Type) -> bool:
    return type.dtype in DTYPES.values() and type.ranked and type.rank == 1 and type.row_axis is None


def _single(type: Type) -> Iterator[bool]:
    for axis, dim in enumerate(type.dims):
        yield dim == 1 or (axis == type.row_axis and type.row_factor == 1)
