"""Plan -> text: the stable, diffable form that people review and that golden files hold (syntax: docs/ir.md)."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from genai_compiler.plan.adapted import SelectAdapters
from genai_compiler.plan.edits import Linked, SelectLast
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.ir import (
    Branch,
    CapacityCheck,
    Check,
    CheckHeld,
    Component,
    Copy,
    Decode,
    Emit,
    ExtentCheck,
    Fused,
    Hold,
    Input,
    Invoke,
    Keep,
    Loop,
    Op,
    Plan,
    Release,
    SelectToken,
    SpeculativeBlock,
    StartPolicy,
)
from genai_compiler.plan.speculation_text import speculation_lines
from genai_compiler.plan.state import GROWTH, PAGES, ROWS, Pages, StateGroup
from genai_compiler.plan.uses import defines

_MARGIN = 100
_CONTROLS = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff]"
)
"""What breaks a line or hides text: listed, since what counts as printable differs between versions of Python."""


def plan_text(plan: Plan) -> str:
    """The whole plan; ends with a newline. Same plan, same bytes. Control characters of a name are escaped."""
    return "\n".join(map(_printable, _lines(plan))) + "\n"


def _printable(line: str) -> str:
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), line)


def _lines(plan: Plan) -> Iterator[str]:
    yield f"plan {plan.name} from {plan.dialect}"
    yield f"requires {', '.join(plan.capabilities) or 'nothing'}"
    yield ""
    for each in plan.inputs:
        yield f"input %{each.name}: {each.type}  {_input_facts(each)}"
    for output in plan.outputs:
        yield f"output {output.name}: {output.type}  {output.role}{', row-wise' if output.rowwise else ''}"
    for component in plan.components:
        yield ""
        effects = "" if component.pure else ", effects"
        edited = ", edited" if isinstance(component.edit, SelectLast) else ""
        yield f"component {component.name} = {_implementation(component)}{edited}{effects}"
        if isinstance(component.edit, SelectLast):
            yield f"  edit after {component.edit.label}: one position a row, port {component.edit.port}"
        if isinstance(component.edit, Linked) and component.edit.hoist is not None:
            hoist = component.edit.hoist
            yield f"  edit: positions are selected of {hoist.hidden}, before it becomes {hoist.projected}"
        yield from (f"  in  {port}: {type}" for port, type in component.inputs)
        yield from (f"  out {port}: {type}" for port, type in component.outputs)
        yield from (f"  may be replaced by {each.component}" for each in component.replacements)
    if plan.cells or plan.groups:
        yield ""
    for cell in plan.cells:
        law = cell.recurrence + (f" axis {cell.axis}, at most %{cell.maximum}" if cell.maximum else "")
        group = f", group {cell.group}" if cell.group else ""
        yield f"cell {cell.name}: {cell.type}  {cell.scope}, {law}, starts as %{cell.initializer}{group}"
    for state_group in plan.groups:
        yield from _group(state_group)
    if plan.decoder is not None:
        yield from _decoder(plan)
    yield from map(str, plan.placements)
    if plan.speculation is not None:
        yield from speculation_lines(plan.speculation)
    yield ""
    yield "run {"
    yield from (f"  {line}" for op in plan.body for line in _op(op, plan))
    yield "}"
    if plan.decisions:
        yield ""
        yield from (f"decision {each}" for each in plan.decisions)


def _implementation(component: Component) -> str:
    if isinstance(component.edit, Linked):
        return " + ".join(each.component for each in component.edit.members)
    if component.adapter is None:
        return component.artifact or "the runtime"
    parameters = ", ".join(f"{name}={value}" for name, value in component.adapter.parameters)
    runs = component.adapter.program
    said = ", ".join(runs.components) if isinstance(runs, GraphProgram) else _stated(runs)
    program = f" runs {said}" if runs is not None else ""
    return f"adapter {component.adapter.abi}({parameters}){program}"


def _stated(value: Any) -> str:
    """A program, or a part of it, with the fields that are not at their defaults."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_stated, value))})"
    if not is_dataclass(value):
        return str(value)
    given = [(each, getattr(value, each.name)) for each in fields(value)]
    return f"({', '.join(f'{each.name} {_stated(it)}' for each, it in given if it != each.default)})"


def _input_facts(each: Input) -> str:
    facts = [each.source + (f" '{each.application_name}'" if each.application_name else "")]
    facts += [each.role] if each.role else []
    facts += ["required"] if each.required else []
    facts += [f"default {each.default}"] if each.default is not None else []
    facts += [f"presence %{each.present_as}"] if each.present_as else []
    facts += [f"or what session cell {each.held} holds"] if each.held else []
    return ", ".join(facts)


def _group(group: StateGroup) -> Iterator[str]:
    capacity = f", {group.capacity} positions" if group.capacity is not None else ""
    paged = next((slot.dims[1] for slot in group.slots if PAGES in slot.dims), 0)
    capacity += f" of {paged} positions" if paged else ""
    yield f"group {group.name} of {group.component}: {group.storage}{capacity}, {group.bytes_per_token} bytes a token"
    for slot in group.slots:
        dims = ", ".join({ROWS: "rows", GROWTH: "tokens", PAGES: "pages"}.get(dim, str(dim)) for dim in slot.dims)
        yield f"  {slot.past} -> {slot.present}: {slot.dtype}[{dims}]"


def _decoder(plan: Plan) -> Iterator[str]:
    facts = plan.decoder
    assert facts is not None
    ports = f"tokens {facts.tokens} ({facts.token_dtype}), logits {facts.logits} ({facts.logits_dtype})"
    yield f"decoder {facts.component}: {ports}"
    yield f"  last position only: {_yes(facts.last_logits_only)}; rows of different length: {_yes(facts.ragged)}"
    if facts.mask is not None:
        width = "constant width" if facts.mask.constant_width else "exact width"
        yield f"  mask {facts.mask.port} ({facts.mask.dtype}): {facts.mask.use}, {width}"
    if facts.positions is not None:
        port, dtype, rank = facts.positions
        yield f"  positions {port} ({dtype})" + (", three copies" if rank == 3 else "")
    if facts.front is not None:
        streams = ", ".join(f"{made} -> {taken}" for made, taken in facts.front.streams)
        yield f"  tokens go through {facts.front.component}: {streams}"
    if facts.pages is not None:
        yield from _pages(facts.pages)
    if facts.prompt_component:
        yield f"  with the prompt {facts.prompt_component} runs in its place"
    if facts.window is not None:
        yield f"  prompts go in by {facts.window.size} tokens, filled up with {facts.window.pad}"
    for each in facts.counts:
        yield f"  {_COUNTS[each.kind]}: {each.port} ({each.dtype})"
    if facts.one_token:
        yield "  one token a run: the prompt goes in token by token"


_COUNTS = {
    "written": "written positions a row",
    "valid": "valid positions a row",
    "last": "the only row's positions less one",
    "current": "the only row's positions",
    "room": "positions that the caches have room for",
}


def _pages(pages: Pages) -> Iterator[str]:
    logits = "every token" if pages.per_token else "each row's last token"
    yield f"  rows packed into one axis, logits of {logits}"
    yield f"  rows begin and end: {pages.cumulative[0]} ({pages.cumulative[1]})"
    yield f"  positions a row before a run: {pages.past[0]} ({pages.past[1]})"
    yield f"  pages a row: {pages.table[0]} ({pages.table[1]}), of {pages.block} positions"
    if pages.bounds is not None:
        port, dtype, count = pages.bounds
        yield f"  bounds of the longest row: {port} ({dtype}[{count}])"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _op(op: Op, plan: Plan) -> Iterator[str]:
    match op:
        case Invoke():
            held = (f" on {op.held}" if op.held else "") + _adapted(op.adapted)
            yield _with_origin(f"{_outs(op.outputs)}invoke {op.component}({_ins(op.inputs)}){held}", op.origin)
            yield from (f"  check {_check(each)}" for each in (*op.before, *op.after))
        case Fused():
            yield from _op(op.run, plan)
            yield "  or, when a request replaces a member, one by one {"
            yield from (f"    {line}" for each in op.members for line in _op(each, plan))
            yield "  }"
        case SelectAdapters():
            made = ", ".join(f"%{value}" for value in op.made)
            given = ", ".join(f"%{value}" for value in op.inputs)
            yield _with_origin(f"{made}{' = ' if made else ''}select adapters({given})", op.origin)
        case Copy():
            pairs = ", ".join(f"%{target} = %{source}" for source, target in op.pairs)
            how = ", first two axes merged" if op.merges else ""
            yield _with_origin(f"copy {pairs}{how}", op.origin)
        case Decode():
            fed = ", ".join([f"%{op.tokens}", *(f"{port}=%{value}" for port, value in (*op.media, *op.extras))])
            limit = f", at most %{op.maximum} tokens" if op.maximum else ""
            limit += f", positions %{op.positions} if given" if op.positions else ""
            how = f"{op.phase}{limit}{_adapted(op.adapted)}"
            yield _with_origin(f"%{op.logits} = autoregressive-decode {op.component}({fed}) {how}", op.origin)
        case StartPolicy():
            yield _with_origin(f"%{op.active}, %{op.done}, %{op.accepted} = start token-policy", op.origin)
        case SelectToken():
            made = f"%{op.token}, %{op.active}, %{op.done}, %{op.accepted}"
            yield _with_origin(f"{made} = token-policy(%{op.logits})", op.origin)
        case SpeculativeBlock():
            made = ", ".join(f"%{each}" for each in defines(op))
            step = f"speculative-block {op.decode.component}(%{op.select.logits}) by {op.proposer}"
            yield _with_origin(f"{made} = {step}, at most {op.width} drafts", op.origin)
        case Emit():
            yield _with_origin(_emit(op), op.origin)
        case Keep():
            yield _with_origin(f"keep {op.cell} = %{op.value}", op.origin)
        case Hold():
            cells = ", ".join(f"{cell}=%{value}" for cell, value in op.cells)
            lengths = ", ".join(f"{kind} of {port}" for kind, port in op.lengths)
            yield _with_origin(f"hold {op.group}({cells}) lengths: {lengths}", op.origin)
        case CheckHeld():
            yield f"check {op.group} within %{op.maximum}"
        case Release():
            yield f"release {', '.join('%' + each for each in op.values)}"
        case Loop():
            yield from _loop(op, plan)
        case Branch():
            yield from _branch(op, plan)


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
    yield from (f"  {line}" for each in op.body for line in _op(each, plan))
    if op.advance:
        yield "} between iterations {"
        yield from (f"  {line}" for each in op.advance for line in _op(each, plan))
    yield "}"


def _branch(op: Branch, plan: Plan) -> Iterator[str]:
    yield _with_origin(f"branch on %{op.predicate} {{", op.origin)
    for key, ops in op.cases:
        yield f"  case {key} {{"
        yield from (f"    {line}" for each in ops for line in _op(each, plan))
        yield "  }"
    if op.default is not None:
        yield "  default {"
        yield from (f"    {line}" for each in op.default for line in _op(each, plan))
        yield "  }"
    for join in op.joins:
        sources = ", ".join(f"{key}: %{value}" for key, value in join.cases)
        other = f", default: %{join.default}" if join.default else ""
        yield f"  join %{join.name}: {plan.types[join.name]} = {sources}{other}"
    yield "}"
