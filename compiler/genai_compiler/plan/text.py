"""Plan -> text: the stable, diffable form that people review and that golden files hold (syntax: docs/ir.md)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from genai_compiler.plan.boundary import Boundary
from genai_compiler.plan.edits import Edited, GatherColumns, Linked, Parts, SelectLast
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.ir import Component, Input, Plan
from genai_compiler.plan.op_text import op_lines
from genai_compiler.plan.speculation_text import speculation_lines
from genai_compiler.plan.state import GROWTH, PAGES, ROWS, Pages, StateGroup

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
        if each.patches is not None:
            yield f"  pictures of {each.patches[1]} patches of {each.patches[0]} pixels, by a table of positions"
        yield from [f"  token ids 0 to {each.entries - 1}"] if each.entries else []
        yield from (f"  axis {axis}: {least} to {most}, by a table of positions" for axis, least, most in each.limits)
    for output in plan.outputs:
        yield f"output {output.name}: {output.type}  {output.role}{', row-wise' if output.rowwise else ''}"
    for component in plan.components:
        yield ""
        yield from _component(component)
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
    yield from (f"  {line}" for op in plan.body for line in op_lines(op, plan))
    yield "}"
    if plan.boundaries:
        yield ""
        yield from _boundaries(plan.boundaries)
    if plan.decisions:
        yield ""
        yield from (f"decision {each}" for each in plan.decisions)


def _boundaries(boundaries: Sequence[Boundary]) -> Iterator[str]:
    """One line for what lies behind a component for one reason."""
    behind = dict[tuple[str, str], dict[str, None]]()
    for each in boundaries:
        behind.setdefault((each.first, each.why), {})[each.second] = None
    yield from (f"boundary {first} | {', '.join(seconds)}: {why}" for (first, why), seconds in behind.items())


def _parts(parts: Parts) -> Iterator[str]:
    crossing = ", ".join(f"{name}[{', '.join(map(str, extents))}]" for name, extents in parts.extents)
    first, second = (f"{name} ({size / 1e6:.1f} MB)" for name, size in zip(parts.names, parts.cut.weights, strict=True))
    yield f"  cut after {parts.cut.label}: {first}, then {second}"
    yield f"  from one to the other: {crossing}"


_FORMS = {"own": ", own session", "host": ", on the host"}


def _component(component: Component) -> Iterator[str]:
    effects = "" if component.pure else ", effects"
    form = _FORMS.get(component.form, "")
    edited = ", edited" if isinstance(component.edit, Edited) else ""
    parts = ", in two sessions" if component.parts is not None else ""
    yield f"component {component.name} = {_implementation(component)}{edited}{parts}{effects}{form}"
    for part in component.edit.parts if isinstance(component.edit, Edited) else ():
        if isinstance(part, SelectLast):
            yield f"  edit after {part.label}: one position a row, port {part.port}"
        elif isinstance(part, GatherColumns):
            yield f"  edit: columns of {part.found.weight}, not rows of {part.found.turned}"
        else:
            yield f"  edit: ports {part.last} and {part.width} in the place of {part.mask}"
    if isinstance(component.edit, Linked) and component.edit.hoist is not None:
        hoist = component.edit.hoist
        yield f"  edit: positions are selected of {hoist.hidden}, before it becomes {hoist.projected}"
    if component.parts is not None:
        yield from _parts(component.parts)
    yield from (f"  in  {port}: {type}" for port, type in component.inputs)
    yield from (f"  out {port}: {type}" for port, type in component.outputs)
    yield from (f"  may be replaced by {each.component}" for each in component.replacements)


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
    yield f"group {group.name} of {group.component}: {group.storage}{capacity}, {group.size}"
    for slot in group.slots:
        words = {ROWS: "rows", GROWTH: "entries" if slot.once else "tokens", PAGES: "pages"}
        dims = ", ".join(words.get(dim, str(dim)) for dim in slot.dims)
        once = ", by the first run alone" if slot.once else ""
        yield f"  {slot.past} -> {slot.present}: {slot.dtype}[{dims}]{once}"


def _decoder(plan: Plan) -> Iterator[str]:
    facts = plan.decoder
    assert facts is not None
    ports = f"tokens {facts.tokens} ({facts.token_dtype}), logits {facts.logits} ({facts.logits_dtype})"
    yield f"decoder {facts.component}: {ports}"
    yield f"  last position only: {_yes(facts.last_logits_only)}; rows of different length: {_yes(facts.ragged)}"
    if facts.mask is not None:
        width = "constant width" if facts.mask.constant_width else "exact width"
        yield f"  mask {facts.mask.port} ({facts.mask.dtype}): {facts.mask.use}, {width}"
    if facts.lengths is not None:
        yield f"  in a mask's place {facts.lengths.last}: last positions, {facts.lengths.width}: how wide it would be"
    if facts.positions is not None:
        port, dtype, rank = facts.positions
        yield f"  positions {port} ({dtype})" + (", three copies" if rank == 3 else "")
    if facts.front is not None:
        kind = {facts.tokens: "the tokens"}
        streams = ", ".join(f"{kind.get(made, made)} -> {taken}" for made, taken in facts.front.streams)
        yield f"  tokens go through {facts.front.component}: {streams}"
    if facts.pages is not None:
        yield from _pages(facts.pages)
    if facts.prompt_component:
        longer = " of two tokens and more" if facts.one_by_step else ""
        yield f"  with the prompt{longer} {facts.prompt_component} runs in its place"
    if facts.switch:
        yield f"  other tables behind {facts.switch} positions"
    if facts.window is not None:
        yield f"  prompts go in by {facts.window.size} tokens, filled up with {facts.window.pad}"
    if facts.shift is not None:
        where, shift = "before" if facts.shift.first else "behind", facts.shift
        yield f"  caches move: {shift.columns} columns, empty ones hold {shift.fill}, padding {where} a prompt"
    for each in facts.counts:
        yield f"  {_COUNTS[each.kind]}: {each.port} ({each.dtype})"
    if facts.one_token:
        axis = ", in a port without an axis for tokens" if facts.flat else ""
        yield f"  one token a run{axis}: the prompt goes in token by token"
    if facts.chunk:
        yield f"  prompts of one row go in by runs of {facts.chunk} tokens"
    if facts.by_graph:
        yield f"  tokens drawn by a graph: {', '.join(facts.by_graph)}"


_COUNTS = {
    "written": "written positions a row",
    "valid": "valid positions a row",
    "past": "positions of each row before a run",
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
