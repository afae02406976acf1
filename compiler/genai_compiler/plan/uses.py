"""What each op reads, defines and holds: the one place that knows."""

from collections.abc import Iterator

from genai_compiler.plan.adapted import SelectAdapters
from genai_compiler.plan.ir import (
    Branch,
    CapacityCheck,
    Check,
    CheckHeld,
    Copy,
    Decode,
    Emit,
    ExtentCheck,
    FormCheck,
    Fused,
    Hold,
    Invoke,
    Keep,
    LastRun,
    Loop,
    Op,
    Release,
    SelectToken,
    SpeculativeBlock,
    StartPolicy,
    SymbolCheck,
)


def reads(op: Op) -> tuple[str, ...]:
    """Values an op reads itself, in order; regions nested in it are not looked into, but a region's results are.

    A loop reads its bound and the initial values; the values that its back edge reads are in `back_edge`.
    """
    match op:
        case Invoke():
            return (*(value for _, value in op.inputs), *_checked(op), *([op.adapted] if op.adapted else []))
        case Fused():
            return reads(op.run)
        case SelectAdapters():
            return op.inputs
        case Copy():
            return tuple(source for source, _ in op.pairs)
        case Decode():
            fed = (value for _, value in (*op.extras, *op.media))
            return (op.tokens, *fed, *(each for each in (op.positions, op.maximum, op.adapted) if each))
        case SelectToken():
            return (op.logits,)
        case SpeculativeBlock():
            return (op.select.logits,)
        case Emit():
            return tuple(each for each in (op.value, op.when, op.valid_length) if each)
        case Loop():
            return (op.max_iterations, *(carry.initial for carry in op.carried))
        case Branch():
            return (op.predicate,)
        case Keep():
            return (op.value,)
        case Release() | StartPolicy() | LastRun():
            return ()
        case Hold():
            adapted = (op.run.adapted,) if op.run.adapted else ()
            return (*(value for _, value in op.cells), op.max_iterations, *adapted)
        case CheckHeld():
            return (op.maximum,)


def _checked(op: Invoke) -> tuple[str, ...]:
    """Values that only a check reads: capacity and lengths of a fixed-capacity state."""
    checks = [each for each in op.before if isinstance(each, CapacityCheck)]
    return tuple(name for each in checks for name in (each.capacity, each.lengths) if name)


def back_edge(loop: Loop) -> tuple[str, ...]:
    """Values a loop reads at its head and at the end of each iteration: the predicate and what cells become."""
    controls = (each for carry in loop.carried for each in (carry.increment, carry.maximum) if each)
    return (loop.continue_when, *(carry.next for carry in loop.carried), *controls)


def join_sources(branch: Branch, key: str | None) -> tuple[str, ...]:
    """Values that a branch's joins take from one case (None: the default)."""
    if key is None:
        return tuple(join.default for join in branch.joins if join.default)
    return tuple(value for join in branch.joins for case, value in join.cases if case == key)


def defines(op: Op) -> tuple[str, ...]:
    """Values that an op makes visible to what follows it."""
    match op:
        case Invoke():
            return tuple(value for _, value in op.outputs)
        case Fused():
            return defines(op.run)
        case SelectAdapters():
            return op.made
        case Copy():
            return tuple(target for _, target in op.pairs)
        case LastRun():
            return tuple(value for _, value in op.pairs)
        case Decode():
            return (op.logits,)
        case StartPolicy():
            return (op.active, op.done, op.accepted)
        case SelectToken():
            return (op.token, op.active, op.done, op.accepted)
        case SpeculativeBlock():
            return (*defines(op.select), *defines(op.decode))
        case Loop():
            return tuple(carry.cell for carry in op.carried)
        case Branch():
            return tuple(join.name for join in op.joins)
        case Emit() | Release() | Keep() | Hold() | CheckHeld():
            return ()


def checked_values(check: Check) -> frozenset[str]:
    """Values that a check looks at."""
    match check:
        case ExtentCheck() | FormCheck():
            return frozenset({check.value})
        case CapacityCheck():
            return frozenset({check.destinations, *(value for value, _ in check.states)})
        case SymbolCheck():
            return frozenset(value for value, _, _ in check.places)


def all_reads(op: Op) -> Iterator[str]:
    """Everything an op reads, nested regions included."""
    yield from reads(op)
    yield from inner_reads(op)


def own_reads(op: Op) -> Iterator[str]:
    """What an op reads, when it begins and later, but for what ops nested in it read."""
    yield from reads(op)
    if isinstance(op, Loop):
        yield from back_edge(op)
    if isinstance(op, Branch):
        for key in (*(key for key, _ in op.cases), None):
            yield from join_sources(op, key)


def inner_reads(op: Op) -> Iterator[str]:
    """What an op reads when it has begun: in nested regions, at a back edge, for its results."""
    if isinstance(op, Loop):
        yield from back_edge(op)
        for inner in (*op.body, *op.advance):
            yield from all_reads(inner)
    if isinstance(op, Branch):
        for join in op.joins:
            yield from (value for _, value in join.cases)
            yield from [join.default] if join.default else []
        for region in (*(ops for _, ops in op.cases), op.default or ()):
            for inner in region:
                yield from all_reads(inner)


def regions(op: Op) -> Iterator[tuple[Op, ...]]:
    """The op lists nested directly in an op, in order of execution."""
    match op:
        case Loop():
            yield op.body
            yield op.advance
        case Branch():
            for _, ops in op.cases:
                yield ops
            yield op.default or ()
        case Fused():
            yield (op.run,)
            yield op.members
        case _:
            pass


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Every op, each before what it holds."""
    for op in ops:
        yield op
        for region in regions(op):
            yield from walk(region)
