"""Did you mean ...: the nearest known name, and short lists of what is known."""

import difflib
from collections.abc import Iterable

_LONGEST_NAME = 64
_LONGEST_LIST = 20
_LONGEST_TEXT = 2000
"""Characters of all names of a list: a hostile document's names are long, and each of its faults would repeat them."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name` (case, `-` and `_` apart), or None when nothing is near."""
    names = {_folded(each): each for each in known}
    found = difflib.get_close_matches(_folded(name[:_LONGEST_NAME]), names, n=1, cutoff=0.6)
    return names[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A help line: the nearest known name, else the list of them when it is short, else nothing."""
    names = tuple(known)
    near = closest(name, names)
    return f"did you mean {near}?" if near is not None else listed(names)


def listed(names: Iterable[str], head: str = "known here") -> str:
    """`known here: a, b, c`, or nothing when there are none or too many to read."""
    every = tuple(names)
    readable = 0 < len(every) <= _LONGEST_LIST and sum(map(len, every)) <= _LONGEST_TEXT
    return f"{head}: {', '.join(every)}" if readable else ""


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")
