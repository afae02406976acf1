"""Let a run in a loop write its results over those of the iteration before the last: bound once, made by nobody anew.

Before:  loop { %t, %n = invoke island_1(%logits, %count); emit %t; ... }
After:   loop { %t, %n = invoke island_1(%logits, %count) steady; emit %t; ... }

Needs all of: every result has the same extents in every iteration (pass prove_extents); nobody reads it behind the next
iteration, when it is what a cell has become; and nothing may hold on to its storage, as a copy of the name, a branch's
result, a nested loop's cell, a session, native code or a graph that gives its input as an output would. Two sets of
results then take turns, since an iteration reads what the last one made. The runtime copies what it publishes.
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Branch, Emit, Fused, Hold, Invoke, Loop, Op, Plan, Release, SpeculativeBlock
from genai_compiler.plan.uses import defines, own_reads, walk


def keep_results(plan: Plan, profile: Profile) -> Plan:
    """The plan whose steady runs are marked."""
    body = _with_holds(tuple(_marked(op, plan) for op in plan.body))
    runs = [op for op in walk(body) if isinstance(op, Invoke) and op.steady]
    if not runs:
        return plan
    names = ", ".join(dict.fromkeys(op.component for op in runs))
    note = f"keep_results: results of {names} keep their extents: two sets of tensors take turns"
    return replace(plan, body=body, decisions=(*plan.decisions, note))


def _with_holds(body: tuple[Op, ...]) -> tuple[Op, ...]:
    """The ops with the run that each hold is for as it has become; holds stand beside their loops."""
    runs = {op.held: op for op in walk(body) if isinstance(op, Invoke) and op.held}
    return tuple(replace(op, run=runs[op.group]) if isinstance(op, Hold) else op for op in body)


def _marked(op: Op, plan: Plan) -> Op:
    match op:
        case Loop() if not op.advance and not any(isinstance(each, SpeculativeBlock) for each in op.body):
            body = tuple(_marked(each, plan) for each in op.body)
            free = set(op.steady) - set(_lasting(op, body, plan))
            return replace(op, body=tuple(_steady(each, free, plan) for each in body))
        case Branch():
            cases = tuple((key, tuple(_marked(each, plan) for each in ops)) for key, ops in op.cases)
            default = tuple(_marked(each, plan) for each in op.default) if op.default is not None else None
            return replace(op, cases=cases, default=default)
        case _:
            return op


def _steady(op: Op, free: set[str], plan: Plan) -> Op:
    match op:
        case Fused():
            return replace(op, run=_judged(op.run, free, plan))
        case Invoke():
            return _judged(op, free, plan)
        case _:
            return op


def _judged(op: Invoke, free: set[str], plan: Plan) -> Invoke:
    steady = bool(op.outputs) and free.issuperset(defines(op)) and _is_plain(op, plan)
    return replace(op, steady=True) if steady else op


def _is_plain(op: Invoke, plan: Plan) -> bool:
    """A graph that a session runs, or numpy in its place, and that no request changes or replaces."""
    component = plan.component(op.component)
    graph = component.adapter is None and not op.adapted
    return graph and not component.overridable and component.pure and not _hands_on(op, plan)


def _lasting(loop: Loop, body: tuple[Op, ...], plan: Plan) -> Iterator[str]:
    """Values whose storage may be needed behind the next iteration."""
    becomes = {carry.cell: carry.next for carry in loop.carried}
    held = {value for op in walk(body) if not _only_reads(op, plan) for value in own_reads(op)}
    yield from held
    for cell, following in becomes.items():
        if cell in held or any(other != cell and value == cell for other, value in becomes.items()):
            yield following


def _only_reads(op: Op, plan: Plan) -> bool:
    """Whether an op is done with what it reads when it ends."""
    match op:
        case Invoke():
            return plan.component(op.component).adapter is None and not _hands_on(op, plan)
        case Emit() | Release() | Fused():
            return True
        case _:
            return False


def _hands_on(op: Invoke, plan: Plan) -> bool:
    """Whether an output is an input of the same graph: ONNX Runtime gives the argument itself for it, not a copy.

    So may a graph that a request puts in the place of this one.
    """
    own = {port: port for port, _ in (*op.inputs, *op.outputs)}
    names = (own, *(own | dict(each.ports) for each in plan.component(op.component).replacements))
    return any({each[port] for port, _ in op.inputs} & {each[port] for port, _ in op.outputs} for each in names)
