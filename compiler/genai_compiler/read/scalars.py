"""What a plain (unquoted) YAML scalar means: the core schema of YAML 1.2, not the older rules of YAML 1.1.

So `no`, `off`, `1_000`, `12:30` and `2024-01-01` are texts, `1e3` is a number, `0o17` is 15 and `017` is 17.
"""

import re

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+\Z", re.ASCII)
_OTHER_BASE = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z", re.ASCII)
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_LONGEST_NUMBER = 400
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1


class NumberOutOfRange(ValueError):
    """An integer that no 64-bit field can hold, or a float beyond float64."""


def resolve_plain(text: str) -> bool | int | float | str | None:
    """The value of a plain scalar. Raises NumberOutOfRange."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in "-+.0123456789":
        return text
    if _INTEGER.match(text):
        return integer(text, 10)
    if _OTHER_BASE.match(text):
        return integer(text[2:], 8 if text[1] == "o" else 16)
    if _FLOAT.match(text):
        return decimal(text)
    infinite = _INFINITE.match(text)
    if infinite:
        return float(f"{infinite.group(1)}inf")
    return float("nan") if text in _NAN else text


def plain_key(text: str) -> str:
    """A plain key as text: the one thing that is normalised is a bool (section 3.5), `True:` is the key `true`."""
    return str(_BOOL[text]).lower() if text in _BOOL else text


def integer(digits: str, base: int) -> int:
    """Raises NumberOutOfRange outside [-2**63, 2**64)."""
    if len(digits) > _LONGEST_NUMBER:
        raise NumberOutOfRange
    value = int(digits, base)
    if not _SMALLEST <= value <= _LARGEST:
        raise NumberOutOfRange
    return value


def decimal(text: str) -> float:
    """Raises NumberOutOfRange when float64 can't hold it."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NumberOutOfRange
    return value
