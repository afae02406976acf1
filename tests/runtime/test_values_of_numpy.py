"""Options and prompts given as values of numpy: each is what it says, or refused by name."""

from typing import Any

import numpy as np
import pytest

from tests.runtime.test_odd_requests import CASE, Models, refused


@pytest.mark.parametrize("greedy", [False, np.False_])
def test_a_request_that_does_not_sample_does_not(model: Models, greedy: object) -> None:
    """Whatever the rest says, with truth values of numpy, too (docs/options.md)."""
    tiny = model(CASE)
    wanted = tiny.generate([1, 9, 14], max_new_tokens=6, temperature=0).tokens
    for seed in range(4):
        asked: dict[str, Any] = {"do_sample": greedy, "temperature": 2.5, "seed": seed}
        assert tiny.generate([1, 9, 14], max_new_tokens=6, **asked).tokens == wanted
        assert [each.tokens for each in tiny.generate(batch=[[1, 9, 14]], max_new_tokens=6, **asked).rows] == [wanted]


@pytest.mark.parametrize("value", [0, 1, 0.0, "no", np.int64(0)])
def test_numbers_are_no_truth_values(model: Models, value: object) -> None:
    failure = refused(lambda: model(CASE).generate([1], do_sample=value, temperature=0.5), "bad-sampling-options")
    assert "do_sample must be true, false or unset" in failure.what


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
def test_numbers_of_numpy_are_numbers(model: Models, kind: type[Any]) -> None:
    tiny = model(CASE)
    asked = {"max_new_tokens": 6, "top_k": np.int8(9), "seed": np.uint64(3)}
    plain = tiny.generate([1, 9], max_new_tokens=6, temperature=1.5, top_k=9, seed=3).tokens
    assert tiny.generate([1, 9], temperature=kind(1.5), **asked).tokens == plain


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", [CASE, "tiny-decoder"])
@pytest.mark.parametrize("option", ["temperature", "top_k", "seed"])
@pytest.mark.parametrize("value", [np.array([]), np.array([[0.5]]), np.array(0.5)], ids=["none", "one", "rank 0"])
def test_an_array_is_no_value_of_an_option(model: Models, case: str, option: str, value: object) -> None:
    failure = refused(lambda: model(case).generate([1], **{option: value}), "bad-sampling-options")
    assert f"{option} is an array" in failure.what


@pytest.mark.parametrize("option", ["images", "audio"])
@pytest.mark.parametrize("value", [True, 7, {"a": 1}, np.zeros(0), np.zeros(16000), np.array(1)], ids=str)
def test_files_come_in_a_list(model: Models, option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    assert f"{option} is a list of files" in refused(lambda: model(CASE).generate([1], **given), "bad-inputs").what


def test_entries_that_an_array_hides_are_no_ids(model: Models) -> None:
    hidden = np.ma.masked_array([1, 2], [False, True])
    refused(lambda: model(CASE).generate(hidden), "bad-token")
    refused(lambda: model(CASE).generate(batch=[hidden]), "bad-token")
    assert model(CASE).generate(np.ma.masked_array([1, 2]), max_new_tokens=1).tokens
