"""The bench's arithmetic: medians, intervals, ratios within a round, steps. Nothing here looks at a clock."""

import math

import numpy as np
import pytest

from tools.bench.cold import parse_import_times
from tools.bench.compile_cost import resident_peak
from tools.bench.ratios import Interval, baseline, bootstrap_median, column, deviation, difference, paired
from tools.bench.rounds import compare, equal_tokens, turns
from tools.bench.run_clock import Call, RunClock, Trace, decoder_of, step_times
from tools.bench.start_report import import_groups
from tools.bench.tables import table, with_bounds

NAMES = ("loop", "tokens", "genai", "loop-again")


def test_median_of_equal_samples_is_certain() -> None:
    assert bootstrap_median([2.0] * 15) == Interval(2.0, 2.0, 2.0)


def test_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    draws = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        found = bootstrap_median(draws.normal(1.0, 0.1, 25).tolist(), resamples=400)
        covered += found.low <= 1.0 <= found.high
    assert 175 <= covered <= 199  # 190 expected; the percentile bootstrap of a median is a little off


def test_bootstrap_is_reproducible_and_wants_samples() -> None:
    samples = [1.0, 4.0, 2.0, 8.0, 5.0]
    assert bootstrap_median(samples) == bootstrap_median(samples)
    assert bootstrap_median(samples).median == 4.0
    with pytest.raises(ValueError, match="no samples"):
        bootstrap_median([])


def test_pairs_are_taken_within_a_round() -> None:
    """Rounds of very different speed: the ratio is 2 in each, the ratio of medians would not be."""
    under = [1.0, 10.0, 100.0]
    assert paired([2.0, 20.0, 200.0], under) == Interval(2.0, 2.0, 2.0)
    assert difference([4.0, 13.0, 103.0], under) == Interval(3.0, 3.0, 3.0)
    with pytest.raises(ValueError, match="argument 2"):
        paired([1.0], under)


def test_baseline_is_the_geometric_mean_of_both_halves() -> None:
    rounds = [
        {"loop": {"step": 4.0}, "loop-again": {"step": 9.0}},
        {"loop": {"step": 1.0}, "loop-again": {"step": 1.0}},
    ]
    assert baseline(rounds, "step", "loop", "loop-again") == [6.0, 1.0]
    assert column(rounds, "loop-again", "step") == [9.0, 1.0]


def test_deviation_is_the_farther_end_of_the_interval() -> None:
    assert math.isclose(deviation(Interval(1.0, 0.97, 1.01)), 0.03)
    assert math.isclose(deviation(Interval(2.0, -1.0, 5.0), even=0.0), 5.0)


def test_a_step_lasts_from_decoder_run_to_decoder_run_and_host_time_is_what_is_left() -> None:
    """Session 1 is the decoder (it takes most), session 2 a policy that runs between its runs."""
    calls = [Call(1, 0.0, 5.0)]  # the prompt
    for start in (10.0, 20.0, 30.0, 40.0):
        calls += [Call(2, start, start + 1.0), Call(1, start + 2.0, start + 8.0)]
    steps = step_times(calls)
    assert steps.seconds == [10.0, 10.0, 10.0]  # from the second decode run on
    assert steps.hosts == [3.0, 3.0, 3.0]  # 10 less the policy's 1 and the decoder's 6
    assert steps.runs == [2, 2, 2]


def test_a_long_prompt_in_a_session_of_its_own_is_not_the_decoder() -> None:
    prompt = [Call(3, 0.0, 900.0)]
    steps = [Call(1, 1000.0 + at, 1000.75 + at) for at in range(8)]
    assert decoder_of(prompt + steps) == 1
    assert step_times(prompt + steps).seconds == [1.0] * 6
    assert decoder_of([]) == 0


def test_clock_notes_calls_and_passes_values_through() -> None:
    clock = RunClock()
    session = object()
    add = clock.timed(session, lambda one, other: one + other)
    assert [add(1, 2), add(3, 4)] == [3, 7]
    calls = clock.take()
    assert [call.where for call in calls] == [id(session)] * 2
    assert all(call.begin <= call.end for call in calls)
    assert clock.take() == []


def test_a_short_trace_has_no_step() -> None:
    trace = Trace([1, 2], 0.5, 0.9, [Call(1, 0.0, 0.5), Call(1, 0.6, 0.9)])
    assert trace.measured() == {"ttft": 0.5}
    longer = Trace([1, 2, 3, 4], 1.0, 4.0, [Call(1, at, at + 0.75) for at in (0.0, 1.0, 2.0, 3.0)])
    assert longer.measured() == {"ttft": 1.0, "step": 1.0, "host": 0.25, "runs": 1.0, "rate": 1.0}


def test_a_trace_from_another_process_has_steps_and_no_host_time() -> None:
    trace = Trace([1, 2, 3, 4], 1.0, 7.0, steps=[3.0, 1.0, 2.0])
    assert trace.measured() == {"ttft": 1.0, "step": 2.0, "rate": 0.5}


def test_the_rate_of_several_rows_counts_all_their_tokens_but_the_first() -> None:
    calls = [Call(1, at, at + 0.5) for at in (0.0, 1.0, 2.0, 3.0)]
    trace = Trace([7] * 8, 1.0, 4.0, calls, rows=2)
    assert trace.measured()["rate"] == (8 - 2) / 3.0


def test_everyone_stands_at_every_place() -> None:
    orders = [turns(NAMES, number) for number in range(8)]
    assert all(sorted(order) == sorted(NAMES) for order in orders)
    assert {order[0] for order in orders} == set(NAMES)
    assert {order[-1] for order in orders} == set(NAMES)


def test_equal_tokens_stops_at_the_first_difference() -> None:
    assert equal_tokens([1, 2, 3], [1, 2, 3]) == 3
    assert equal_tokens([1, 9, 3], [1, 2, 3]) == 1
    assert equal_tokens([1, 2], [1, 2, 3]) == 2


def test_what_was_the_same_is_the_least_of_all_rounds() -> None:
    same = {one: dict.fromkeys("ab", 3) for one in "ab"}
    compare({"a": Trace([1, 2, 3], 0, 0), "b": Trace([1, 2, 4], 0, 0)}, same)
    compare({"a": Trace([1, 2, 3], 0, 0), "b": Trace([1, 2, 3], 0, 0)}, same)
    assert same == {"a": {"a": 3, "b": 2}, "b": {"a": 2, "b": 3}}


def test_import_times_after_a_module() -> None:
    lines = [
        "import time: self [us] | cumulative | imported package",
        "import time:      1000 |       1000 |   numpy",
        "import time:       500 |       1500 | onnxruntime",
        "a line of something else",
        "import time:       250 |        250 |   logging",
        "import time:      2000 |       2250 | genai_runtime",
    ]
    found = parse_import_times(lines, after="onnxruntime")
    assert found == {"logging": 0.25, "genai_runtime": 2.0}
    assert list(import_groups(found)) == ["genai_runtime", "standard library and others"]


def test_peak_of_a_status_text() -> None:
    assert resident_peak("Name:\tx\nVmHWM:\t  2000 kB\nVmRSS:\t 1000 kB\n") == 2.048
    assert resident_peak("Name:\tx\n") == 0.0


def test_tables_are_markdown() -> None:
    assert table(["", "ms"], [["floor", "3"]]) == "|  | ms |\n| --- | ---: |\n| floor | 3 |\n"
    assert with_bounds(Interval(1.0, 0.5, 2.0), 1) == "1.0 [0.5, 2.0]"
