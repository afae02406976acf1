"""Grammar guidance as a step runs it (standard, 5.1): what it makes of an automaton, and what it refuses (V342)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from genai_runtime import ExecutionError
from genai_runtime.adapters.grammar_guidance import grammar_guidance
from genai_runtime.adapters.registry import open_adapter
from genai_runtime.values import to_array, to_value

TABLE = np.array([[1, -1, 0], [-1, 2, -1], [2, 2, 2]], np.int64)
"""Three states, three tokens: state 1 takes token 1 only."""
GIVEN = {
    "state": np.array([0], np.int64), "tokens": np.array([[0, 1]], np.int64), "valid_length": np.array([2], np.int64),
    "transition_table": TABLE,
}  # fmt: skip
OUT = ("next_state", "consumed_length", "logits_mask", "forced_tokens", "forced_length")


def step(action: str, **changed: Any) -> Mapping[str, Any]:
    """One run of the adapter as an executor makes it, from these inputs but for what is changed."""
    given = {**GIVEN, **{name: np.array(value, np.int64) for name, value in changed.items()}}
    roles = tuple((name, name) for name in given)
    adapter = open_adapter(
        "onnx-genai.grammar-guidance@1", {"action": action}, roles, tuple((name, name) for name in OUT), "steps[3]"
    )
    made = adapter(*(to_value(value) for value in given.values()))
    return dict(zip(OUT, (to_array(each).tolist() for each in made), strict=True))


@pytest.mark.parametrize(
    ("action", "state", "consumed", "mask", "forced"),
    [
        ("commit", 2, 2, [True, True, True], (0, 0)),
        ("lookahead", 2, 2, [True, True, True], (0, 0)),
        ("clone", 0, 0, [True, False, True], (0, 0)),
    ],
)
def test_an_automaton_is_walked(
    action: str, state: int, consumed: int, mask: list[bool], forced: tuple[int, int]
) -> None:
    made = step(action)
    assert made["next_state"] == [state]
    assert made["consumed_length"] == [consumed]
    assert made["logits_mask"] == [mask]
    assert (made["forced_tokens"], made["forced_length"]) == ([[forced[0]]], [forced[1]])


def test_one_way_on_is_forced() -> None:
    made = step("commit", valid_length=[1])
    assert (made["next_state"], made["forced_tokens"], made["forced_length"]) == ([1], [[1]], [1])


def test_a_lookahead_stops_where_a_token_is_rejected() -> None:
    made = step("lookahead", tokens=[[0, 2]])
    assert (made["next_state"], made["consumed_length"]) == ([1], [1])


@pytest.mark.parametrize(
    ("action", "changed", "said"),
    [
        ("lookahead", {"valid_length": [-1]}, "valid_length"),
        ("lookahead", {"valid_length": [3]}, "valid_length"),
        ("lookahead", {"state": [3]}, "names no row"),
        ("clone", {"state": [-1]}, "names no row"),
        ("commit", {"transition_table": [[1, -1, 0], [-1, 3, -1], [2, 2, 2]]}, "names no row"),
        ("clone", {"transition_table": [[1, -2, 0], [-1, 2, -1], [2, 2, 2]]}, "names no row"),
        ("lookahead", {"tokens": [[0, -1]]}, "negative"),
        ("clone", {"tokens": [[0, -1]]}, "negative"),
        ("commit", {"tokens": [[0, 2]]}, "rejected in state 1"),
        ("commit", {"tokens": [[0, 3]]}, "rejected in state 1"),
    ],
)
def test_what_leaves_the_automaton_is_refused(action: str, changed: dict[str, Any], said: str) -> None:
    """V342, one part at a time; the failure names the step."""
    with pytest.raises(ExecutionError, match=said) as refusal:
        step(action, **changed)
    assert (refusal.value.code, refusal.value.origin) == ("adapter", "steps[3]")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"transition_table": [0, -1, 0]}, "int64 of rank 1"),
        ({"transition_table": np.zeros((3, 3), np.float32)}, "float32 of rank 2"),
        ({"tokens": [[0], [1]]}, "not of the same requests"),
        ({"valid_length": [1, 1]}, "not of the same requests"),
    ],
    ids=str,
)
def test_what_is_of_another_form_is_refused(changed: dict[str, Any], said: str) -> None:
    given = {**GIVEN, **{name: np.asarray(value) for name, value in changed.items()}}
    with pytest.raises(ValueError, match=said):
        grammar_guidance({"action": "lookahead"})(given)


class Counted(np.ndarray):
    """A table that counts how often it is looked through as a whole."""

    looks = 0

    def max(self, *given: Any, **more: Any) -> Any:
        type(self).looks += 1
        return super().max(*given, **more)


def test_a_table_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have thousands of states and a whole vocabulary of columns, and a step comes with every token."""
    monkeypatch.setattr(Counted, "looks", 0)
    call, table = grammar_guidance({"action": "commit"}), TABLE.view(Counted)
    for _ in range(5):
        assert call({**GIVEN, "transition_table": table})["next_state"].tolist() == [2]
    assert Counted.looks == 1
    call({**GIVEN, "transition_table": TABLE.copy().view(Counted)})
    assert Counted.looks == 2
    with pytest.raises(ValueError, match="names no row"):
        call({**GIVEN, "transition_table": np.where(TABLE == 2, 3, TABLE)})
    with pytest.raises(ValueError, match="names no row"):
        call({**GIVEN, "transition_table": table, "state": np.array([3])})


def test_a_tensor_that_a_run_gives_again_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr("genai_runtime.adapters.grammar_guidance._check_table", looked.append)
    roles = tuple((name, name) for name in GIVEN)
    adapter = open_adapter("onnx-genai.grammar-guidance@1", {"action": "commit"}, roles, (("next_state",) * 2,), "s")
    table = to_value(TABLE)
    for _ in range(4):
        adapter(*(to_value(GIVEN[name]) for name in ("state", "tokens", "valid_length")), table)
    assert len(looked) == 1
    adapter(*(to_value(value) for value in GIVEN.values()))
    assert len(looked) == 2
