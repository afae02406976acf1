"""The reference interpreter on the arithmetic fixtures, against the same sums done in plain Python."""

from typing import Any

import numpy as np
import pytest

from tests.data import ROOT
from tests.reference.interpreter import Result, interpret
from tests.reference.machine import SessionStore
from tests.reference.values import Array, Events, ReferenceError, RowEvents, Rows

FIXTURES = ROOT / "fixtures"


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def scalar(value: bool | int) -> Array:
    return np.array(value)


def lists(result: Result, name: str) -> Any:
    """An output as nested lists."""
    match result.outputs[name]:
        case Rows(items):
            return [None if item is None else item.tolist() for item in items]
        case Events(items):
            return [item.tolist() for item in items]
        case RowEvents(items):
            return [[item.tolist() for item in row] for row in items]
        case value:
            return value.tolist()


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("selector", [0, -1, 7])
def test_branch_joins(flag: bool, selector: int) -> None:
    x = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
    chosen = 2 * x if flag else -x
    result, label, notes = {
        0: (chosen * chosen, 100, [chosen * chosen, x]),
        -1: (-chosen, 200, []),
        7: (chosen + 10, 300, [chosen + 10 if flag else chosen]),
    }[selector]
    notes = notes if flag else [-x, *notes]
    got = interpret(FIXTURES / "branch-joins", {"x": x, "flag": scalar(flag), "selector": scalar(selector)})
    assert lists(got, "result") == result.tolist()
    assert lists(got, "label") == label
    assert got.iterations == 0
    if notes:
        assert lists(got, "note") == [note.tolist() for note in notes]
    else:
        assert "note" not in got.outputs


def nested(start: int, outer_limit: int, inner_limit: int, ceiling: int) -> dict[str, Any]:
    """What nested-loops publishes, and how many bodies run."""
    total, trace, marks, bodies = start, [], [], 0
    for outer in range(outer_limit):
        bodies += 1
        acc = total + outer
        for inner in range(inner_limit):
            bodies += 1
            acc = 3 * acc + 10 * outer + inner
            trace.append(acc)
            if not acc < ceiling:
                break
        total = acc + start
        marks.append([acc])
    rounds = list(range(outer_limit))
    return {"trace": trace, "marks": marks, "total": [total], "rounds": rounds, "bodies": bodies}


@pytest.mark.parametrize("request_", [(1, 3, 4, 1000), (2, 2, 5, 10), (5, 0, 3, 10), (-4, 2, 0, 10)], ids=str)
def test_nested_loops(request_: tuple[int, int, int, int]) -> None:
    names = ("start", "outer_limit", "inner_limit", "ceiling")
    got = interpret(FIXTURES / "nested-loops", {k: ints(v) for k, v in zip(names, request_, strict=True)})
    wanted = nested(*request_)
    assert got.iterations == wanted.pop("bodies")
    assert {name: lists(got, name) for name in got.outputs} == {name: value for name, value in wanted.items() if value}


def test_session_counter_keeps_its_state_between_calls() -> None:
    store: SessionStore = {}

    def call(session: str | None, times: int, start: int = 0) -> Result:
        inputs = {"step": ints(2), "times": ints(times), "start": ints(start)}
        return interpret(FIXTURES / "session-counter", inputs, session=session, sessions_store=store)

    first = call("a", 2)
    assert (lists(first, "count"), lists(first, "log")) == ([4], [2, 4])
    again = call("a", 3, start=100)
    assert (lists(again, "count"), lists(again, "ticks")) == ([10], [[6], [8], [10]])
    assert lists(call("b", 1), "log") == [2]
    with pytest.raises(ReferenceError, match="recurrence"):
        call("a", 2)
    assert lists(call("a", 1), "log") == [2, 4, 6, 8, 10, 12]
    assert lists(call(None, 1), "count") == [2]
    assert lists(call("a", 0), "count") == [12]


def ragged(x: int, live: bool) -> tuple[list[list[int]] | None, list[list[list[int]]], Any, int]:
    """One row of ragged-emit: its block tokens, beats, latest block, and final x."""
    blocks, beats, latest = [], [], None
    while live:
        latest = [x, x + 1, x + 2]
        blocks += latest[: x % 4]
        beats.append([[x]])
        x -= 3
        live = x > 0
    return ([blocks] if beats else None), beats, ([latest] if latest else None), x


@pytest.mark.parametrize("starts", [[7], [7, 1, 4], [12, 9, 5, 2]], ids=str)
def test_ragged_emit(starts: list[int]) -> None:
    live = np.array([start != 9 for start in starts])
    got = interpret(FIXTURES / "ragged-emit", {"x": ints(*starts)[:, None], "live": live})
    rows = [ragged(start, flag) for start, flag in zip(starts, live.tolist(), strict=True)]
    assert lists(got, "blocks") == [row[0] for row in rows]
    assert lists(got, "beats") == [row[1] for row in rows]
    assert lists(got, "latest") == [row[2] for row in rows]
    assert lists(got, "final") == [[row[3]] for row in rows]
    assert got.iterations == max(len(row[1]) for row in rows)


def test_ragged_emit_of_no_live_row_publishes_only_the_aggregate() -> None:
    got = interpret(FIXTURES / "ragged-emit", {"x": ints(5, 6)[:, None], "live": np.array([False, False])})
    assert got.iterations == 0
    assert {name: lists(got, name) for name in got.outputs} == {"final": [[5], [6]]}


def slides(start: float, turns: int) -> tuple[list[float], list[float]]:
    """One row of the bounded cell: everything it published, and its last value."""
    window, published = [start], []
    for turn in range(turns):
        window = [*window, sum(window)][turn % 3 :]
        published += window
    return published, window


def test_bounded_growing() -> None:
    x = np.array([[1.0], [3.0]], np.float32)
    got = interpret(FIXTURES / "bounded-growing", {"x": x, "budget": ints(4, 4), "turns": ints(4)})
    assert lists(got, "history") == [[1, 2, 4, 8, 16], [3, 6, 12, 24, 48]]
    assert lists(got, "window") == [slides(1.0, 4)[1], slides(3.0, 4)[1]]
    assert lists(got, "windows") == [slides(1.0, 4)[0], slides(3.0, 4)[0]]
    assert got.iterations == 8


def test_a_growing_cell_keeps_the_old_part_of_rows_that_ended() -> None:
    x = np.array([[1.0], [3.0]], np.float32)
    got = interpret(FIXTURES / "bounded-growing", {"x": x, "budget": ints(3, 1), "turns": ints(0)})
    assert lists(got, "left") == [0, 0]
    assert lists(got, "history")[0] == [1, 2, 4, 8]
    assert lists(got, "history")[1][:2] == [3, 6]


def test_a_growing_cell_stops_at_its_bound() -> None:
    x = np.array([[1.0]], np.float32)
    with pytest.raises(ReferenceError, match="above 6"):
        interpret(FIXTURES / "bounded-growing", {"x": x, "budget": ints(6), "turns": ints(0)})
