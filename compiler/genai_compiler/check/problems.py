"""Broken rules as problems of the package."""

from collections.abc import Iterable

from genai_compiler.check.fault import Fault
from genai_compiler.check.rules import CHECKED
from genai_compiler.problem import Problem, ordered
from genai_compiler.read.places import Places, format_path


def problems_of(faults: Iterable[Fault], places: Places) -> tuple[Problem, ...]:
    """Faults as problems; each message ends with the rule it speaks of."""
    return ordered(
        Problem(CHECKED[rule].code, places.find(path), format_path(path), f"{what} ({rule})", help)
        for rule, path, what, help in faults
    )
