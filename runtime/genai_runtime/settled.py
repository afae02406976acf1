"""One row in a loop whose runs are all steady: from some iteration on everything is bound, and only numbers are read.

Behind `SETTLED` each run has both its sets of results, and each set is bound to the results that it reads: what an
iteration makes depends on whether its number is even. Nothing that the loop compares can differ from then on, since no
tensor is made anew.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from genai_runtime.steady import RunSet
from genai_runtime.values import Array, Value, to_array, view

SETTLED = 3
"""The iteration (from 0) behind which all is bound: each of two sets makes its results, then each reads such results.

Odd, so that the next iteration's number is even: with these an executor takes the set that comes next.
"""
Places = tuple[int, ...]


class Turning(Protocol):
    """A run that has two sets: Steady, Held."""

    def sets(self) -> tuple[RunSet, ...]: ...


def settled(*runs: tuple[Turning, Places] | tuple[Turning, Places, Places]) -> bool:
    """Whether each run has its two sets, and its results at these places are single numbers, as one row gives them.

    With further places, its inputs there are such too.
    """
    for each in runs:
        sets, results, inputs = each[0].sets(), each[1], each[2] if len(each) == 3 else ()
        if len(sets) != 2:
            return False
        for one in sets:
            if any(entries(value).size != 1 for value in _at(one.made, results) + _at(one.given, inputs)):
                return False
    return True


def _at(values: Sequence[Value], places: Places) -> list[Value]:
    return [values[place] for place in places]


def entries(value: Value) -> Array:
    """A view of a tensor's entries in order."""
    return to_array(value).reshape(-1)


def number(value: Value) -> memoryview:
    """The same, to be read and written by place: each entry is one of Python's own numbers."""
    return entries(value).data


def summed(value: Array | memoryview) -> int:
    """The sum of entries."""
    return int(np.add.reduce(value))


def counter(rank: int, *ports: tuple[Turning, str]) -> memoryview:
    """A tensor for an iteration's number, int64 of one entry, bound to these ports of both sets: write it at [0]."""
    array = np.zeros((1,) * rank, dtype=np.int64)
    for run, port in ports:
        for each in run.sets():
            each.always(port, view(array))
    return array.reshape(-1).data
