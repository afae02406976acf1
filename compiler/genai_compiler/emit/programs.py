"""Constants of the runtime's own classes (preprocessing programs, drafts) as the expressions that state them."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from genai_compiler.emit.names import literal, tuple_of


def program_literal(value: Any) -> str:
    """A constant, or a part of it: a call of its class with every field that is not at its default."""
    if not is_dataclass(value):
        return tuple_of(map(program_literal, value)) if isinstance(value, tuple) else literal(value)
    given = [(each, getattr(value, each.name)) for each in fields(value)]
    args = (f"{each.name}={program_literal(it)}" for each, it in given if each.default is MISSING or it != each.default)
    return f"{type(value).__name__}({', '.join(args)})"


def program_kinds(value: Any) -> Iterator[str]:
    """The names of the classes that a constant is made of."""
    if isinstance(value, tuple):
        for each in value:
            yield from program_kinds(each)
    elif is_dataclass(value):
        yield type(value).__name__
        for each in fields(value):
            yield from program_kinds(getattr(value, each.name))
