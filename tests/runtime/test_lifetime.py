"""What a request holds goes when the request does, by reference counts alone: its buffers wait for no collection."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import genai_runtime
import pytest
from genai_runtime import Generation, binding
from genai_runtime.decoding import Decoder
from genai_runtime.held import Holder

from tests.runtime.failing import failing_after

Models = Callable[[str], genai_runtime.Model]
PROMPT = [1, 10, 20, 30]
MAKERS: dict[str, tuple[type[Any], str]] = {
    "tiny-gqa-v1": (Decoder, "start"),
    "tiny-concat-v1": (Decoder, "start"),
    "tiny-runtime-policy": (Decoder, "start"),
    "tiny-held-state": (Holder, "hold"),
}
"""Fixture -> the call that makes what holds a request's state."""


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """Weak references to every state that the test's requests make."""
    seen: list[weakref.ref[Any]] = []
    for kind, name in set(MAKERS.values()):
        make = getattr(kind, name)

        def noted(*given: Any, make: Callable[..., Any] = make) -> Any:
            state = make(*given)
            seen.append(weakref.ref(state))
            return state

        monkeypatch.setattr(kind, name, noted)
    return seen


def started(model: Models, case: str, **options: Any) -> Generation:
    return model(case).generate(PROMPT, max_new_tokens=12, temperature=0, stop_on_eos=False, **options)


def drained(generation: Generation) -> None:
    assert len(generation.tokens) == 12


def iterated(generation: Generation) -> None:
    assert "".join(generation)


def closed_half_way(generation: Generation) -> None:
    next(iter(generation))
    generation.close()


@pytest.mark.parametrize("end", [drained, iterated, closed_half_way])
@pytest.mark.parametrize("case", MAKERS)
def test_state_goes_when_its_generation_ends(
    model: Models, made: list[weakref.ref[Any]], case: str, end: Callable[[Generation], None]
) -> None:
    generation = started(model, case)
    end(generation)
    assert [each() for each in made] == [None]
    assert generation.rows


@pytest.mark.parametrize("case", MAKERS)
def test_state_goes_when_its_generation_is_dropped(model: Models, made: list[weakref.ref[Any]], case: str) -> None:
    generation = started(model, case)
    next(iter(generation))
    assert made[0]() is not None
    whole = weakref.ref(generation)
    del generation
    assert (whole(), made[0]()) == (None, None)


@pytest.mark.parametrize("case", MAKERS)
def test_state_of_several_rows_goes_too(model: Models, made: list[weakref.ref[Any]], case: str) -> None:
    generation = model(case).generate(batch=[PROMPT, [5]], max_new_tokens=8, temperature=0, stop_on_eos=False)
    pieces = generation.pieces()
    next(pieces)
    assert made[0]() is not None
    del pieces, generation
    assert {each() for each in made} == {None}


@pytest.mark.parametrize("case", MAKERS)
def test_state_goes_after_a_stop_string(model: Models, made: list[weakref.ref[Any]], case: str) -> None:
    text = started(model, case).text
    generation = started(model, case, stop=text[2])
    assert generation.finish_reason == "stop_string"
    assert {each() for each in made} == {None}


def test_state_goes_with_the_failure_of_a_step(
    model: Models, made: list[weakref.ref[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "run_bound", failing_after(3, lambda: RuntimeError("no more")))
    generation = started(model, "tiny-gqa-v1")
    try:
        generation.tokens  # noqa: B018
    except genai_runtime.ExecutionError:
        assert made[0]() is not None, "the traceback shows it"
    assert made[0]() is None
    (row,) = generation.partial
    assert (len(row.tokens), row.finish_reason) == (3, "failed")
