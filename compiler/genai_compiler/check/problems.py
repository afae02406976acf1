"""Broken rules as problems of the package."""

from collections.abc import Iterable
from itertools import islice

from genai_compiler.check.fault import Fault
from genai_compiler.check.rules import CHECKED
from genai_compiler.check.walk import MOST
from genai_compiler.problem import Problem, ordered
from genai_compiler.read.places import Places, format_path
from genai_compiler.read.tree import too_many


def problems_of(faults: Iterable[Fault], places: Places) -> tuple[Problem, ...]:
    """Faults as problems; each message ends with the rule it speaks of."""
    rest = iter(faults)
    problems = [
        Problem(CHECKED[rule].code, places.find(path), format_path(path), f"{what} ({rule})", help)
        for rule, path, what, help in islice(rest, MOST)
    ]
    if next(rest, None) is not None:
        problems.append(too_many(places.file, "there are more faults than are listed here"))
    return ordered(problems)
