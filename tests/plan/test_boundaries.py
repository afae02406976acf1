"""Boundaries between runs: each one by arithmetic on the document, in calls that grow as the document does."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from genai_compiler.plan.boundaries import BEGINS, ITERATES, boundaries
from genai_compiler.plan.boundary import Boundary
from genai_compiler.plan.build import build
from genai_compiler.plan.ir import Plan
from genai_compiler.read.load import load_package

from tools.compile_series import SHAPES

GRAPHS = ("add", "below")


def planned(folder: Path, shape: str, steps: int) -> Plan:
    SHAPES[shape](folder, steps)
    return build(load_package(folder))[0]


def found(plan: Plan) -> tuple[Boundary, ...]:
    return boundaries(plan, GRAPHS, lambda _, __: "apart")


@pytest.mark.parametrize("loops", [1, 2, 5])
def test_loops_one_after_the_other(tmp_path: Path, loops: int) -> None:
    """Each loop adds to a cell that begins as the last loop's, and compares the sum: its own addition makes the cell's
    next value, which is no boundary."""
    told = Counter((each.first, each.second, each.why) for each in found(planned(tmp_path, "loops", 4 * loops)))
    wanted = {("add", "below", "apart"): loops, ("add", "add", BEGINS): loops - 1}
    assert told == Counter({key: count for key, count in wanted.items() if count})


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_chain_in_a_loop(tmp_path: Path, steps: int) -> None:
    """Each addition reads the one before it, the first the cell that the last one makes: itself, where it is alone."""
    told = Counter((each.first, each.second, each.why) for each in found(planned(tmp_path, "chain", steps)))
    wanted = {("add", "add", "apart"): steps - 1, ("add", "add", ITERATES): int(steps > 1)}
    assert told == Counter({key: count for key, count in wanted.items() if count})


def calls_of(plan: Plan) -> int:
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        found(plan)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_calls_grow_with_the_document(tmp_path: Path, shape: str) -> None:
    """A cell that begins as the loop before it has left its own goes back through all of them."""
    least, more, most = (calls_of(planned(tmp_path / str(steps), shape, steps)) for steps in (400, 800, 2400))
    assert most - more <= 1.1 * 4 * (more - least)
