"""Release every value after its last read, so that its storage may go while the run continues.

Before:  %a = invoke f(%x); %b = invoke g(%a); loop { ... %b ... }
After:   %a = invoke f(%x); %b = invoke g(%a); release %a; loop { ... }; release %b

A value read inside a loop but defined outside it is released after the loop; one that only a loop's entry reads (what
cells start as, the bound) as soon as the cells have it. Values that a region hands on (joins, what cells become) are
not released in it.
"""

from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Branch, Decode, Loop, Op, Plan, Release, SelectToken, StartPolicy
from genai_compiler.plan.uses import all_reads, back_edge, defines, inner_reads, join_sources, reads


def mark_last_reads(plan: Plan, profile: Profile) -> Plan:
    """The plan with `release` after last reads."""
    inputs = {each.name for each in plan.inputs} | {each.present_as for each in plan.inputs if each.present_as}
    return replace(plan, body=_region(plan.body, inputs, set()))


def _region(ops: tuple[Op, ...], mine: set[str], kept: set[str]) -> tuple[Op, ...]:
    mine = mine.union(*(_named(op) for op in ops))
    last = {value: at for at, op in enumerate(ops) for value in (*defines(op), *all_reads(op)) if value in mine}
    ended = dict[int, set[str]]()
    for value, place in last.items():
        if value not in kept:
            ended.setdefault(place, set()).add(value)
    marked: list[Op] = []
    for at, op in enumerate(ops):
        dead = ended.get(at, set())
        marked.append(_inside(op, dead))
        later = sorted(dead - _entry_only(op))
        if later and at + 1 < len(ops):
            marked.append(Release(tuple(later)))
    return tuple(marked)


def _named(op: Op) -> tuple[str, ...]:
    """Values that an op leaves in the run's own names; those of the runtime's decoding stay inside the runtime."""
    if isinstance(op, Decode | StartPolicy | SelectToken) or (isinstance(op, Loop) and op.advance):
        return ()
    return defines(op)


def _entry_only(op: Op) -> set[str]:
    """Values that a loop reads when it is entered and never again."""
    if not isinstance(op, Loop) or op.advance:
        return set()
    return set(reads(op)) - set(inner_reads(op)) - set(defines(op))


def _inside(op: Op, dead: set[str]) -> Op:
    match op:
        case Loop() if op.advance:
            return op
        case Loop():
            body, entered = _region(op.body, set(), _loop_keeps(op)), tuple(sorted(dead & _entry_only(op)))
            return replace(op, body=body, released_on_entry=entered)
        case Branch():
            cases = tuple((key, _region(ops, set(), set(join_sources(op, key)))) for key, ops in op.cases)
            default = _region(op.default, set(), set(join_sources(op, None))) if op.default is not None else None
            return replace(op, cases=cases, default=default)
        case _:
            return op


def _loop_keeps(loop: Loop) -> set[str]:
    return {*back_edge(loop), *(carry.cell for carry in loop.carried)}
