"""Drop pure invokes and copies whose results nobody reads, and unread results of what stays.

Before:  %a, %unread = invoke f(%x); %b = invoke g(%x); emit %a
After:   %a = invoke f(%x); emit %a

An invoke of a component with effects stays, and so does every emit, loop and branch.
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.graph import needed_values
from genai_compiler.plan.ir import Branch, Copy, Invoke, Loop, Op, Plan


def drop_dead_steps(plan: Plan, profile: Profile) -> Plan:
    """The plan without steps that change nothing."""
    return replace(plan, body=tuple(_needed(plan.body, plan, needed_values(plan))))


def _needed(ops: tuple[Op, ...], plan: Plan, needed: set[str]) -> Iterator[Op]:
    """What stays of a region."""
    for op in ops:
        match op:
            case Invoke():
                outputs = tuple(pair for pair in op.outputs if pair[1] in needed)
                if outputs or not plan.component(op.component).pure:
                    yield replace(op, outputs=outputs)
            case Copy():
                pairs = tuple(pair for pair in op.pairs if pair[1] in needed)
                if pairs:
                    yield replace(op, pairs=pairs)
            case Loop():
                yield replace(op, body=tuple(_needed(op.body, plan, needed)))
            case Branch():
                cases = tuple((key, tuple(_needed(ops, plan, needed))) for key, ops in op.cases)
                default = tuple(_needed(op.default, plan, needed)) if op.default is not None else None
                joins = tuple(join for join in op.joins if join.name in needed)
                yield replace(op, cases=cases, default=default, joins=joins)
            case _:
                yield op
