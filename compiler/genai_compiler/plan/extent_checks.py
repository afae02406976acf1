"""Checks of extents and forms that a run makes, because nothing has proved what they find (standard, 3.2 and 3.9)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SymbolCheck:
    """Extents that one invoke's ports call by one symbol and that could not be proved equal: (value, axis, factor)."""

    symbol: str
    places: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class ExtentCheck:
    """A fixed extent that a value must have and that could not be proved."""

    value: str
    axis: int
    extent: int


@dataclass(frozen=True)
class FormCheck:
    """The element type and rank that a contract promises of a value and no graph says; "" and -1 for what is known."""

    value: str
    dtype: str
    rank: int


@dataclass(frozen=True)
class CapacityCheck:
    """Writes into a fixed-capacity state (standard, 3.9): destinations and lengths within it, states exactly it.

    lengths is "" where no logical length is in scope; states are (value, sequence axis).
    """

    group: str
    destinations: str
    capacity: str
    lengths: str
    states: tuple[tuple[str, int], ...]


Check = SymbolCheck | ExtentCheck | FormCheck | CapacityCheck
