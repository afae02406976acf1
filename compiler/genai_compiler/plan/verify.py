"""The Plan's own invariants, checked after every pass: a fault here is the compiler's, never the package's."""

from collections.abc import Iterator
from itertools import zip_longest

from genai_compiler.plan.ir import Branch, Emit, Fused, Invoke, Keep, Loop, Op, Plan, Release
from genai_compiler.plan.uses import back_edge, defines, join_sources, reads, regions


def verify(plan: Plan) -> tuple[str, ...]:
    """Faults in words; empty for a sound plan: single definition, definition before use, known ports, typed values."""
    visible = {each.name for each in plan.inputs} | {each.present_as for each in plan.inputs if each.present_as}
    return tuple(_region(plan.body, plan, visible, set(visible), set()))


def _region(ops: tuple[Op, ...], plan: Plan, visible: set[str], seen: set[str], released: set[str]) -> Iterator[str]:
    """Faults of one region. released: values whose storage has gone; grows as the region releases more."""
    for op in ops:
        for value in reads(op):
            if value not in visible:
                yield f"{_label(op)} reads %{value} before anything defines it"
            if value in released:
                yield f"{_label(op)} reads %{value} after its release"
        yield from _nested(op, plan, visible, seen, released)
        yield from _ports(op, plan)
        for value in defines(op):
            if value in seen and not isinstance(op, Loop):
                yield f"{_label(op)} defines %{value} a second time"
            if value not in plan.types:
                yield f"%{value} has no type"
            visible.add(value)
            seen.add(value)
        if isinstance(op, Release):
            released.update(op.values)


def _nested(op: Op, plan: Plan, visible: set[str], seen: set[str], released: set[str]) -> Iterator[str]:
    if isinstance(op, Loop):
        inner = visible | {carry.cell for carry in op.carried} | ({op.iteration} if op.iteration else set())
        seen |= inner
        released |= set(op.released_on_entry)
        gone = set(released)
        yield from _region(op.body, plan, inner, seen, gone)
        yield from _region(op.advance, plan, inner, seen, gone)
        for value in back_edge(op):
            if value not in inner:
                yield f"{_label(op)} carries %{value}, which its body does not define"
            if value in gone:
                yield f"{_label(op)} carries %{value} after its release"
    if isinstance(op, Fused):
        yield from _region((op.run,), plan, set(visible), set(seen), set(released))
        made = set(visible)
        yield from _region(op.members, plan, made, set(seen), set(released))
        yield from (f"{_label(op)} leaves %{value} undefined" for value in defines(op) if value not in made)
    if isinstance(op, Branch):
        for key, ops in (*op.cases, *(((None, op.default),) if op.default is not None else ())):
            inner = set(visible)
            yield from _region(ops, plan, inner, seen, set(released))
            for value in join_sources(op, key):
                if value not in inner:
                    yield f"{_label(op)} joins %{value}, which case {key} does not define"


def _ports(op: Op, plan: Plan) -> Iterator[str]:
    if isinstance(op, Invoke):
        component = plan.component(op.component)
        for side, pairs, ports in (("input", op.inputs, component.inputs), ("output", op.outputs, component.outputs)):
            known = dict(ports)
            yield from (f"{_label(op)} binds {side} '{port}', which it lacks" for port, _ in pairs if port not in known)
    if isinstance(op, Emit) and op.output not in {each.name for each in plan.outputs}:
        yield f"{_label(op)} emits into '{op.output}', which is not declared"


def _label(op: Op) -> str:
    origin = getattr(op, "origin", "")
    return f"{type(op).__name__.lower()}{f' of {origin}' if origin else ''}"


def changed_effects(before: Plan, after: Plan) -> tuple[str, ...]:
    """The first effect that a pass has moved, lost or added, in words; empty where their order is what it was.

    This is what the effect tokens of a lowered tree stand for (standard, 2.10; V273): one order in each region of what
    is published, of what sessions keep, and of components with effects.
    """
    for old, new in zip_longest(_effects(before.body, before), _effects(after.body, after), fillvalue="nothing"):
        if old != new:
            return (f"the order of effects has changed: {new} where {old} was",)
    return ()


def _effects(ops: tuple[Op, ...], plan: Plan) -> Iterator[str]:
    for op in ops:
        match op:
            case Emit():
                yield f"{_label(op)} into '{op.output}'"
            case Keep():
                yield f"{_label(op)} for '{op.cell}'"
            case Invoke() if not plan.component(op.component).pure:
                yield f"{_label(op)} on '{op.component}'"
            case Loop() | Branch():
                inside = [tuple(_effects(each, plan)) for each in regions(op)]
                if any(inside):
                    yield _label(op)
                    for each in inside:
                        yield from (*each, "its region's end")
            case _:
                pass
