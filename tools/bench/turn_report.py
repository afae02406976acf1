"""The sections on parts in which contestants took turns."""

from collections.abc import Iterable, Sequence
from typing import Any

from tools.bench.contestants import AGAIN, LOOP, TITLES
from tools.bench.ratios import Interval, Rounds, baseline, bootstrap_median, column, deviation, paired
from tools.bench.tables import table, with_bounds

Scenario = dict[str, Any]
PAIRS = {LOOP: AGAIN, "one-graph": "one-graph-again"}
"""First half of an A/A pair -> second half."""
SECTIONS = {
    "decode-int4": "Decode: SmolLM2, int4",
    "decode-int8": "Decode: SmolLM2, int8",
    "decode-fp32": "Decode: SmolLM2, fp32",
    "threads": "Decode: SmolLM2, int4, two threads",
    "threads-int8": "Decode: SmolLM2, int8, two threads",
    "threads-fp32": "Decode: SmolLM2, fp32, two threads",
    "context": "Longer prompts: SmolLM2, int4",
    "context-int8": "A longer prompt: SmolLM2, int8",
    "context-fp32": "A longer prompt: SmolLM2, fp32",
    "batch": "Several rows: SmolLM2, int4",
    "size-tiny": "A random decoder of 0.1 million weights",
    "size-small": "A random decoder of 9 million weights",
    "size-medium": "A random decoder of 46 million weights",
    "tiny": "What is around the run call: tiny decoder",
    "host": "Host time by context: tiny decoder",
    "host-long": "Host time by context: SmolLM2, int4",
    "workflow": "Workflow form: SmolLM2 with ten policies",
    "tiny-workflow": "Workflow form: tiny decoder with three policies",
}


def turn_section(name: str, result: dict[str, Any], told: str) -> str:
    """One part: a table a scenario, and the A/A pair below it. told: when, and on what load."""
    found = result["found"]
    parts = [f"## {SECTIONS[name]}\n\n{told}\n"]
    for scenario in found["scenarios"]:
        parts.append(f"{title_of(scenario)}\n\n{scenario_table(scenario)}")
        if note := pair_note(scenario):
            parts.append(note)
    if found["versions"]:
        told_versions = "; ".join(
            ", ".join(f"{key} {value}" for key, value in each.items()) for each in found["versions"].values()
        )
        parts.append(f"Versions in the environments of others: {told_versions}.\n")
    return "\n".join(parts)


def title_of(scenario: Scenario) -> str:
    """What was asked for."""
    rows = f", {scenario['rows']} rows" if scenario["rows"] > 1 else ""
    count = len(scenario["rounds"])
    return f"**{scenario['prompt']:,} prompt tokens, {scenario['new']} new{rows}, {count} round{'s' * (count != 1)}**"


def first_of(scenario: Scenario) -> str:
    """Whom the others are compared with: the first half of a pair where there is one, else the first."""
    names: list[str] = scenario["names"]
    return next((name for name in names if name in PAIRS), names[0])


def level(scenario: Scenario, what: str) -> list[float]:
    """Round by round the figure of those compared with: both halves of a pair, or the one there is."""
    first, rounds = first_of(scenario), scenario["rounds"]
    second = PAIRS.get(first, "")
    return baseline(rounds, what, first, second) if second in scenario["names"] else column(rounds, first, what)


def scenario_table(scenario: Scenario) -> str:
    """Step, speed, host time, tokens a second, first token, equal tokens."""
    first = first_of(scenario)
    heads = ["", "step, µs", "speed", "host, µs", "host over", "tokens/s", "first token, ms", "over", "same tokens"]
    rows = [cells(scenario, name, first) for name in scenario["names"] if name not in PAIRS.values()]
    return table(heads, rows)


def cells(scenario: Scenario, name: str, first: str) -> list[str]:
    """A contestant's line; ratios are to the first one's, whose own are 1 by definition."""
    rounds = scenario["rounds"]
    line = [TITLES[name]]
    for what, factor, digits in (("step", 1e6, 1), ("host", 1e6, 1)):
        if what not in rounds[0][name]:
            line += ["-", "-"]
            continue
        own = level(scenario, what) if name == first else column(rounds, name, what)
        median = bootstrap_median(own).median * factor
        line.append(f"{median:.{0 if median >= 1000 else digits}f}")
        line.append(ratio_cell(scenario, name, first, what, own))
    line.append(f"{bootstrap_median(column(rounds, name, 'rate')).median:,.1f}" if "rate" in rounds[0][name] else "-")
    own = level(scenario, "ttft") if name == first else column(rounds, name, "ttft")
    shown = name not in UNTIMED
    line.append(f"{bootstrap_median(own).median * 1e3:,.1f}" if shown else "-")
    line.append(ratio_cell(scenario, name, first, "ttft", own) if shown else "-")
    line.append(f"{scenario['same'][name][first]}/{scenario['compared']}" if name != "run-only" else "-")
    return line


UNTIMED = ("one-graph", "policies-bound", "policies-run", "run-only")
"""Contestants whose first token is made in another way, so that its time says nothing."""


def ratio_cell(scenario: Scenario, name: str, first: str, what: str, own: Sequence[float]) -> str:
    """A ratio with its bounds: speed for steps, else time over time."""
    if name == first:
        return "1"
    if what == "host" and name in ("genai", "run-only"):
        return "-"
    theirs = level(scenario, what)
    if what == "ttft" and first in UNTIMED:
        return "-"
    return with_bounds(paired(theirs, own) if what == "step" else paired(own, theirs))


def pair_note(scenario: Scenario) -> str:
    """What the two halves of the A/A pair differed by; "" where there is none."""
    first, rounds = first_of(scenario), scenario["rounds"]
    second = PAIRS.get(first, "")
    if second not in scenario["names"]:
        return ""

    def halves(what: str) -> Interval:
        return paired(column(rounds, second, what), column(rounds, first, what))

    told = [f"{title} {with_bounds(halves(what))}" for what, title in WHAT if what in rounds[0][first]]
    least = [f"{100 * deviation(halves(what)):.1f} % of {title}" for what, title in WHAT if what in rounds[0][first]]
    return f"A/A pair, second half over first: {', '.join(told)}. Less than {', '.join(least)} says nothing.\n"


WHAT = (("step", "a step"), ("host", "host time"), ("ttft", "the first token"))


def points(scenarios: Iterable[tuple[float, Scenario]], name: str, what: str) -> tuple[tuple[float, float], ...]:
    """(x, median) of one contestant, where it took part and has the figure.

    `speed` is tokens of all rows a second, of the median step: a mean over the wall clock would hold what other
    processes took. It and `host` need eight new tokens.
    """
    found = []
    for x, scenario in scenarios:
        rounds: Rounds = scenario["rounds"]
        of = "step" if what == "speed" else what
        if name in scenario["names"] and of in rounds[0][name] and (what == "ttft" or scenario["new"] >= 8):
            median = bootstrap_median(column(rounds, name, of)).median
            found.append((x, scenario["rows"] / median if what == "speed" else median))
    return tuple(sorted(found))
