"""The bench's arithmetic and its page. Nothing here looks at a clock."""

import json
import math

import numpy as np
import pytest

from tools.bench.cold import parse_import_times
from tools.bench.ratios import Interval, baseline, bootstrap_median, column, deviation, difference, paired
from tools.bench.report import render
from tools.bench.rounds import equal_tokens, turns
from tools.bench.run_clock import Call, RunClock, Trace, step_times
from tools.bench.start_report import import_groups
from tools.bench.tables import table, with_bounds
from tools.bench.targets import targets

NAMES = ["loop", "tokens", "genai", "loop-again"]


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
    assert math.isclose(deviation(Interval(1.0, 0.97, 1.01)), 0.03)


def test_a_step_lasts_from_decoder_run_to_decoder_run_and_host_time_is_what_is_left() -> None:
    """Session 1 is the decoder (it takes most), session 2 a policy that runs between its runs."""
    calls = [Call(1, 0.0, 5.0)]  # the prompt
    for start in (10.0, 20.0, 30.0, 40.0):
        calls += [Call(2, start, start + 1.0), Call(1, start + 2.0, start + 8.0)]
    steps, hosts = step_times(calls)
    assert steps == [10.0, 10.0, 10.0]  # from the second decode run on
    assert hosts == [3.0, 3.0, 3.0]  # 10 less the policy's 1 and the decoder's 6


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
    assert longer.measured() == {"ttft": 1.0, "step": 1.0, "host": 0.25, "rate": 1.0}


def test_everyone_stands_at_every_place() -> None:
    orders = [turns(tuple(NAMES), number) for number in range(8)]
    assert all(sorted(order) == sorted(NAMES) for order in orders)
    assert {order[0] for order in orders} == set(NAMES)
    assert {order[-1] for order in orders} == set(NAMES)


def test_equal_tokens_stops_at_the_first_difference() -> None:
    assert equal_tokens([1, 2, 3], [1, 2, 3]) == 3
    assert equal_tokens([1, 9, 3], [1, 2, 3]) == 1
    assert equal_tokens([1, 2], [1, 2, 3]) == 2


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


def test_tables_are_markdown() -> None:
    assert table(["", "ms"], [["floor", "3"]]) == "|  | ms |\n| --- | ---: |\n| floor | 3 |\n"
    assert with_bounds(Interval(1.0, 0.5, 2.0), 1) == "1.0 [0.5, 2.0]"


def measured_round(step: float, host: float) -> dict[str, dict[str, float]]:
    """A round in which the loop takes 10 ms a step and 40 us of host time, the executor what is given."""
    loop = {"step": 0.01, "host": 40e-6, "ttft": 0.2, "rate": 100.0}
    own = {"step": step, "host": host, "ttft": 0.2, "rate": 1 / step}
    return {"loop": loop, "tokens": own, "genai": loop, "loop-again": loop}


def results(step: float, host: float) -> dict[str, object]:
    """A run of three equal rounds, one thread."""
    scenario = {
        "prompt": 64,
        "new": 128,
        "names": NAMES,
        "same": dict.fromkeys(NAMES, 128),
        "rounds": [measured_round(step, host)] * 3,
    }
    start = {"sessions": {"start": 300.0}, "sessions-again": {"start": 300.0}, "executor": {"start": 420.0}}
    return {
        "machine": {"Processor": "a processor"},
        "load": {"before": 0.5, "after": 1.5},
        "threads": [{"threads": 1, "scenarios": [scenario]}],
        "start": [start] * 3,
        "parts": {"open the sessions": 250.0, "tokenizer": 90.0},
        "imports": {"genai_runtime.model": 5.0, "logging": 3.0},
        "memory": {"sessions": {"loaded": {}, "peak": {}}},
    }


def test_targets_say_by_how_much_they_are_missed() -> None:
    found = {each.title: each for each in targets(results(step=0.0125, host=60e-6))}
    decode = found["decode speed against the hand-written loop"]
    assert not decode.met
    assert math.isclose(decode.missed_by, 0.97 - 0.8)
    host = found["host time a token over the hand-written loop's"]
    assert math.isclose(host.missed_by, 0.25)
    start = found["start-up over a process that opens the sessions"]
    assert start.met
    assert start.found.median == 120.0


def test_page_shows_every_section_and_explains_only_what_is_missed() -> None:
    missed, met = render(results(0.0125, 60e-6)), render(results(0.01, 40e-6))
    for heading in (
        "## Machine",
        "## Targets",
        "## 1 thread",
        "### Decode: 64",
        "### Time to first token",
        "## Start-up",
    ):
        assert heading in missed
    assert "missed by 0.250" in missed
    assert "missed by" not in met
    assert "| executor, token ids | 10000 | 1.000 [1.000, 1.000] | 40.0 | 1.00 [1.00, 1.00] | 100.0 | 128/128 |" in met
    assert "Not measured: this system has no" in met


def test_page_can_hold_one_section_and_results_are_plain_data() -> None:
    whole = json.loads(json.dumps(results(0.01, 40e-6)))
    only = {key: whole[key] for key in ("machine", "load", "memory")}
    assert "## Memory" in render(only)
    assert "## 1 thread" not in render(only)
