"""Ops of a plan -> lines of its text (syntax: docs/ir.md)."""

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
    Plan,
    Release,
    SelectToken,
    SpeculativeBlock,
    StartPolicy,
)
from genai_compiler.plan.uses import defines

_MARGIN = 100


def op_lines(op: Op, plan: Plan) -> Iterator[str]:
    """The lines of one op, its regions and its checks indented below it."""
    match op:
        case Invoke():
            held = (f" on {op.held}" if op.held else "") + _adapted(op.adapted) + _steady(op)
            yield _with_origin(f"{_outs(op.outputs)}invoke {op.component}({_ins(op.inputs)}){held}", op.origin)
            yield from (f"  check {_check(each)}" for each in (*op.before, *op.after))
        case Fused():
            yield from op_lines(op.run, plan)
            yield "  or, when a request replaces a member, one by one {"
            yield from (f"    {line}" for each in op.members for line in op_lines(each, plan))
            yield "  }"
        case Loop():
            yield from _loop(op, plan)
        case Branch():
            yield from _branch(op, plan)
        case CheckHeld():
            yield f"check {op.group} within %{op.maximum}"
        case Release():
            yield f"release {', '.join('%' + each for each in op.values)}"
        case Decode() | StartPolicy() | SelectToken() | SpeculativeBlock() | LastRun():
            yield _with_origin(_runtime_step(op), op.origin)
        case _:
            yield _with_origin(_plain(op), op.origin)


def _steady(op: Invoke) -> str:
    return (" steady" if op.steady else "") + (" in numbers" if op.numbers is not None else "")


def _plain(op: SelectAdapters | Copy | Emit | Keep | Hold) -> str:
    match op:
        case SelectAdapters():
            made = ", ".join(f"%{value}" for value in op.made)
            given = ", ".join(f"%{value}" for value in op.inputs)
            return f"{made}{' = ' if made else ''}select adapters({given})"
        case Copy():
            pairs = ", ".join(f"%{target} = %{source}" for source, target in op.pairs)
            return f"copy {pairs}{', first two axes merged' if op.merges else ''}"
        case Emit():
            return _emit(op)
        case Keep():
            return f"keep {op.cell} = %{op.value}"
        case Hold():
            cells = ", ".join(f"{cell}=%{value}" for cell, value in op.cells)
            lengths = ", ".join(f"{kind} of {port}" for kind, port in op.lengths)
            return f"hold {op.group}({cells}) lengths: {lengths}"


def _runtime_step(op: Decode | StartPolicy | SelectToken | SpeculativeBlock | LastRun) -> str:
    """A step that the runtime supplies (standard, 4.3)."""
    match op:
        case Decode():
            fed = ", ".join([f"%{op.tokens}", *(f"{port}=%{value}" for port, value in (*op.media, *op.extras))])
            limit = f", at most %{op.maximum} tokens" if op.maximum else ""
            limit += f", positions %{op.positions} if given" if op.positions else ""
            how = f"{op.phase}{limit}{_adapted(op.adapted)}"
            return f"%{op.logits} = autoregressive-decode {op.component}({fed}) {how}"
        case LastRun():
            made = ", ".join(f"%{value}" for _, value in op.pairs)
            return f"{made} = last run of {op.component}({', '.join(port for port, _ in op.pairs)})"
        case StartPolicy():
            return f"%{op.active}, %{op.done}, %{op.accepted} = start token-policy"
        case SelectToken():
            return f"%{op.token}, %{op.active}, %{op.done}, %{op.accepted} = token-policy(%{op.logits})"
        case SpeculativeBlock():
            made = ", ".join(f"%{each}" for each in defines(op))
            step = f"speculative-block {op.decode.component}(%{op.select.logits}) by {op.proposer}"
            return f"{made} = {step}, at most {op.width} drafts"


def _with_origin(text: str, origin: str) -> str:
    return f"{text:<{_MARGIN}}  # {origin}"


def _ins(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{port}=%{value}" for port, value in pairs)


def _outs(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"%{value}" for _, value in pairs) + " = " if pairs else ""


def _adapted(value: str) -> str:
    return f" adapted by %{value}" if value else ""


def _check(check: Check) -> str:
    if isinstance(check, ExtentCheck):
        return f"%{check.value}[{check.axis}] is {check.extent}"
    if isinstance(check, FormCheck):
        rank = f"of rank {check.rank}" if check.rank >= 0 else ""
        return f"%{check.value} is {' '.join(filter(None, (check.dtype, rank)))}"
    if isinstance(check, CapacityCheck):
        states = ", ".join(f"%{value}[{axis}]" for value, axis in check.states)
        lengths = f" and %{check.lengths}" if check.lengths else ""
        return f"%{check.destinations}{lengths} within %{check.capacity}, the extent of {states or 'nothing'}"
    places = (f"%{value}[{axis}]" + (f"/{factor}" if factor > 1 else "") for value, axis, factor in check.places)
    return f"{check.symbol}: " + " = ".join(places)


def _emit(op: Emit) -> str:
    length = f", first %{op.valid_length}" if op.valid_length else ""
    guard = f", when %{op.when}" if op.when else ""
    rows = ", by row" if op.rowwise else ""
    return f"emit {op.mode} %{op.value} to {op.output} axis {op.axis}{length}{guard}{rows}"


def _loop(op: Loop, plan: Plan) -> Iterator[str]:
    counter = f", counting %{op.iteration}" if op.iteration else ""
    head = f"loop while %{op.continue_when}, at most %{op.max_iterations}, {op.termination}{counter} {{"
    yield _with_origin(head, op.origin)
    for carry in op.carried:
        kept = (", of the same shape" if carry.proved else "") + (", inactive rows keep theirs" if carry.merge else "")
        yield f"  carry %{carry.cell}: {plan.types[carry.cell]} from %{carry.initial}, then %{carry.next}{kept}"
    if op.released_on_entry:
        yield f"  release on entry {', '.join('%' + each for each in op.released_on_entry)}"
    yield from (f"  {line}" for each in op.body for line in op_lines(each, plan))
    if op.advance:
        yield "} between iterations {"
        yield from (f"  {line}" for each in op.advance for line in op_lines(each, plan))
    yield "}"


def _branch(op: Branch, plan: Plan) -> Iterator[str]:
    yield _with_origin(f"branch on %{op.predicate} {{", op.origin)
    for key, ops in op.cases:
        yield f"  case {key} {{"
        yield from (f"    {line}" for each in ops for line in op_lines(each, plan))
        yield "  }"
    if op.default is not None:
        yield "  default {"
        yield from (f"    {line}" for each in op.default for line in op_lines(each, plan))
        yield "  }"
    for join in op.joins:
        sources = ", ".join(f"{key}: %{value}" for key, value in join.cases)
        other = f", default: %{join.default}" if join.default else ""
        yield f"  join %{join.name}: {plan.types[join.name]} = {sources}{other}"
    yield "}"
