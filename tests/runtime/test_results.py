"""What a run gives is taken by index: ONNX Runtime's own vector ends an iteration with a C++ exception."""

from collections.abc import Iterator

import numpy as np
import pytest
from genai_runtime import binding
from genai_runtime.rows import iteration_value, live_rows
from genai_runtime.values import to_array, to_value


class Vector(list[int]):
    """Stands for that vector: whoever iterates over it is noticed."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("iterated over")


@pytest.mark.parametrize("count", [1, 2, 61])
def test_results_are_indexed(count: int) -> None:
    made = Vector(range(count))
    assert binding.results(made) == list(range(count))  # type: ignore[arg-type, comparison-overlap]
    assert tuple(binding.taker(count)(made)) == tuple(range(count))  # type: ignore[arg-type, comparison-overlap]


def test_an_iteration_value_is_made_once_and_holds_its_number() -> None:
    first = iteration_value(3, 1)
    assert iteration_value(3, 1) is first
    assert to_array(first).tolist() == [3]
    assert to_array(iteration_value(4, 0)).tolist() == 4
    assert to_array(iteration_value(4, 1, 2)).tolist() == [4, 4]


@pytest.mark.parametrize("mask", [[True], [False], [True, False, True], [False, False]])
def test_live_rows_are_counted(mask: list[bool]) -> None:
    live, going = live_rows(to_value(np.array(mask)))
    assert live.tolist() == mask
    assert going == sum(mask)
    assert live_rows(to_value(np.array(mask)), heed=False)[1] == len(mask)
