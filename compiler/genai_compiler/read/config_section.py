"""One object of a configuration file, read key by key against a table of forms; faults are collected, not raised."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from genai_compiler.problem import Problem, Severity
from genai_compiler.read.config_json import ConfigText, Json
from genai_compiler.read.config_keys import Form
from genai_compiler.read.places import DocPath, as_written, format_path
from genai_compiler.read.right_form import Kind, right_form

MOST = 2**31 - 1
"""The largest integer: the reference reads them in 32 bits."""


@dataclass(frozen=True)
class Section:
    """The members of the object at `path` (null members left out) and the list that its problems go to."""

    text: ConfigText
    path: DocPath
    members: Mapping[str, Json]
    problems: list[Problem]

    def problem(self, code: str, key: str, what: str, help: str = "", severity: Severity = Severity.ERROR) -> None:
        """Note a problem of member `key` (the object itself for "")."""
        path = (*self.path, key) if key else self.path
        self.problems.append(Problem(code, self.text.place(path), format_path(path), what, help, severity))

    def warn(self, code: str, key: str, what: str, help: str = "") -> None:
        self.problem(code, key, what, help, Severity.WARNING)

    def section(self, key: str) -> "Section":
        """The object under `key`; an empty one when it is absent or no object."""
        value = self.members.get(key)
        return section_of(self.text, (*self.path, key), value if isinstance(value, dict) else {}, self.problems)

    def integer(self, key: str) -> int | None:
        value = self._checked(key, Form.INT)
        return int(cast(float, value)) if value is not None else None

    def string(self, key: str) -> str | None:
        return cast("str | None", self._checked(key, Form.STR))

    def boolean(self, key: str, default: bool) -> bool:
        value = self._checked(key, Form.BOOL)
        return default if value is None else bool(value)

    def integers(self, key: str) -> tuple[int, ...]:
        value = self._checked(key, Form.INTS)
        return tuple(int(cast(float, each)) for each in value) if isinstance(value, list) else ()

    def tokens(self, key: str) -> tuple[int, ...]:
        """Token ids, given as one integer or a list; repeated ids once."""
        value = self._checked(key, Form.TOKENS)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        return tuple(dict.fromkeys(int(cast(float, each)) for each in listed))

    def value(self, key: str, form: Form) -> Json:
        """The member if it has the form, else None (with a problem when it is there)."""
        return self._checked(key, form)

    def check_keys(self, known: Mapping[str, object]) -> None:
        """Warn about members that no table knows, with the nearest name that one does."""
        for key in self.members:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1, 0.75)
                help = f"did you mean {near[0]!r}?" if near else "remove it, or tell us what writes it"
                self.warn("unknown-key", key, f"{key!r} is no key of this object and has no effect", help)

    def _checked(self, key: str, form: Form) -> Json:
        value = self.members.get(key)
        if value is None or _fits(value, form):
            return value
        help = right_form(_KINDS[form], value, MOST) if form in _KINDS else ""
        if not help and _is_beyond(value, form):
            help = f"write one of 32 bits: {MOST} at most"
        self.problem("wrong-type", key, f"{key!r} must be {form.value}, not {_spell(value)}", help)
        return None


def section_of(text: ConfigText, path: DocPath, value: Json, problems: list[Problem]) -> Section:
    """The object `value` at `path` as a Section; null members count as absent."""
    members = value if isinstance(value, dict) else {}
    return Section(text, path, {key: each for key, each in members.items() if each is not None}, problems)


_KINDS = {
    Form.INT: Kind.INTEGER,
    Form.FLOAT: Kind.NUMBER,
    Form.BOOL: Kind.BOOL,
    Form.STR: Kind.TEXT,
    Form.INTS: Kind.INTEGERS,
    Form.STRS: Kind.TEXTS,
    Form.TOKENS: Kind.IDS,
}


def _fits(value: Json, form: Form) -> bool:
    match form:
        case Form.INT:
            return _whole(value)
        case Form.FLOAT:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Form.BOOL:
            return isinstance(value, bool)
        case Form.STR:
            return isinstance(value, str)
        case Form.TOKENS:
            return all(_whole(each) for each in value) if isinstance(value, list) else _whole(value)
        case Form.INTS:
            return isinstance(value, list) and all(_whole(each) for each in value)
        case Form.STRS:
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case Form.OBJECT:
            return isinstance(value, dict)
        case Form.LIST:
            return isinstance(value, list)
        case Form.ANY:
            return True


def _whole(value: Json) -> bool:
    """An integer, or a number without fraction (4096.0), within 32 bits as the reference reads them."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(cast(float, value)) <= MOST and cast(float, value) == int(cast(float, value))


def _is_beyond(value: Json, form: Form) -> bool:
    """Whether nothing but its size is wrong with an integer, or with one of a list."""
    listed = value if isinstance(value, list) else [value]
    whole = all(isinstance(each, int | float) and not isinstance(each, bool) for each in listed)
    return (
        whole and form in (Form.INT, Form.INTS, Form.TOKENS) and any(abs(cast(float, each)) > MOST for each in listed)
    )


def _spell(value: Json) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return as_written(value)
