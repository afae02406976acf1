"""The words of messages: how a value found, a type wanted and a struct of the document are named."""

from collections.abc import Iterable, Sequence
from typing import cast, get_args, get_origin

from genai_compiler.read.locate import (
    as_model,
    bare,
    choices,
    chosen_by_form,
    fields_of,
    has_variants,
    variants,
)
from genai_compiler.read.places import DocPath, format_path, quoted
from genai_compiler.read.suggest import closest, listed

_SCALARS: dict[object, str] = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


def value_at(data: object, path: DocPath) -> object:
    """The value of `path` in plain data; None when there is none."""
    for step in path:
        if isinstance(data, dict):
            data = cast("dict[object, object]", data).get(step)
        elif isinstance(data, list | tuple) and isinstance(step, int):
            items = cast("Sequence[object]", data)
            data = items[step] if step < len(items) else None
        else:
            return None
    return data


def shown(value: object) -> str:
    """A value found, short: `null`, `true`, `4.5`, `"text"`, `a list`, `a mapping`."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float):
        return format(value, "g") if isinstance(value, float) else _digits(value)
    return "a mapping" if isinstance(value, dict) else "a list"


def _digits(value: int) -> str:
    return str(value) if abs(value) < 10**40 else "an endless integer"


def wanted(expected: object) -> str:
    """A type wanted: `a text`, `an integer`, `a list`, `a mapping` and so on."""
    core = bare(expected)
    if core in _SCALARS:
        return _SCALARS[core]
    if choices(core):
        return "a text"
    if get_origin(core) is tuple:
        return "a list"
    if get_origin(core) is dict or as_model(core) is not None:
        return "a mapping"
    if has_variants(core) and not chosen_by_form(core):
        return "a mapping with a kind"
    words = dict.fromkeys(wanted(each) for each in get_args(core))
    return " or ".join(words) if words else "another type"


def item_of(expected: object) -> str:
    """What the entries of a list are, "" for what is no list."""
    core = bare(expected)
    return wanted(get_args(core)[0]) if get_origin(core) is tuple and get_args(core) else ""


def form_of(expected: object, value: object) -> str:
    """How a struct, a map of structs or a list of them is written, "" for any other type."""
    core = bare(expected)
    if (model := as_model(core)) is not None:
        return listed(fields_of(model), "its fields")
    if get_origin(core) is dict:
        of = as_model(bare(get_args(core)[1]))
        return f'write {{"NAME": {{...}}}}; {listed(fields_of(of), "fields of each")}' if of is not None else ""
    of = as_model(bare(get_args(core)[0])) if get_origin(core) is tuple else None
    if of is None:
        return ""
    return "put it in brackets: [{...}]" if isinstance(value, dict) else listed(fields_of(of), "fields of each entry")


def struct(path: DocPath) -> str:
    """The struct at `path` by its own name: `steps[3]`, `contract`, `the document`."""
    if not path:
        return "the document"
    return format_path(path[-2:] if isinstance(path[-1], int) else path[-1:])


def kinds(expected: object) -> tuple[str, ...]:
    """The kinds of a tagged union; () for any other type."""
    core = bare(expected)
    return tuple(variants(core)) if has_variants(core) and not chosen_by_form(core) else ()


def one_of(names: Iterable[str]) -> str:
    """`one of: a, b, c`, or nothing."""
    return listed(names, "one of")


def near_one_of(name: str, names: tuple[str, ...]) -> str:
    """`did you mean b? one of: a, b, c`."""
    near = closest(name, names)
    return " ".join(filter(None, [f"did you mean {near}?" if near else "", one_of(names)]))
