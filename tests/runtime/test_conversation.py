"""Sessions that continue their prompt: every turn equals one plain run over the whole conversation (standard, 3.8)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import ExecutionError, Model, RequestError, binding

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy
from tests.runtime.conversations import MOST, conversation

CASES = ["tiny-runtime-policy", "tiny-decoder"]
TURNS = [[1, 9, 14], [7], [3, 4]]
NEW = 3


@pytest.fixture(scope="module", params=CASES)
def talking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Model]:
    """(fixture, its model as a conversation)."""
    folder = conversation(tmp_path_factory.mktemp("talk") / request.param, request.param)
    return request.param, genai_runtime.load(folder)


def plain(case: str, prompt: list[int], count: int = NEW) -> list[int]:
    """What a bare ONNX Runtime loop says."""
    return greedy(FIXTURES / case / "model.onnx", prompt, count)


def refused(call: Callable[[], object], code: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def whole(case: str, turns: list[list[int]]) -> list[list[int]]:
    """The tokens of each turn, each from the whole conversation before it."""
    said: list[int] = []
    answers: list[list[int]] = []
    for turn in turns:
        answers.append(plain(case, [*said, *turn]))
        said += [*turn, *answers[-1]]
    return answers


def run(model: Model, turn: list[int], session: str | None, count: int = NEW) -> list[int]:
    inputs = {"request.input_ids": np.array([turn]), "request.max_iterations": np.array([count])}
    result = model.run(inputs, session=session, stop_on_eos=False)
    return np.concatenate([each for each in result.rows("tokens") if each is not None], axis=1)[0].tolist()


# ---- the conversation ------------------------------------------------------------------------------------------------


def test_turns_of_the_workflow_level(talking: tuple[str, Model]) -> None:
    case, model = talking
    model.reset("w")
    assert [run(model, turn, "w") for turn in TURNS] == whole(case, TURNS)
    assert run(model, TURNS[0], None) == run(model, TURNS[0], "fresh") == plain(case, TURNS[0])
    model.reset("w")
    assert run(model, TURNS[1], "w") == plain(case, TURNS[1]), "after a reset the next turn is a first one"


def test_turns_of_the_text_level(talking: tuple[str, Model]) -> None:
    case, model = talking
    model.reset("t")
    options: dict[str, Any] = {"max_new_tokens": NEW, "stop_on_eos": False, "session": "t"}
    assert [model.generate(turn, **options).tokens for turn in TURNS] == whole(case, TURNS)
    said = model.generate(TURNS[0], max_new_tokens=NEW, stop_on_eos=False)
    assert said.tokens == plain(case, TURNS[0])


def test_both_levels_share_the_session_and_pieces_count_too(talking: tuple[str, Model]) -> None:
    case, model = talking
    model.reset("b")
    answers = whole(case, TURNS)
    assert run(model, TURNS[0], "b") == answers[0]
    generation = model.generate(TURNS[1], max_new_tokens=NEW, stop_on_eos=False, session="b")
    assert "".join(generation) == generation.text
    assert generation.tokens == answers[1]
    assert run(model, TURNS[2], "b") == answers[2]


def test_a_turn_that_is_dropped_stores_nothing(talking: tuple[str, Model]) -> None:
    case, model = talking
    model.reset("f")
    answers = whole(case, TURNS)
    assert run(model, TURNS[0], "f") == answers[0]
    closed = model.generate([5], max_new_tokens=NEW, stop_on_eos=False, session="f")
    next(closed.pieces())
    closed.close()
    stream = model.stream({"request.input_ids": np.array([[5]]), "request.max_iterations": np.array([3])}, session="f")
    next(stream)
    refused(lambda: run(model, [5], "f"), "session-busy")
    stream.close()
    assert run(model, TURNS[1], "f") == answers[1]


@pytest.mark.parametrize("case", CASES)
def test_a_turn_that_fails_stores_nothing(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1 << 30]

    def failing(real: Callable[[Any], Callable[..., Any]]) -> Callable[[Any], Callable[..., Any]]:
        def opened(session: Any, origin: str = "") -> Callable[..., Any]:
            run_it = real(session)

            def limited(*given: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise RuntimeError("no more")
                return run_it(*given)

            return limited

        return opened

    for name in ("run_bound", "run_with_values"):
        monkeypatch.setattr(binding, name, failing(getattr(binding, name)))
    answers = whole(case, TURNS)
    with genai_runtime.load(conversation(tmp_path / case, case)) as model:
        assert run(model, TURNS[0], "f") == answers[0]
        for runs in (0, 2):
            left[0] = runs
            with pytest.raises(ExecutionError, match="no more"):
                run(model, [5], "f")
        left[0] = 1 << 30
        assert run(model, TURNS[1], "f") == answers[1]


# ---- its bound -------------------------------------------------------------------------------------------------------


def test_the_bound_is_held_before_and_after(talking: tuple[str, Model]) -> None:
    case, model = talking
    model.reset("l")
    first = [1, 9, 14, 7] * 4
    answer = run(model, first, "l")
    assert len(answer) == NEW  # 16 and 3 of 24
    assert "25 tokens" in refused(lambda: run(model, [1] * 6, "l"), "conversation-too-long").what
    assert "25 tokens" in refused(lambda: run(model, [1] * 3, "l"), "conversation-too-long").what, "22 and 3"
    refused(lambda: model.generate([1] * 6, max_new_tokens=1, session="l").tokens, "conversation-too-long")
    assert run(model, [1, 2], "l") == plain(case, [*first, *answer, 1, 2]), "24 are allowed, and nothing was stored"
    refused(lambda: run(model, list(range(MOST + 1)), None), "conversation-too-long")


# ---- what a session takes --------------------------------------------------------------------------------------------


def test_a_session_is_one_conversation(talking: tuple[str, Model]) -> None:
    _, model = talking
    model.reset("o")
    refused(lambda: model.generate(batch=[[1], [2]], session="o"), "bad-session")
    first, late = (model.generate([1, 9], max_new_tokens=2, stop_on_eos=False, session="o") for _ in range(2))
    assert len(first.tokens) == 2
    second, third = (model.generate([7], max_new_tokens=2, stop_on_eos=False, session="o") for _ in range(2))
    assert len(second.tokens) == 2
    refused(lambda: third.tokens, "session-busy")
    refused(lambda: late.tokens, "session-busy")


def test_rows_of_one_length_are_a_conversation_of_rows(talking: tuple[str, Model]) -> None:
    case, model = talking
    model.reset("r")
    rows, more = [[1, 9], [7, 3]], [[4], [5]]

    def turn(given: list[list[int]]) -> list[list[int]]:
        inputs = {"request.input_ids": np.array(given), "request.max_iterations": np.array([NEW])}
        made = model.run(inputs, session="r", stop_on_eos=False).rows("tokens")
        return [each[0].tolist() for each in made if each is not None]

    first = turn(rows)
    assert first == [plain(case, row) for row in rows]
    pairs = zip(rows, first, more, strict=True)
    assert turn(more) == [plain(case, [*row, *said, *new]) for row, said, new in pairs]
    refused(lambda: turn([[1]]), "wrong-shape")
    refused(lambda: model.generate([1], session="r"), "wrong-shape")
    inputs = {"request.input_ids": np.array([[1], [2]], np.int32), "request.max_iterations": np.array([1])}
    refused(lambda: model.run(inputs, session="r"), "wrong-dtype")


def test_stop_strings_end_a_turn_that_is_stored(tmp_path: Path) -> None:
    """The runtime's own policy ends at the token that completes the stop string; the conversation has it."""
    case = "tiny-runtime-policy"
    with genai_runtime.load(conversation(tmp_path / case, case)) as model:
        options: dict[str, Any] = {"stop_on_eos": False, "max_new_tokens": 6}
        tokens = plain(case, [1, 9, 14], 6)
        stop = model.tokenizer.decode([tokens[1]])
        assert stop not in model.tokenizer.decode(tokens[:1])
        said = model.generate([1, 9, 14], stop=stop, session="s", **options)
        assert said.finish_reason == "stop_string"
        assert said.tokens == tokens[:2]
        assert model.generate([7], session="s", **options).tokens == plain(case, [1, 9, 14, *tokens[:2], 7], 6)
    case = "tiny-decoder"
    with genai_runtime.load(conversation(tmp_path / case, case)) as model:
        refused(lambda: model.generate([1], stop="x", session="s"), "unsupported-option")


def test_sessions_where_nothing_could_carry_them(model: Callable[[str], Model]) -> None:
    """V346: tokens and no session state. Packages without tokens always may."""
    for case in ("tiny-gqa-v1", "tiny-runtime-policy", "tiny-decoder"):
        refused(lambda case=case: model(case).generate([1], session="s"), "no-session-state")  # type: ignore[misc]
        refused(lambda case=case: model(case).run({}, session="s"), "no-session-state")  # type: ignore[misc]
    inputs = {name: np.array([1]) for name in ("a", "b", "n", "m")}
    assert model("nested-loops").describe()["session_cells"] == []
    try:
        model("nested-loops").run(inputs, session="s")
    except RequestError as other:
        assert other.code != "no-session-state"  # noqa: PT017


def test_a_generation_cancelled_elsewhere_stores_nothing(talking: tuple[str, Model]) -> None:
    case, model = talking
    model.reset("c")
    generation = model.generate([1, 9, 14], max_new_tokens=NEW, stop_on_eos=False, session="c")
    pieces = generation.pieces()
    next(pieces)
    generation._audience.cancel()  # what close() does while another thread is inside a step
    list(pieces)
    assert run(model, TURNS[1], "c") == plain(case, TURNS[1])
