"""Default literals of every type, scalars and element lists (standard 3.2)."""

import random
from typing import Any

from tests.property.kinds import FREE, Kind


def literal_for(kind: Kind, dice: random.Random, rowwise: bool, extents: dict[str, int]) -> tuple[Any, bool]:
    """A default that fits a kind, and whether it is a list; (None, False) where no literal can stand for it.

    extents: what the symbols must be for the element lists so far; a list adds to it.
    """
    if kind.dtype.startswith("float8") or FREE in kind.dims:
        return None, False
    if kind.rank and dice.randrange(4) == 0 and not (rowwise and "batch" in kind.dims):
        count = kind.rows[1] if kind.rows else 1
        for dim in kind.dims:
            count *= dim if isinstance(dim, int) else extents.setdefault(dim, dice.randrange(1, 4))
        return [_element(kind.dtype, dice) for _ in range(count)], True
    return _element(kind.dtype, dice), False


def _element(dtype: str, dice: random.Random) -> Any:
    if dtype == "bool":
        return dice.randrange(2) == 0
    if dtype.startswith(("float", "bfloat")):
        return dice.choice((0.0, 1.5, -2.25, 7.0))
    return dice.randrange(100) if dtype.startswith("u") else dice.randrange(-100, 100)
