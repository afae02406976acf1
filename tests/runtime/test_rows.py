"""Rows of one request, and requests side by side (known traps E1, K1, K5): each is what it is alone."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import genai_runtime
import numpy as np
import pytest

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy

Models = Callable[[str], genai_runtime.Model]
DECODERS = ["tiny-gqa-v1", "tiny-concat-v1", "tiny-runtime-policy", "tiny-decoder"]
FREE: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}
ENDS = {"tiny-gqa-v1": (2, 5), "tiny-concat-v1": (2,), "tiny-runtime-policy": (2, 5), "tiny-decoder": (2,)}


def free(case: str) -> dict[str, Any]:
    """Options of a greedy row that runs on; tiny-decoder ends rows in its own graph, whoever asks."""
    return {**FREE, "stop_on_eos": case == "tiny-decoder"}


def prompts_of(*lengths: int) -> list[list[int]]:
    """Prompts of these lengths, all different, of ordinary tokens."""
    drawn = np.random.default_rng(sum(lengths))
    return [[int(each) for each in drawn.integers(6, 64, length)] for length in lengths]


def plain(case: str, prompt: list[int], count: int, ends: tuple[int, ...] = ()) -> list[int]:
    """The bare loop's tokens."""
    ends = ends or (ENDS[case] if case == "tiny-decoder" else ())
    return greedy(FIXTURES / case / "model.onnx", prompt, count, ends)


@pytest.mark.parametrize("case", DECODERS)
def test_e1_lengths_three_and_five(model: Models, case: str) -> None:
    """Positions come from each row's own length: a shorter row beside a longer one is not shifted."""
    batch = prompts_of(3, 5)
    rows = model(case).generate(batch=batch, max_new_tokens=20, **free(case)).rows
    assert [row.tokens for row in rows] == [plain(case, each, 20) for each in batch]


@pytest.mark.parametrize("case", DECODERS)
def test_k1_lengths_two_five_and_nine_in_any_order(model: Models, case: str) -> None:
    batch = prompts_of(2, 5, 9)
    wanted = {len(each): plain(case, each, 16) for each in batch}
    for order in permutations(batch):
        rows = model(case).generate(batch=list(order), max_new_tokens=16, **free(case)).rows
        assert [row.tokens for row in rows] == [wanted[len(each)] for each in order]


@pytest.mark.parametrize("case", DECODERS[:3])
def test_k1_rows_fill_the_context_one_by_one(model: Models, case: str) -> None:
    """The context of 64 ends rows at different steps, and no row by the length of another."""
    batch = prompts_of(60, 2, 40, 9)
    rows = model(case).generate(batch=batch, max_new_tokens=200, **FREE).rows
    assert [len(row.tokens) for row in rows] == [4, 62, 24, 55]
    assert [row.tokens for row in rows] == [plain(case, each, 64 - len(each)) for each in batch]
    assert {row.finish_reason for row in rows} == {"context"}


@pytest.mark.parametrize("case", DECODERS)
def test_k1_a_row_that_has_ended_does_not_disturb_the_others(model: Models, case: str) -> None:
    batch = [[3, 40, 41, 42, 43, 44, 5, 4], [1, 10, 20, 30], [5]]
    rows = model(case).generate(batch=batch, max_new_tokens=40, temperature=0).rows
    assert [row.tokens for row in rows] == [plain(case, each, 40, ENDS[case]) for each in batch]


@pytest.mark.parametrize("case", DECODERS)
def test_k1_many_rows_and_one(model: Models, case: str) -> None:
    batch = prompts_of(*(1 + at % 7 for at in range(24)))
    rows = model(case).generate(batch=batch, max_new_tokens=6, **free(case)).rows
    assert [row.tokens for row in rows] == [plain(case, each, 6) for each in batch]
    assert model(case).generate(batch=batch[:1], max_new_tokens=6, **free(case)).rows[0].tokens == rows[0].tokens


def test_text_prompts_of_a_batch_need_no_padding_by_the_caller(model: Models) -> None:
    tiny = model("tiny-gqa-v1")
    texts = ["the", "then hello", "what an hour"]
    rows = tiny.generate(batch=texts, max_new_tokens=8, **FREE).rows
    assert [row.tokens for row in rows] == [tiny.generate(each, max_new_tokens=8, **FREE).tokens for each in texts]
    assert [row.text for row in rows] == [tiny.generate(each, max_new_tokens=8, **FREE).text for each in texts]


# ---- K5: a handle per request ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DECODERS)
def test_k5_a_second_request_during_the_first(model: Models, case: str) -> None:
    """Started while the first is half way, and read in turns: each handle has its own tokens."""
    one, two = prompts_of(4, 9)
    first = model(case).generate(one, max_new_tokens=16, **free(case))
    begun = [next(first.pieces()).text for _ in range(1)]
    second = model(case).generate(two, max_new_tokens=12, **free(case))
    for stream in _in_turns(first.pieces(), second.pieces()):
        begun.append(stream)
    assert first.tokens == plain(case, one, 16)
    assert second.tokens == plain(case, two, 12)
    assert (first.finish_reason, second.finish_reason) == ("length", "length")


def test_k5_ending_one_request_leaves_the_other_running(model: Models) -> None:
    one, two = prompts_of(4, 9)
    first, second = (model("tiny-gqa-v1").generate(each, max_new_tokens=16, **FREE) for each in (one, two))
    next(iter(first))
    next(iter(second))
    first.cancel()
    assert first.finish_reason == "cancelled"
    assert second.tokens == plain("tiny-gqa-v1", two, 16)


def test_k5_requests_at_the_workflow_level_side_by_side(model: Models) -> None:
    one, two = prompts_of(4, 9)
    streams = [
        model("tiny-concat-v1").stream(
            {"request.input_ids": np.array([each]), "request.max_iterations": np.array([8])}, stop_on_eos=False
        )
        for each in (one, two)
    ]
    values = [[int(next(stream).value.item()) for stream in streams] for _ in range(8)]
    assert [list(each) for each in zip(*values, strict=True)] == [
        plain("tiny-concat-v1", each, 8) for each in (one, two)
    ]


def _in_turns(*streams: Iterator[Any]) -> Iterator[str]:
    left = list(streams)
    while left:
        for stream in list(left):
            piece = next(stream, None)
            if piece is None:
                left.remove(stream)
            else:
                yield piece.text
