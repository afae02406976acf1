"""Session state: one invocation at a time, and only one that succeeds changes it (standard, 3.8)."""

from collections.abc import Callable

import genai_runtime
import numpy as np
import pytest
from genai_runtime import ExecutionError, Model, RequestError


def inputs(times: int, step: int = 2) -> dict[str, object]:
    return {"times": np.array([times]), "step": np.array([step])}


@pytest.fixture
def counter(model: Callable[[str], Model]) -> Model:
    held = model("session-counter")
    held.reset("s")
    return held


def test_state_goes_on_within_a_session_and_starts_anew_after_reset(counter: Model) -> None:
    assert counter.run(inputs(2), session="s")["count"].tolist() == [4]
    assert counter.run(inputs(1), session="s")["count"].tolist() == [6]
    assert counter.run(inputs(1), session="other")["count"].tolist() == [2]
    assert counter.run(inputs(1))["count"].tolist() == [2]
    counter.reset("s")
    counter.reset("other")
    assert counter.run(inputs(1), session="s")["count"].tolist() == [2]


def test_a_failed_invocation_leaves_the_state_as_it_was(counter: Model) -> None:
    counter.run(inputs(2), session="s")
    with pytest.raises(ExecutionError, match="recurrence"):
        counter.run(inputs(20), session="s")  # the log's maximum is 6 entries
    assert counter.run(inputs(1), session="s")["count"].tolist() == [6]


def test_a_dropped_invocation_leaves_the_state_as_it_was(counter: Model) -> None:
    counter.run(inputs(1), session="s")
    stream = counter.stream(inputs(3), session="s")
    next(stream)
    stream.close()
    assert counter.run(inputs(1), session="s")["count"].tolist() == [4]


def test_a_second_invocation_at_the_same_time_is_refused(counter: Model) -> None:
    stream = counter.stream(inputs(3), session="s")
    next(stream)
    with pytest.raises(RequestError) as busy:
        counter.run(inputs(1), session="s")
    assert busy.value.code == "session-busy"
    for _ in stream:
        pass
    assert counter.run(inputs(1), session="s")["count"].tolist() == [8]


def test_sessions_of_two_loaded_models_are_apart(
    counter: Model, compiled: Callable[[str], tuple[object, object]]
) -> None:
    counter.run(inputs(2), session="s")
    folder, _ = compiled("session-counter")
    with genai_runtime.load(str(folder)) as other:
        assert other.run(inputs(1), session="s")["count"].tolist() == [2]
