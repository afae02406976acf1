"""The loop that an executor has for one row: it gives what the loop for rows gives, and leaves out events nobody reads.

The other route is the same prompt twice in a batch, which goes through the loop for rows; where no option of sampling
is asked for, the bare ONNX Runtime loop is a third.
"""

from collections.abc import Callable
from threading import Thread
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import Event, ExecutionError, Generation, RequestError, binding, state
from genai_runtime.decoding import BoundRow
from genai_runtime.in_place import InPlaceDecoding
from genai_runtime.publish import Publisher
from genai_runtime.request import Request
from genai_runtime.result import Result
from genai_runtime.sample import SamplingOptions

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy
from tests.runtime.failing import failing_after

Models = Callable[[str], genai_runtime.Model]
CASE, CONTEXT = "tiny-gqa-v1", 64
PROMPT = [1, 10, 20, 30]
TO_AN_END = [3, 40, 41, 42, 43, 44, 5, 4]
"""A prompt whose greedy continuation meets an end token."""

REQUESTS: dict[str, dict[str, Any]] = {
    "no token": {"max_new_tokens": 0},
    "one token": {"max_new_tokens": 1},
    "greedy": {"max_new_tokens": 20},
    "without end tokens": {"max_new_tokens": 30, "stop_on_eos": False},
    "the whole context": {"max_new_tokens": 999, "stop_on_eos": False},
    "held back ends": {"max_new_tokens": 30, "min_new_tokens": 9},
    "penalties": {"max_new_tokens": 24, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    "sampled": {"max_new_tokens": 24, "temperature": 1.3, "top_k": 9, "top_p": 0.9, "seed": 5},
    "biased": {"max_new_tokens": 12, "logit_bias": {7: 3.0}},
    "a stop string": {"max_new_tokens": 30, "stop": ["e"]},
}


@pytest.mark.parametrize("first_room", [512, 3], ids=["room enough", "growing buffers"])
@pytest.mark.parametrize("prompt", [PROMPT, TO_AN_END, [7] * 63], ids=["short", "to an end", "one place left"])
@pytest.mark.parametrize("name", REQUESTS)
def test_one_row_is_as_one_of_several(
    model: Models, monkeypatch: pytest.MonkeyPatch, name: str, prompt: list[int], first_room: int
) -> None:
    monkeypatch.setattr(state, "FIRST_ROOM", first_room)
    options = {"temperature": 0, **REQUESTS[name]}
    drained, iterated = model(CASE).generate(prompt, **options), model(CASE).generate(prompt, **options)
    text = "".join(iterated)
    for row in model(CASE).generate(batch=[prompt, prompt], **options).rows:
        for alone in (drained, iterated):
            assert (alone.tokens, alone.finish_reason, alone.text) == (row.tokens, row.finish_reason, row.text)
        assert text == row.text
    if name in ("no token", "one token", "greedy"):
        count = min(options["max_new_tokens"], CONTEXT - len(prompt))
        assert drained.tokens == greedy(FIXTURES / CASE / "model.onnx", prompt, count, (2, 5))


def run_to_end(events: Any) -> tuple[list[Event], Result]:
    seen: list[Event] = []
    while True:
        try:
            seen.append(next(events))
        except StopIteration as done:
            return seen, done.value


@pytest.mark.parametrize("limit", [0, 1, 9, 200])
@pytest.mark.parametrize("stop_on_eos", [True, False])
def test_a_streams_events_and_result_are_those_of_a_row(model: Models, limit: int, stop_on_eos: bool) -> None:
    """`Model.run`, which nobody listens to, adds up to the same."""

    def inputs(rows: int) -> dict[str, Any]:
        return {"request.input_ids": np.array([TO_AN_END] * rows), "request.max_iterations": np.array([limit])}

    events, result = run_to_end(model(CASE).stream(inputs(1), stop_on_eos=stop_on_eos))
    both, of_two = run_to_end(model(CASE).stream(inputs(2), stop_on_eos=stop_on_eos))
    unheard = model(CASE).run(inputs(1), stop_on_eos=stop_on_eos)
    first = [each for each in both if each.row == 0]
    assert [(e.output, e.row, e.value.tolist(), e.value.dtype, e.step) for e in events] == [
        (e.output, e.row, e.value.tolist(), e.value.dtype, e.step) for e in first
    ]
    for alone in (result, unheard):
        assert ("tokens" in alone) == ("tokens" in of_two) == (limit > 0)
        assert (alone.iterations, alone.finish_reasons[0]) == (of_two.iterations, of_two.finish_reasons[0])
        if limit:
            assert alone["tokens"].tolist() == of_two.rows("tokens")[0].tolist()  # type: ignore[union-attr]
            assert alone["tokens"].dtype == np.int64


@pytest.mark.parametrize("when", [0, 1, 4])
def test_a_row_that_its_caller_stops_ends(model: Models, when: int) -> None:
    """`stopped` before it begins, or after some tokens: as many come."""
    stopped = set[int]()
    request = Request(
        {"request.input_ids": np.array([PROMPT])},
        stopped=stopped,
        sampling=(SamplingOptions(temperature=0.0),),
        roles={"max_iterations": 12},
    )
    events = model(CASE)._executor.run(request)
    for _ in range(when):
        next(events)
    stopped.add(0)
    rest, result = run_to_end(events)
    assert (rest, result.finish_reasons, result.iterations) == ([], {0: "length"}, when)


# ---- quiet draining --------------------------------------------------------------------------------------------------


def events_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of all events that are made from now on."""
    seen, make = list[int](), Publisher.only_token

    def noted(self: Publisher, output: str, token: int, step: int) -> Event:
        seen.append(token)
        return make(self, output, token, step)

    monkeypatch.setattr(Publisher, "only_token", noted)
    return seen


def started(model: Models, **options: Any) -> Generation:
    given = {"max_new_tokens": 16, "temperature": 0, "stop_on_eos": False, **options}
    return model(CASE).generate(PROMPT, **given)


def test_only_the_first_token_is_heard_of_a_generation_that_is_drained(
    model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = events_of(monkeypatch)
    generation = started(model)
    stats = generation.stats
    assert seen == generation.tokens[:1]
    assert stats.new_tokens == len(generation.tokens) == 16
    assert 0 < stats.ttft < stats.seconds


def test_a_reader_who_stops_reading_gets_the_rest_at_the_end(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, wanted = events_of(monkeypatch), greedy(FIXTURES / CASE / "model.onnx", PROMPT, 16, ())
    for read in range(1, 17):
        generation = started(model)
        seen.clear()
        for _ in range(read):
            generation._step()
        assert seen == wanted[:read]
        assert generation.tokens == wanted
        assert seen == wanted[: read + 1], "the one in which the run learns of it"


def test_a_refused_look_of_another_thread_leaves_the_reader_its_events(
    model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads goes on to get every token as it comes."""
    seen, make, refused = list[int](), Publisher.only_token, list[str]()

    def drain() -> None:
        with pytest.raises(RequestError) as caught:
            generation.tokens  # noqa: B018
        refused.append(caught.value.code)

    def interrupted(self: Publisher, output: str, token: int, step: int) -> Event:
        seen.append(token)
        if len(seen) == 3:
            other = Thread(target=drain)
            other.start()
            other.join()
        return make(self, output, token, step)

    monkeypatch.setattr(Publisher, "only_token", interrupted)
    generation = started(model)
    text = "".join(generation)
    assert refused == ["generation-busy"]
    assert seen == greedy(FIXTURES / CASE / "model.onnx", PROMPT, 16, ())
    assert text == generation.text


def test_stop_strings_are_looked_for_in_every_token(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = events_of(monkeypatch)
    generation = started(model, stop=["\0never"])
    assert seen == generation.tokens
    assert len(seen) == 16


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("runs", [1, 2, 7])
def test_an_interrupted_drain_keeps_what_was_made(
    model: Models, monkeypatch: pytest.MonkeyPatch, runs: int, failure: type[BaseException]
) -> None:
    """After the prompt's run there is a token, and one more after each."""
    monkeypatch.setattr(binding, "run_bound", failing_after(runs, lambda: failure("enough")))
    generation = started(model)
    expected = ExecutionError if failure is RuntimeError else failure
    with pytest.raises(expected, match="enough") as raised:
        generation.tokens  # noqa: B018
    if isinstance(raised.value, ExecutionError):
        assert (raised.value.code, raised.value.origin) == (
            "step-failed",
            "genai_config.json:16 model.decoder.filename",
        )
    (row,) = generation.partial
    assert row.tokens == greedy(FIXTURES / CASE / "model.onnx", PROMPT, runs, ())
    assert row.finish_reason == ("failed" if failure is RuntimeError else "cancelled")


def test_rows_that_run_one_by_one_are_quiet_in_turn(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, seen = model(CASE), events_of(monkeypatch)
    monkeypatch.setitem(tiny._manifest.data["generation"], "ragged", False)
    generation = tiny.generate(batch=[PROMPT, [5]], max_new_tokens=8, temperature=0, stop_on_eos=False)
    wanted = [greedy(FIXTURES / CASE / "model.onnx", each, 8, ()) for each in (PROMPT, [5])]
    assert [row.tokens for row in generation.rows] == wanted
    assert seen == wanted[0][:1]


def test_a_failure_in_the_second_rows_prompt_leaves_it_without_tokens(
    model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = model(CASE)
    monkeypatch.setitem(tiny._manifest.data["generation"], "ragged", False)
    monkeypatch.setattr(binding, "run_bound", failing_after(4, lambda: RuntimeError("enough")))
    generation = tiny.generate(batch=[PROMPT, [5]], max_new_tokens=4, temperature=0, stop_on_eos=False)
    with pytest.raises(ExecutionError, match="enough"):
        generation.rows  # noqa: B018
    assert [len(row.tokens) for row in generation.partial] == [4, 0]
    assert [row.finish_reason for row in generation.partial] == ["length", "failed"]


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.2}, {"temperature": 1.0, "seed": 1}], ids=str)
def test_a_score_that_is_no_number_ends_both_loops_alike(
    model: Models, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], after: int
) -> None:
    """One score of the prompt's run, or of that behind it, is NaN: the tokens before it are all there are."""
    real = InPlaceDecoding.prompt, InPlaceDecoding.advance, InPlaceDecoding.row_at
    runs = [0]

    def spoil(decoding: InPlaceDecoding) -> None:
        if runs[0] == after:
            decoding.logits[:, 3] = np.nan
        runs[0] += 1

    def prompt(decoding: InPlaceDecoding) -> None:
        runs[0] = 0
        real[0](decoding)
        spoil(decoding)

    def advance(decoding: InPlaceDecoding) -> None:
        real[1](decoding)
        spoil(decoding)

    def row_at(decoding: InPlaceDecoding, place: int) -> BoundRow:
        run, *rest = real[2](decoding, place)

        def spoiled(bound: binding.Bindings, options: None) -> None:
            run(bound, options)
            spoil(decoding)

        return spoiled, *rest  # type: ignore[return-value]

    for each in (prompt, advance, row_at):
        monkeypatch.setattr(InPlaceDecoding, each.__name__, each)
    made = list[list[int]]()
    for given in ({"prompt": PROMPT}, {"batch": [PROMPT, PROMPT]}):
        asked: dict[str, Any] = {"max_new_tokens": 9, "temperature": 0.0, "stop_on_eos": False, **given, **options}
        generation = model(CASE).generate(**asked)
        with pytest.raises(ExecutionError, match="logits-not-finite"):
            generation.rows  # noqa: B018
        made.append(generation.partial[0].tokens)
    assert [len(each) for each in made] == [after, after]
    assert made[0] == made[1]
