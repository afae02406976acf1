"""Drop pure invokes and copies whose results nobody reads, and unread results of what stays.

Before:  %a, %unread = invoke f(%x); %b = invoke g(%x); emit %a
After:   %a = invoke f(%x); emit %a

An invoke of a component with effects stays, and so does every emit, loop and branch.
"""

from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Branch, Copy, Invoke, Loop, Op, Plan
from genai_compiler.plan.uses import all_reads, back_edge, checked_values, defines


def drop_dead_steps(plan: Plan, profile: Profile) -> Plan:
    """The plan without steps that change nothing; repeated until nothing more falls away."""
    while True:
        body = _region(plan.body, plan, set())
        if body == plan.body:
            return plan
        plan = replace(plan, body=body)


def _region(ops: tuple[Op, ...], plan: Plan, wanted: set[str]) -> tuple[Op, ...]:
    kept: list[Op] = []
    for op in reversed(ops):
        op = _inside(op, plan, wanted)
        if _needed(op, plan, wanted):
            kept.append(op)
            wanted = wanted | set(all_reads(op))
    return tuple(reversed(kept))


def _inside(op: Op, plan: Plan, wanted: set[str]) -> Op:
    match op:
        case Invoke():
            read = wanted.union(*map(checked_values, op.after))
            return replace(op, outputs=tuple(pair for pair in op.outputs if pair[1] in read))
        case Copy():
            return replace(op, pairs=tuple(pair for pair in op.pairs if pair[1] in wanted))
        case Loop():
            after = {value for each in op.advance for value in all_reads(each)}
            return replace(op, body=_region(op.body, plan, set(back_edge(op)) | after))
        case Branch():
            joins = tuple(join for join in op.joins if join.name in wanted)
            joined = {value for join in joins for _, value in join.cases} | {join.default for join in joins}
            cases = tuple((key, _region(ops, plan, joined)) for key, ops in op.cases)
            default = _region(op.default, plan, joined) if op.default is not None else None
            return replace(op, cases=cases, default=default, joins=joins)
        case _:
            return op


def _needed(op: Op, plan: Plan, wanted: set[str]) -> bool:
    match op:
        case Invoke():
            return not plan.component(op.component).pure or any(value in wanted for value in defines(op))
        case Copy():
            return bool(op.pairs)
        case _:
            return True
