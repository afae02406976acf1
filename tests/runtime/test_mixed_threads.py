"""Eight threads on two freshly loaded packages, with requests of every kind: each gives what it gives alone.

Fresh models, because what is opened when first asked for (tokenizer, template, sessions) is then asked for at once.
"""

import gc
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_runtime import GenaiError, Generation, Model

from tests.conftest import Traced

Compiled = Callable[[str], tuple[Path, Traced]]
THREADS, EACH = 8, 14


def begun(model: Model, prompt: Any = (1, 10, 20), **options: Any) -> Generation:
    return model.generate(prompt, **{"max_new_tokens": 8, "temperature": 0, "stop_on_eos": False, **options})


def closed(model: Model) -> object:
    generation = begun(model)
    next(generation.pieces())
    generation.close()
    return generation.partial[0].finish_reason


def dropped(model: Model) -> None:
    """In a cycle, so that a collection ends it, in whichever thread that happens."""
    generation: Any = begun(model)
    next(generation.pieces())
    generation.itself = generation


def broken_off(model: Model) -> object:
    try:
        for _ in begun(model):
            raise KeyError("the caller's own")
    except KeyError as failure:
        return failure.args


def refused(model: Model) -> object:
    with pytest.raises(GenaiError) as caught:
        begun(model, max_new_tokens=-1)
    return caught.value.code


REQUESTS: dict[str, Callable[[Model], object]] = {
    "short": lambda model: begun(model, [1]).tokens,
    "long": lambda model: begun(model, list(range(1, 25))).tokens,
    "words": lambda model: begun(model, "hello world").tokens,
    "pieces": lambda model: "".join(begun(model)),
    "rows": lambda model: [each.tokens for each in model.generate(batch=[[1, 9], [1, 9, 14]], max_new_tokens=6).rows],
    "sampled": lambda model: begun(model, temperature=1.0, top_k=5, seed=11).tokens,
    "chat": lambda model: model.chat([{"role": "user", "content": "hello"}], max_new_tokens=6).tokens,
    "described": lambda model: model.describe()["threads"],
    "closed": closed,
    "dropped": dropped,
    "broken off": broken_off,
    "refused": refused,
}


@pytest.mark.parametrize("pair", [("tiny-gqa-v1", "tiny-decoder"), ("tiny-held-state", "tiny-block-drafts")])
def test_each_request_gives_what_it_gives_alone(compiled: Compiled, pair: tuple[str, str]) -> None:
    alone = {
        (case, name): ask(genai_runtime.load(compiled(case)[0], threads=1))
        for case in pair
        for name, ask in REQUESTS.items()
    }
    models = {case: genai_runtime.load(compiled(case)[0], threads=1) for case in pair}
    together = threading.Barrier(THREADS)

    def served(seed: int) -> list[tuple[tuple[str, str], object]]:
        draw, given = random.Random(seed), list[tuple[tuple[str, str], object]]()
        together.wait()
        for _ in range(EACH):
            case, name = draw.choice(sorted(alone))
            given.append(((case, name), REQUESTS[name](models[case])))
            if draw.random() < 0.1:
                gc.collect()
        return given

    with ThreadPoolExecutor(THREADS) as pool:
        found = [each for thread in pool.map(served, range(THREADS)) for each in thread]
    assert len(found) == THREADS * EACH
    assert [(asked, got) for asked, got in found if got != alone[asked]] == []
    assert len({asked for asked, _ in found}) == len(alone)
