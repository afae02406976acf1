"""Options of a batch: which take a list with a value a row, and what is said of one where a value holds for all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from genai_runtime import Model

from tests.runtime.test_odd_requests import CASE, refused

Models = Callable[[str], Model]
FLAGS = ("stop_on_eos", "skip_special_tokens", "add_special_tokens", "speculate")


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("value", [[False, False], (False, True), np.array([False, False]), "no", 0, {}])
def test_a_flag_holds_for_all_rows(model: Models, flag: str, value: Any) -> None:
    refusal = refused(lambda: model(CASE).generate(batch=[[1], [2]], **{flag: value}), "bad-option")
    assert flag in str(refusal)
    assert ("one by one" in refusal.help) == isinstance(value, list | tuple | np.ndarray)


def test_flags_elsewhere_are_flags_too(model: Models) -> None:
    tiny, inputs = model(CASE), {"request.input_ids": np.array([[1]])}
    refused(lambda: tiny.run(inputs, stop_on_eos=[True]), "bad-option")  # type: ignore[arg-type]
    refused(lambda: list(tiny.stream(inputs, speculate="on")), "bad-option")  # type: ignore[arg-type]
    refused(lambda: tiny.count_tokens([1], add_special_tokens=[True]), "bad-option")  # type: ignore[arg-type]
    refused(lambda: tiny.chat([], fold_system=[True]), "bad-option")  # type: ignore[arg-type]
    assert tiny.generate([1], stop_on_eos=np.bool_(False), max_new_tokens=2).tokens  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [CASE, "tiny-concat-v1", "tiny-decoder"])
def test_each_row_of_a_batch_has_its_own_length(model: Models, case: str) -> None:
    tiny, prompts, lengths = model(case), [[4], [4, 5, 6], [7, 8]], [3, 0, 5]
    rows = tiny.generate(batch=prompts, max_new_tokens=lengths, stop_on_eos=False).rows
    assert [len(each.tokens) for each in rows] == lengths
    alone = [
        tiny.generate(prompt, max_new_tokens=most, stop_on_eos=False).tokens
        for prompt, most in zip(prompts, lengths, strict=True)
    ]
    assert [each.tokens for each in rows] == alone


def test_none_in_a_list_of_lengths_is_the_default(model: Models) -> None:
    tiny, prompts = model(CASE), [[4], [4, 5, 6]]
    left = tiny.generate(batch=prompts, max_new_tokens=[None, 2], stop_on_eos=False).rows
    assert left[0].tokens == tiny.generate(prompts[0], stop_on_eos=False).tokens
    assert len(left[1].tokens) == 2


@pytest.mark.parametrize(
    ("most", "code"),
    [([3], "wrong-row-count"), ([3, -1], "bad-length"), ([3, 2.0], "bad-length"), ([[3], 2], "bad-length"),
     ([True, 2], "bad-length"), ("3", "bad-length")],
)  # fmt: skip
def test_a_length_that_is_none_says_what_is_one(model: Models, most: Any, code: str) -> None:
    assert "a row" in refused(lambda: model(CASE).generate(batch=[[1], [2]], max_new_tokens=most), code).help


def test_stop_strings_hold_for_all_rows(model: Models) -> None:
    assert "every row" in refused(lambda: model(CASE).generate(batch=[[1], [2]], stop=[["a"], ["b"]]), "bad-stop").help


def test_a_bias_names_the_last_id_that_there_is(model: Models) -> None:
    """64 tokens, so that the last is 63 (the fixture's graph has 64 columns)."""
    tiny = model(CASE)
    biased = refused(lambda: tiny.generate([1], logit_bias={700: 1.0}, max_new_tokens=1).tokens, "bad-logit-bias")
    assert "ids are 0 to 63" in str(biased)
    assert "ids are 0 to 63" in str(refused(lambda: tiny.generate([700]), "bad-token"))
    assert tiny.generate([1], logit_bias={63: 1e9}, max_new_tokens=1).tokens == [63]
