"""Documents with several faults at once: each is said once, in the order of the file, and none follows from another.

What one fault alone makes a document say is known (test_rules); together they must say no more than that. Two things
are explained: a fault in a part whose own fault ends its inspection may wait for the next try, and a part that one
fault changed may be read by what another fault added.
"""

import itertools
import random
from typing import Any

import pytest
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.places import Places, format_path
from genai_compiler.read.validate import parse_metadata

from tests.check.bases import broken, found, problems
from tests.check.cases_steps import Case
from tests.check.test_rules import CASES
from tests.read.documents import full

STRUCTURAL = [each for each in CASES if "pipeline" not in each[2]]
"""Not those that take the whole workflow away: everything else goes with it."""


def apart(one: Case, other: Case) -> bool:
    """Whether neither changes a value that the other one changes or that holds it."""
    pairs = itertools.product(one[2], other[2])
    return all(a.split("/")[: len(b.split("/"))] != b.split("/")[: len(a.split("/"))] for a, b in pairs)


def several(dice: random.Random) -> tuple[str, list[Case]]:
    """A base and two to five cases that break different values of it."""
    name = dice.choice(sorted({each[1] for each in STRUCTURAL}))
    mine, count = [each for each in STRUCTURAL if each[1] == name], dice.randint(2, 5)
    chosen: list[Case] = []
    for each in dice.sample(mine, len(mine)):
        if len(chosen) < count and all(apart(each, other) for other in chosen):
            chosen.append(each)
    return name, chosen


def part(path: str) -> str:
    """The part of a document that a path lies in: one component, cell, output or step, or one section."""
    steps = path.replace("/", ".").replace("[", ".").replace("]", "").split(".")
    return ".".join(steps[:4] if steps[:2] == ["pipeline", "workflow"] else steps[:2])


@pytest.mark.parametrize("seed", range(40))
def test_several_faults_say_what_each_says_alone(seed: int) -> None:
    name, cases = several(random.Random(seed))
    alone = [set(found(broken(name, each[2]))) for each in cases]
    try:
        together = found(broken(name, {path: value for each in cases for path, value in each[2].items()}))
    except (IndexError, KeyError):  # one takes away what another one changes
        pytest.skip("these faults are not independent")
    said = [
        str(each) for each in problems(broken(name, {path: value for each in cases for path, value in each[2].items()}))
    ]
    assert len(set(said)) == len(said)
    expected = set[Any]().union(*alone)
    touched = {part(path) for each in cases for path in each[2]}
    rules = {rule for rule, _ in expected}
    added = [(rule, path) for rule, path in set(together) - expected if rule not in rules and part(path) not in touched]
    assert added == []
    silent = [each for each, said in zip(cases, alone, strict=True) if not said & set(together)]
    said_in = {part(path) for _, path in together} | touched
    assert [each for each in silent if part(each[3]) not in said_in] == []


def test_most_of_them_are_heard_at_once() -> None:
    """Few faults wait behind another: of all that are injected above, nine in ten are said at the first try."""
    injected = heard = 0
    for seed in range(40):
        name, cases = several(random.Random(seed))
        try:
            together = set(found(broken(name, {path: value for each in cases for path, value in each[2].items()})))
        except (IndexError, KeyError):
            continue
        injected += len(cases)
        heard += sum((each[0], each[3]) in together for each in cases)
    assert injected > 80
    assert heard > injected * 0.9


# ---- the reader: one fault a value, nothing after it -----------------------------------------------------------------


def contracts(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Paths of all tensor contracts in plain data."""
    if not isinstance(value, dict | list):
        return []
    mine = [path] if isinstance(value, dict) and {"dtype", "rank"} <= value.keys() else []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return mine + [each for key, inner in items for each in contracts(inner, (*path, key))]


def at(data: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


@pytest.mark.parametrize("seed", range(30))
def test_the_reader_says_exactly_the_faults_that_were_made(seed: int) -> None:
    dice, data = random.Random(seed), full()
    places = dice.sample([each for each in contracts(data) if each[0] == "pipeline"], dice.randint(2, 6))
    expected = []
    for path in places:
        wrong = dice.choice(("rank", "dtype", "zzz"))
        at(data, path)[wrong] = {"rank": "two", "dtype": 7, "zzz": 1}[wrong]
        code = "unknown-field" if wrong == "zzz" else "wrong-type"
        expected.append((code, format_path((*path, wrong))))
    with pytest.raises(CompileError) as caught:
        parse_metadata(data, Places("m.yaml"))
    assert sorted((each.code, each.path) for each in caught.value.problems) == sorted(expected)


def test_problems_come_in_the_order_of_the_file() -> None:
    for seed in range(10):
        name, cases = several(random.Random(seed))
        try:
            said: tuple[Problem, ...] = problems(broken(name, {p: v for each in cases for p, v in each[2].items()}))
        except (IndexError, KeyError):
            continue
        assert [(each.where, each.path) for each in said] == sorted((each.where, each.path) for each in said)
