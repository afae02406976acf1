"""Faults of a document in the user's terms: code, place, what is wrong and the way out, one by one."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from genai_compiler.problem import Problem
from genai_compiler.read.fields import AnIdOrIds, Tagged, Words
from genai_compiler.read.hints import SELECTIONS
from genai_compiler.read.history import DROPPED, ELSEWHERE, NEWER, RETIRED
from genai_compiler.read.locate import Located, choices, chosen_by_form, fields_of, locate
from genai_compiler.read.pipeline_history import in_place_of
from genai_compiler.read.places import DocPath, Places, format_path, quoted
from genai_compiler.read.right_form import Kind, right_form
from genai_compiler.read.rules import MISSING
from genai_compiler.read.suggest import did_you_mean, listed
from genai_compiler.read.wording import (
    form_of,
    item_of,
    kinds,
    near_one_of,
    one_of,
    shown,
    struct,
    value_at,
    wanted,
)

Faults = Iterator[Problem]
_HINT_STRUCTS = frozenset({"ExecutionHints", "MemoryHint", "SchedulingHint", "NodeSelector"})


def explain(root: type[BaseModel], data: object, error: ErrorDetails, places: Places) -> Faults:
    """The problems that one validation error of `root` over `data` stands for (several for repeated items)."""
    found = locate(root, error["loc"])
    context: Mapping[str, Any] = error.get("ctx", {})
    say = _SAYINGS.get(error["type"], _wrong_type)
    yield from say(_Fault(root, found, data, context, places))


class _Fault:
    """One error with all that is needed to speak of it."""

    def __init__(
        self, root: type[BaseModel], found: Located, data: object, context: Mapping[str, Any], places: Places
    ) -> None:
        self.root, self.found, self.context, self.places = root, found, context, places
        self.path, self.owner = found.path, found.owner.__name__ if found.owner else ""
        self.value, self.holder = value_at(data, found.path), value_at(data, found.path[:-1])
        self.hint = self.owner in _HINT_STRUCTS

    def problem(self, code: str, rule: str, what: str, help: str = "", path: DocPath | None = None) -> Problem:
        at = self.path if path is None else path
        return Problem(code, self.places.find(at), format_path(at), f"{what} ({rule})", help)


def _unknown(fault: _Fault) -> Faults:
    name, owner = fault.found.field, fault.found.owner
    known = fields_of(owner) if owner else {}
    rule = "V002" if fault.owner == "Metadata" else "V003"
    what = f"{struct(fault.path[:-1])} has no field {quoted(name)}"
    if (fault.owner, name) in RETIRED:
        rule, help = RETIRED[fault.owner, name]
        what = f"{quoted(name)} is retired: {what}" if rule == "V015" else what
        yield fault.problem("retired-field", rule, what, help)
    elif (fault.owner, name) in NEWER:
        yield fault.problem("unknown-field", rule, what, "the document follows a newer revision of the format")
    else:
        rule = "V023" if fault.owner == "ExecutionHints" else rule
        help = ELSEWHERE.get((fault.owner, name)) or in_place_of(fault.root, fault.path[:-1], name)
        beside = getattr(owner, "fields_beside", None)
        help = help or did_you_mean(name, known if beside is None else beside(fault.holder))
        yield fault.problem("unknown-field", rule, what, help)


def _missing(fault: _Fault) -> Faults:
    name, parent = fault.found.field, fault.path[:-1]
    if name == "kind" and fault.found.owner is not None and issubclass(fault.found.owner, Tagged):
        allowed = choices(fields_of(fault.found.owner)["kind"].annotation)
        yield fault.problem("missing-kind", "V007", f"{struct(parent)} lacks its kind", one_of(allowed), parent)
        return
    rule = MISSING.get((fault.owner, name), "V004")
    allowed = choices(fault.found.expected) or kinds(fault.found.expected)
    help = one_of(allowed) or DROPPED.get((fault.owner, name), "")
    yield fault.problem("missing-field", rule, f"{struct(parent)} lacks {name}", help, parent)


def _not_in_list(fault: _Fault) -> Faults:
    allowed, owner = choices(fault.found.expected), fault.found.owner
    if not isinstance(fault.value, str):
        yield from _wrong_type(fault)
    elif fault.found.field == "kind" and owner is not None and issubclass(owner, Tagged):
        yield fault.problem(
            "unknown-kind", "V007", f"no kind {quoted(fault.value)} here", near_one_of(fault.value, allowed)
        )
    else:
        rule = "V023" if fault.hint and fault.found.field == "action" else "V006"
        what = f"{quoted(fault.value)} is not in the list"
        yield fault.problem("not-in-list", rule, what, near_one_of(fault.value, allowed))


def _unknown_kind(fault: _Fault) -> Faults:
    kind, allowed = value_at(fault.value, ("kind",)), kinds(fault.found.expected)
    rule = "V014" if "invoke" in allowed else "V007"
    help = near_one_of(kind, allowed) if isinstance(kind, str) else one_of(allowed)
    yield fault.problem("unknown-kind", rule, f"no kind {shown(kind)} here", help, (*fault.path, "kind"))


def _missing_kind(fault: _Fault) -> Faults:
    if chosen_by_form(fault.found.expected):
        yield from _wrong_type(fault)
    else:
        allowed = one_of(kinds(fault.found.expected))
        yield fault.problem("missing-kind", "V007", f"{struct(fault.path)} lacks its kind", allowed)


def _integer(fault: _Fault) -> Faults:
    if isinstance(fault.value, float) and not fault.value.is_integer():
        below = math.floor(fault.value) if math.isfinite(fault.value) and abs(fault.value) < 2**53 else None
        help = f"write {below} or {below + 1}" if below is not None else ""
        yield fault.problem("fractional-number", "V008", f"an integer expected, {shown(fault.value)} found", help)
    elif isinstance(fault.value, float):
        help = f"write {fault.value:.0f}" if abs(fault.value) < 2**53 else ""
        yield fault.problem("wrong-type", "V005", f"an integer expected, {shown(fault.value)} found", help)
    else:
        yield from _wrong_type(fault)


def _below(fault: _Fault) -> Faults:
    least = fault.context.get("ge", 0)
    if isinstance(least, float):
        rule = "V022"
    else:
        rule = "V016" if least == 1 and fault.value == 0 else "V008"
    if fault.hint and fault.found.field == "chunk_size":
        rule = "V023"
    yield fault.problem("below-minimum", rule, f"{shown(fault.value)} is below the minimum {shown(least)}")


def _above(fault: _Fault) -> Faults:
    most = fault.context.get("le")
    limit = f"above the maximum {most}" if most is not None else "beyond 64 bits"
    yield fault.problem("out-of-range", "V008", f"{shown(fault.value)} is {limit}")


def _bad_extent(fault: _Fault) -> Faults:
    what = f"an extent is an integer >= 0 or a symbol, not {shown(fault.value)}"
    yield fault.problem("bad-extent", "V009", what)


def _empty_text(fault: _Fault) -> Faults:
    rule = "V011" if (fault.owner, fault.found.field) == ("OptionalInput", "presence") else "V017"
    yield fault.problem("empty-string", rule, "an empty text stands here")


def _empty_symbol(fault: _Fault) -> Faults:
    yield fault.problem("empty-string", "V010", "an empty symbol stands in a shape", "name the axis")


def _empty_list(fault: _Fault) -> Faults:
    if fault.value:  # the validator counts good entries only; bad ones have their own faults
        return
    yield fault.problem("empty-list", "V018", "the list needs at least one entry")


def _repeated(fault: _Fault) -> Faults:
    for position in cast("list[int]", fault.context["positions"]):
        path = (*fault.path, position)
        item = value_at(fault.value, (position,))
        yield fault.problem("duplicate-item", "V019", f"{shown(item)} is listed twice", "remove one", path)


def _literal_items(fault: _Fault) -> Faults:
    for position in cast("list[int]", fault.context["positions"]):
        path = (*fault.path, position)
        what = f"a number, a text, true or false expected, {shown(value_at(fault.value, (position,)))} found"
        yield fault.problem("wrong-type", "V005", what, path=path)


def _selector(fault: _Fault) -> Faults:
    yield fault.problem("empty-selector", "V023", "the selector selects nothing", listed(SELECTIONS, "give one of"))


def _odd_key(fault: _Fault) -> Faults:
    path = tuple(each for each in fault.path if each != "[key]")
    yield fault.problem("wrong-type", "V005", "a key must be a text", path=path)


def _wrong_type(fault: _Fault) -> Faults:
    if not fault.path:
        yield fault.problem("not-a-mapping", "V001", "the document must be a mapping of fields")
        return
    if fault.path[-1] == "[key]":
        yield from _odd_key(fault)
        return
    words, needed = fault.found.marked(Words), _needed(fault.found)
    help = "leave the field out to say nothing" if fault.value is None else _rewritten(fault, needed)
    if words is not None and fault.value is not None:
        help = one_of(words.words)
    yield fault.problem("wrong-type", "V005", f"{needed} expected, {shown(fault.value)} found", help)


def _needed(found: Located) -> str:
    return Kind.IDS.value if found.marked(AnIdOrIds) is not None else wanted(found.expected)


def _rewritten(fault: _Fault, needed: str) -> str:
    """The value in the form that is needed; else what has that form; else that the field may be left out."""
    kind = next((each for each in Kind if each.value == needed), None)
    inside = item_of(fault.found.expected) if needed == "a list" else ""
    if inside:
        kind = {"a text": Kind.TEXTS, "an integer": Kind.INTEGERS}.get(inside)
    help = right_form(kind, fault.value) if kind is not None else ""
    return help or form_of(fault.found.expected, fault.value) or _optional(fault, needed)


def _optional(fault: _Fault, needed: str) -> str:
    """That nothing needs to stand there, where that is so."""
    info = fields_of(fault.found.owner).get(fault.found.field) if fault.found.owner is not None else None
    if info is None or info.is_required():
        return f"write {needed}" if needed != "another type" else ""
    return f"write {needed}, or leave {fault.found.field} out"


_SAYINGS: dict[str, Callable[[_Fault], Faults]] = {
    "extra_forbidden": _unknown,
    "missing": _missing,
    "literal_error": _not_in_list,
    "union_tag_invalid": _unknown_kind,
    "union_tag_not_found": _missing_kind,
    "int_type": _integer,
    "int_from_float": _integer,
    "greater_than_equal": _below,
    "less_than_equal": _above,
    "scalar_range": _above,
    "bad_extent": _bad_extent,
    "string_too_short": _empty_text,
    "empty_symbol": _empty_symbol,
    "too_short": _empty_list,
    "duplicate_item": _repeated,
    "literal_items": _literal_items,
    "empty_selector": _selector,
    "invalid_key": _odd_key,
}
