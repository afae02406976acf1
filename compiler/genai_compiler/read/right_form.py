"""The way out for a value of another type than is wanted: the same value, written in the right form."""

import json
import re
from enum import Enum
from typing import cast

from genai_compiler.read.places import quoted

_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_EXACT = 2**53
"""Below it a float tells which whole number was written."""


class Kind(Enum):
    """What is wanted. IDS: an integer or a list of them."""

    TEXT = "a text"
    INTEGER = "an integer"
    NUMBER = "a number"
    BOOL = "true or false"
    TEXTS = "a list of texts"
    INTEGERS = "a list of integers"
    IDS = "a token id or a list of token ids"


def right_form(kind: Kind, value: object) -> str:
    """What to write in place of a value of another type; "" where nothing tells what was meant."""
    if kind is Kind.BOOL:
        words = {"true": "true", "false": "false", "1": "true", "0": "false"}
        word = words.get(str(_alone(value)).lower())
        return f"write {word}{_without(value)}" if word and not isinstance(value, bool) else ""
    if kind is Kind.TEXT:
        if isinstance(value, bool | int | float):
            return "put it in quotes"
        one = _alone(value)
        return f"write {quoted(one)} without brackets" if isinstance(one, str) and one is not value else ""
    if kind is Kind.TEXTS:
        return f"write [{quoted(value)}]" if isinstance(value, str) else ""
    if kind in (Kind.INTEGER, Kind.NUMBER):
        number = _number(_alone(value), kind is Kind.INTEGER)
        return f"write {number}{_without(value)}" if number else ""
    return _listed(kind, value)


def _listed(kind: Kind, value: object) -> str:
    """Integers in a list, or one alone where that will do."""
    many = isinstance(value, list | tuple)
    numbers = [_number(each, True) for each in (cast("list[object]", value) if many else [value])]
    if not all(numbers):
        return ""
    if kind is Kind.IDS and not many:
        return f"write {numbers[0]}{_without(value)}"
    return f"write [{', '.join(numbers[:8])}{', ...' if len(numbers) > 8 else ''}]"


def _alone(value: object) -> object:
    """The only entry of a list, else the value itself."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _without(value: object) -> str:
    if isinstance(value, str):
        return " without quotes"
    return " without brackets" if isinstance(value, list | tuple) else ""


def _number(value: object, whole: bool) -> str:
    """A number as JSON has it, "" for what is none, or none that a document can mean; whole: without a fraction."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if isinstance(value, float) and not abs(value) < _EXACT:  # not a number, too
        return ""
    if whole and value != int(value):
        return ""
    return json.dumps(int(value) if whole else value)
