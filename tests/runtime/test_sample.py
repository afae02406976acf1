"""Token choice against slow, independent formulas: one value at a time, plain Python floats."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.sample import SamplingOptions, Selector, make_selector, to_float32
from genai_runtime.truncate import Uniforms
from hypothesis import given, settings
from hypothesis import strategies as st

Row = npt.NDArray[np.float32]


def selector(
    size: int, prompt: Sequence[int] = (), valid: Any = None, ends: Sequence[int] = (), **options: Any
) -> Selector:
    return make_selector(
        SamplingOptions(**options),
        vocab_size=size,
        valid_ids=size if valid is None else valid,
        end_ids=frozenset(ends),
        prompt=prompt,
    )


def scores(size: int, seed: int = 0, spread: float = 3.0) -> Row:
    return (np.random.default_rng(seed).normal(size=size) * spread).astype(np.float32)


def distribution(
    row: Row, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    """The probabilities by their definition: keep k, soften, keep the nucleus, drop the unlikely, normalise."""
    order = sorted(range(len(row)), key=lambda i: (-float(row[i]), i))
    order = order[:top_k] if top_k else order
    weights = {i: math.exp((float(row[i]) - float(row[order[0]])) / temperature) for i in order}
    total, mass, kept = sum(weights.values()), 0.0, []
    for i in order:
        kept.append(i)
        mass += weights[i]
        if mass >= top_p * total:
            break
    kept = [i for i in kept if weights[i] >= min_p]
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(row))]


def inverse_cdf(probabilities: Sequence[float], uniform: float) -> int:
    mass = 0.0
    for i, probability in enumerate(probabilities):
        mass += probability
        if mass > uniform:
            return i
    return max(i for i, probability in enumerate(probabilities) if probability)


CUTS: list[dict[str, Any]] = [
    {"do_sample": True},
    {"temperature": 0.7},
    {"temperature": 1.9},
    {"top_k": 5},
    {"top_k": 5, "temperature": 0.5},
    {"top_p": 0.8},
    {"top_p": 0.3, "temperature": 2.0},
    {"top_p": 0.0, "do_sample": True},
    {"min_p": 0.1},
    {"top_k": 20, "top_p": 0.7},
    {"top_p": 0.9, "min_p": 0.2},
    {"top_k": 12, "top_p": 0.95, "min_p": 0.05, "temperature": 1.3},
    {"top_k": 5000},
]


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_frequencies_follow_the_exact_distribution(options: dict[str, Any]) -> None:
    """Pearson's chi-square below its 1e-6 point, in Wilson and Hilferty's approximation; the seeds are fixed."""
    row = scores(40, seed=3, spread=1.5)
    cuts = {key: value for key, value in options.items() if key != "do_sample"}
    exact = distribution(row, **cuts)
    choose, draws = selector(40, seed=11, **options), 8_000
    counts = Counter(choose(row) for _ in range(draws))
    assert all(exact[i] > 0 for i in counts)
    likely = [i for i in range(40) if exact[i] * draws >= 5]
    chi = sum((counts[i] - exact[i] * draws) ** 2 / (exact[i] * draws) for i in likely)
    freedom = max(len(likely) - 1, 1)
    assert chi < freedom * (1 - 2 / (9 * freedom) + 4.75 * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("options", CUTS, ids=str)
@pytest.mark.parametrize(("size", "spread"), [(7, 1.0), (512, 0.2), (700, 3.0), (3000, 0.02), (3000, 4.0), (1025, 0.0)])
def test_every_way_to_a_token_is_the_inverse_cdf(options: dict[str, Any], size: int, spread: float) -> None:
    """Wide, narrow and flat rows, over and under the sizes where the code takes another way."""
    cuts = {key: value for key, value in options.items() if key != "do_sample"}
    choose, uniform = selector(size, seed=5, **options), Uniforms(5)
    for step in range(12):
        row = scores(size, seed=step, spread=spread)
        exact, u = distribution(row, **cuts), uniform()
        token = choose(row)
        near = {inverse_cdf(exact, u), inverse_cdf(exact, min(u + 3e-6, 1.0)), inverse_cdf(exact, max(u - 3e-6, 0.0))}
        assert token in near, (token, near)


def test_a_large_vocabulary_with_a_nucleus_of_thousands() -> None:
    row = scores(49152, spread=0.5)
    choose, uniform = selector(49152, seed=1, top_p=0.9), Uniforms(1)
    order = np.argsort(-row, kind="stable")
    weights = np.exp(row.astype(np.float64))
    count = int(np.searchsorted(np.cumsum(weights[order]), 0.9 * weights.sum())) + 1
    assert count > 20_000
    kept = np.zeros(49152)
    kept[order[:count]] = weights[order[:count]]
    cumulative = np.cumsum(kept) / kept.sum()
    for _ in range(20):
        u = uniform()
        expected = [int(np.searchsorted(cumulative, u + shift, side="right")) for shift in (-1e-5, 0, 1e-5)]
        assert expected[0] <= choose(row) <= expected[2]


def test_ties_at_a_cut_keep_the_lowest_ids() -> None:
    row = np.zeros(600, np.float32)
    row[[3, 599]] = 1
    assert {selector(600, seed=i, top_k=4)(row) for i in range(60)} == {0, 1, 3, 599}
    assert {selector(600, seed=i, top_p=1e-9)(row) for i in range(9)} == {3}
    assert selector(600)(row) == 3


@pytest.mark.parametrize("cut", [{}, {"top_k": 8}, {"top_k": 8, "min_p": 1.0}], ids=str)
@pytest.mark.parametrize("size", [9, 700, 3000])
def test_a_nucleus_keeps_the_best_scores_where_their_weights_round_to_one(size: int, cut: dict[str, Any]) -> None:
    row = np.zeros(size, np.float32)
    row[[8, 3, 5, 1]] = 4, 3, 2, 1
    assert {selector(size, seed=i, temperature=1e30, top_p=0.0, **cut)(row) for i in range(9)} == {8}
    three = 2.5 / (cut.get("top_k") or size)
    assert {selector(size, seed=i, temperature=1e30, top_p=three, **cut)(row) for i in range(60)} == {8, 3, 5}


def test_greedy_is_the_lowest_id_of_the_highest_score() -> None:
    ways: list[dict[str, Any]] = [
        {}, {"temperature": 0}, {"temperature": 0, "top_p": 0.5, "seed": 3}, {"top_k": 1, "do_sample": True},
        {"do_sample": False, "temperature": 2.0},
    ]  # fmt: skip
    for options in ways:
        choose = selector(100, **options)
        assert choose.seed is None
        for step in range(5):
            row = scores(100, seed=step).round()
            assert choose(row) == max(range(100), key=lambda i: (row[i], -i))


def test_temperature_one_alone_is_greedy_and_a_seed_samples() -> None:
    row = scores(50, spread=0.1)
    assert SamplingOptions(temperature=1.0).greedy
    assert not SamplingOptions(seed=1).greedy
    assert len({selector(50, seed=i)(row) for i in range(40)}) > 5


def test_g6_ids_without_a_token_are_never_chosen() -> None:
    row = scores(256)
    row[253] = 99
    row[251] = np.nan
    holes = np.ones(256, np.bool_)
    holes[[7, 9, 250, 251, 252, 253, 254, 255]] = False
    row[7] = 98
    assert selector(256, valid=250)(row) == 7
    best = max(np.flatnonzero(holes), key=lambda i: row[i])
    assert selector(256, valid=holes)(row) == best
    for options in (
        {"top_k": 256, "seed": 1},
        {"temperature": 9.0},
        {"top_p": 0.99, "temperature": 9.0},
        {"min_p": 1e-6},
    ):
        choose = selector(256, valid=holes, **options)
        assert all(holes[choose(row)] for _ in range(300))
    with pytest.raises(RequestError, match="no-valid-token"):
        selector(256, valid=0)


def test_g6_when_all_is_forbidden_the_first_token_with_an_id_comes() -> None:
    holes = np.array([False, True, True, False])
    row = np.zeros(4, np.float32)
    for seed in (None, 4):
        choose = selector(4, valid=holes, ends=(1, 2), min_new_tokens=1, seed=seed)
        assert choose(row) == 1


def slow_scores(
    row: Row, prompt: Sequence[int], made: Sequence[int], options: SamplingOptions, ends: Sequence[int]
) -> list[float]:
    """The documented order of changes, one token at a time, recomputed from the whole history."""
    size = len(row)
    values = [float(value) for value in row]
    for i, bias in (options.logit_bias or {}).items():
        values[i] += bias
    if len(made) < options.min_new_tokens:
        for i in ends:
            values[i] = -math.inf
    history = [*prompt, *made]
    window = options.penalty_window
    recent, recent_made = (history[-window:], made[-window:]) if window else (history, made)
    for i in {i for i in recent if 0 <= i < size}:
        values[i] = values[i] * options.repetition_penalty if values[i] < 0 else values[i] / options.repetition_penalty
    for i, count in Counter(recent_made).items():
        values[i] -= options.presence_penalty + options.frequency_penalty * count
    n = options.no_repeat_ngram_size
    for start in range(len(history) - n + 1) if n else ():
        last = history[start + n - 1]
        if history[start : start + n - 1] == history[len(history) - n + 1 :] and 0 <= last < size:
            values[last] = -math.inf
    return values


@given(
    prompt=st.lists(st.integers(-1, 9), max_size=12),
    repetition=st.sampled_from([1.0, 1.3, 0.7]),
    presence=st.sampled_from([0.0, 0.5, -0.4]),
    frequency=st.sampled_from([0.0, 0.25]),
    window=st.sampled_from([0, 1, 3]),
    ngram=st.sampled_from([0, 1, 2, 3]),
    least=st.integers(0, 4),
    bias=st.sampled_from([None, {2: 1.5, 5: -3.0}]),
    seed=st.integers(0, 50),
)
@settings(max_examples=250, deadline=None)
def test_penalties_equal_a_slow_recomputation(
    prompt: list[int], repetition: float, presence: float, frequency: float, window: int, ngram: int, least: int,
    bias: dict[int, float] | None, seed: int,
) -> None:  # fmt: skip
    options = SamplingOptions(
        repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency, penalty_window=window,
        no_repeat_ngram_size=ngram, min_new_tokens=least, logit_bias=bias,
    )  # fmt: skip
    choose = make_selector(options, vocab_size=8, valid_ids=8, end_ids=frozenset({1, 6}), prompt=prompt)
    made: list[int] = []
    for step in range(9):
        row = scores(8, seed=seed * 100 + step)
        before = row.copy()
        expected = slow_scores(row, prompt, made, options, (1, 6))
        token = choose(row)
        assert np.array_equal(row, before)
        assert expected[token] >= max(expected) - 1e-5 or (max(expected) == -math.inf and token == 0)
        made.append(token)


def test_g1_repetition_counts_a_token_once_however_often_it_occurs() -> None:
    """2.2 / 1.1 = 2.0 stays above 1.9; five times over, 2.2 / 1.1**5 = 1.37 would not."""
    row = np.array([0, 2.2, 1.9, -1], np.float32)
    assert selector(4, [1, 1, 1, 1, 1], repetition_penalty=1.1)(row) == 1
    assert selector(4, [1], repetition_penalty=1.2)(row) == 2
    assert selector(4, [1, 3], repetition_penalty=1.2, penalty_window=1)(row) == 1


def test_repetition_makes_a_negative_score_lower() -> None:
    row = np.array([-1.0, -1.1, -9], np.float32)
    assert selector(3, [0], repetition_penalty=1.2)(row) == 1


def test_a8_no_repeat_ngram_breaks_a_loop() -> None:
    row = np.array([3.0, 2.0, 1.0, 0.0], np.float32)
    choose = selector(4, no_repeat_ngram_size=2)
    made = [choose(row) for _ in range(8)]
    pairs = list(pairwise(made))
    assert len(pairs) == len(set(pairs))


def test_min_new_tokens_holds_all_end_tokens_back() -> None:
    row = np.array([9, 8, 1, 0], np.float32)
    choose = selector(4, ends=(0, 1), min_new_tokens=2)
    assert [choose(row) for _ in range(3)] == [2, 2, 0]


def test_g3_a_seeded_row_is_not_moved_by_its_neighbours() -> None:
    rows = [scores(300, seed=i, spread=1.0) for i in range(20)]
    alone = selector(300, seed=7, top_p=0.9)
    expected = [alone(row) for row in rows]
    seeded, unseeded = selector(300, seed=7, top_p=0.9), selector(300, do_sample=True)
    got = []
    for row in rows:
        unseeded(row)
        got.append(seeded(row))
        unseeded(row)
    assert got == expected
    other = selector(300, seed=8, top_p=0.9)
    assert [other(row) for row in rows] != expected


def test_g3_the_seed_in_use_repeats_an_unseeded_run() -> None:
    rows = [scores(300, seed=i, spread=1.0) for i in range(20)]
    first, second = selector(300, do_sample=True), selector(300, do_sample=True)
    assert first.seed is not None
    assert first.seed != second.seed
    made = [first(row) for row in rows]
    again = selector(300, seed=first.seed)
    assert [again(row) for row in rows] == made


def test_g4_rows_give_the_same_tokens_in_any_order() -> None:
    kinds: list[dict[str, Any]] = [
        {}, {"repetition_penalty": 1.5}, {"seed": 1, "temperature": 0.9},
        {"frequency_penalty": 0.7, "top_k": 9, "seed": 2},
    ]  # fmt: skip
    rows = [scores(64, seed=i, spread=1.0) for i in range(12)]

    def run(order: Sequence[int]) -> dict[int, list[int]]:
        made: dict[int, list[int]] = {i: [] for i in order}
        chosen = {i: selector(64, [i], **kinds[i]) for i in order}
        for row in rows:
            for i in order:
                made[i].append(chosen[i](row))
        return made

    assert run([0, 1, 2, 3]) == run([3, 1, 0, 2]) == {i: run([i])[i] for i in range(4)}


def test_uniforms_are_philox_of_the_seed() -> None:
    """The top 53 bits of each raw word, which numpy promises to keep; what `random()` makes of them it does not."""
    raw = np.random.Philox(0).random_raw(3)
    stream = Uniforms(0)
    assert [stream() for _ in range(3)] == [int(word >> np.uint64(11)) / 2**53 for word in raw]
    assert Uniforms(2**64 - 1)() != Uniforms(0)()


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.2}, {"seed": 1}, {"top_k": 3, "seed": 1},
                                     {"top_p": 0.5}, {"min_p": 0.5}], ids=str)  # fmt: skip
def test_nan_logits_are_an_error(options: dict[str, Any]) -> None:
    row = scores(600)
    row[599] = np.nan
    with pytest.raises(ExecutionError, match="logits-not-finite"):
        selector(600, **options)(row)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.2}, {"seed": 1}, {"logit_bias": {7: 99.0}}], ids=str)
def test_a_choice_is_put_into_a_buffer(options: dict[str, Any], dtype: type[np.integer[Any]]) -> None:
    """As `over` chooses, from the same row as it changes; ids of 32 bits, which a search can't write, too."""
    row, token = scores(600), np.zeros(1, dtype)
    choose, put = selector(600, **options).over(row), selector(600, **options).into(row, token)
    for place in (599, 0, 31):
        row[place] += 40
        put()
        assert token.tolist() == [choose()]
    row = scores(600)
    row[599] = np.nan
    put = selector(600, **options).into(row, token)
    if not options and dtype is np.int64:
        put()
        assert token.tolist() == [599]  # its caller finds out
    else:
        with pytest.raises(ExecutionError, match="logits-not-finite"):
            put()


def test_infinite_logits_are_an_error_where_a_distribution_is_needed() -> None:
    row = scores(600)
    row[5] = np.inf
    with pytest.raises(ExecutionError, match="logits-not-finite"):
        selector(600, seed=1)(row)
    assert selector(600)(row) == 5


def test_all_bad_fields_are_listed_at_once() -> None:
    bad: dict[str, Any] = {
        "temperature": -1, "top_k": -1, "top_p": 1.5, "min_p": math.nan, "repetition_penalty": 0,
        "presence_penalty": math.inf, "frequency_penalty": "x", "penalty_window": 1.5, "no_repeat_ngram_size": -1,
        "min_new_tokens": True, "seed": -1, "logit_bias": {1: math.nan}, "do_sample": "yes",
    }  # fmt: skip
    with pytest.raises(RequestError, match="bad-sampling-options") as caught:
        SamplingOptions(**bad).validate()
    for field in SamplingOptions.__dataclass_fields__:
        assert f"{field} must be" in str(caught.value)
    for value in (10**400, -(10**400)):
        with pytest.raises(RequestError, match="temperature"):
            SamplingOptions(temperature=value).validate()
    SamplingOptions().validate()
    with pytest.raises(RequestError, match="bad-logit-bias"):
        selector(4, logit_bias={4: 1.0})


def test_c2_every_float_type_becomes_float32() -> None:
    values = np.array([[1.0, -2.5, 0.15625, 65280.0, -0.0, np.inf]], np.float32)
    bfloat16 = (values.view(np.uint32) >> 16).astype(np.uint16)  # exact: these have at most 8 significant bits
    assert np.array_equal(to_float32(bfloat16), values)
    assert to_float32(bfloat16).dtype == np.float32
    assert np.array_equal(to_float32(values.astype(np.float64)), values)
    assert np.array_equal(to_float32(np.array([1.5, -2], np.float16)), np.array([1.5, -2], np.float32))
    assert to_float32(values) is values
    assert np.array_equal(to_float32(bfloat16[:, ::2]), values[:, ::2])
    with pytest.raises(ExecutionError, match="logits-dtype"):
        to_float32(np.zeros(3, np.int64))
