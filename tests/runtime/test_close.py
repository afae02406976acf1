"""Closing a model: nothing answers any more, the sessions are gone, and what is in flight ends in peace."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_runtime import RequestError

from tests.conftest import Traced

PROMPT = [3, 4]


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_a_closed_model_answers_nothing(compiled: Callable[[str], tuple[Path, Traced]], case: str) -> None:
    model = genai_runtime.load(compiled(case)[0], threads=1)
    model.close()
    model.close()
    calls: list[Callable[[], object]] = [
        lambda: model.generate(PROMPT),
        lambda: model.chat([{"role": "user", "content": "hi"}]),
        lambda: model.run({}),
        lambda: next(model.stream({})),
        lambda: model.reset("a"),
        model.describe,
    ]
    for call in calls:
        with pytest.raises(RequestError) as refused:
            call()
        assert refused.value.code == "closed"


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_closing_releases_the_sessions(compiled: Callable[[str], tuple[Path, Traced]], case: str) -> None:
    model = genai_runtime.load(compiled(case)[0], threads=1)
    assert model.generate(PROMPT, max_new_tokens=3).stats.new_tokens > 0
    held = [weakref.ref(each._sess) for each in model._sessions._open.values()]
    assert held
    model.close()
    gc.collect()
    assert [each() for each in held] == [None] * len(held)


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_a_generation_in_flight_outlives_the_close(compiled: Callable[[str], tuple[Path, Traced]], case: str) -> None:
    model = genai_runtime.load(compiled(case)[0], threads=1)
    options: dict[str, Any] = {"max_new_tokens": 8, "temperature": 0}
    wanted = model.generate(PROMPT, **options).tokens
    unstarted, started = model.generate(PROMPT, **options), model.generate(PROMPT, **options)
    assert started._step() == 0
    held = [weakref.ref(each._sess) for each in model._sessions._open.values()]
    model.close()
    assert unstarted.tokens == started.tokens == wanted
    del unstarted, started
    gc.collect()
    assert [each() for each in held] == [None] * len(held)
