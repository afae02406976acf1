"""Why two components that a value goes between are not one run. Part of the IR: see ir.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Boundary:
    """first makes what second reads; origin: of the one that reads."""

    first: str
    second: str
    why: str
    origin: str
