"""Names and numbers of valid documents exchanged at random: what still parses is judged, never with a crash."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
from genai_compiler.check.rules import CHECKED
from genai_compiler.problem import CompileError

from tests.check.bases import BASES, base, problems
from tests.read.documents import rule_of
from tests.wording import smells

Slot = tuple[Any, Any]


def _leaves(value: Any) -> Iterator[Slot]:
    """(container, key) of every text and number."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, dict | list):
            yield from _leaves(each)
        else:
            yield value, key


def confused(data: Any, dice: random.Random, times: int) -> Any:
    """A copy in which `times` leaves have the value of another leaf of the same type."""
    result = copy.deepcopy(data)
    slots = list(_leaves(result))
    for _ in range(times):
        holder, key = dice.choice(slots)
        other, where = dice.choice([slot for slot in slots if type(slot[0][slot[1]]) is type(holder[key])])
        holder[key] = other[where]
    return result


@pytest.mark.parametrize("name", BASES)
def test_confused_documents_are_judged(name: str) -> None:
    dice, judged, refused = random.Random(f"check {name}"), 0, 0
    for round in range(300):
        data = confused(base(name), dice, times=1 + round % 3)
        try:
            found = problems(data)
        except CompileError:
            continue  # refused by the reader already
        judged, refused = judged + 1, refused + bool(found)
        assert all(CHECKED[rule_of(each)].code == each.code for each in found)
        assert len({(each.path, each.what) for each in found}) == len(found)
        assert smells(found, empty=False) == []
    assert judged > 100
    assert refused > judged / 2
