"""Drop pure invokes, and branches and loops without effects, whose results nobody reads.

Before:  %a = invoke f(%x); %b = invoke g(%x); emit %a
After:   %a = invoke f(%x); emit %a

An invoke of a component with effects stays, and so does every emit and every loop that carries a session cell.
"""

from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Branch, Copy, Invoke, Loop, Op, Plan
from genai_compiler.plan.uses import all_reads, back_edge, defines


def drop_dead_steps(plan: Plan, profile: Profile) -> Plan:
    """The plan without steps that change nothing; repeated until nothing more falls away."""
    while True:
        body = _region(plan.body, plan, {value for _, value in plan.stores})
        if body == plan.body:
            return plan
        plan = replace(plan, body=body)


def _region(ops: tuple[Op, ...], plan: Plan, wanted: set[str]) -> tuple[Op, ...]:
    kept: list[Op] = []
    for op in reversed(ops):
        op = _inside(op, plan)
        if _needed(op, plan, wanted):
            kept.append(op)
            wanted = wanted | set(all_reads(op))
    return tuple(reversed(kept))


def _inside(op: Op, plan: Plan) -> Op:
    match op:
        case Loop():
            after = {value for each in op.advance for value in all_reads(each)}
            return replace(op, body=_region(op.body, plan, set(back_edge(op)) | after))
        case Branch():
            wanted = {value for join in op.joins for _, value in join.cases} | {join.default for join in op.joins}
            cases = tuple((key, _region(ops, plan, wanted)) for key, ops in op.cases)
            default = _region(op.default, plan, wanted) if op.default is not None else None
            return replace(op, cases=cases, default=default)
        case _:
            return op


def _needed(op: Op, plan: Plan, wanted: set[str]) -> bool:
    match op:
        case Invoke():
            return not plan.component(op.component).pure or any(value in wanted for value in defines(op))
        case Copy():
            return any(value in wanted for value in defines(op))
        case _:
            return True
