"""Writes docs/performance.md: the template is here, the figures come from one run."""

from collections.abc import Iterable, Sequence
from typing import Any

from tools.bench.contestants import AGAIN, LOOP, TITLES
from tools.bench.ratios import Interval, baseline, bootstrap_median, column, deviation, paired
from tools.bench.start_report import memory_section, start_section
from tools.bench.tables import table, with_bounds
from tools.bench.targets import Target, targets

HEAD = """\
# Performance

`make bench` writes this page: measure again rather than edit it. Everything is SmolLM2-135M-Instruct (4-bit weights,
float32 state) on the CPU, greedy, one prompt, prompts cut from this repository's own English texts.
"""

READING = """\
## How to read it

All contestants live in one process and take turns: one generation each a round, in an order that rotates and turns
around. A figure of a contestant in a round is the median over that generation's steps. What is compared is always two
figures of the same round; tables give the median of that ratio over the rounds and, in brackets, the interval in which
that median lies with 95 % confidence (percentile bootstrap over the rounds). Absolute times are medians over the rounds
and hold for this machine and this hour only.

The hand-written loop (a) runs twice, from two sessions, the first and the last one opened: what the two differ by is
what differs when nothing does. A difference smaller than that says nothing. (a) in a ratio is their geometric mean.

A decode step lasts from the end of one session run of the decoder to the end of the next. Host time is the step less
all session runs inside it: for the executors and the loop everything that Python and numpy do for a token, the argmax
included. For onnxruntime-genai it is only Python around its calls; its own C++ work is inside them: not comparable.
(a) binds everything once for a known length; the executors make and bind their buffers for every request.
"""

NO_GENAI = """\
onnxruntime-genai was not installed, so its rows are missing: `pip install 'genai-compile[bench]'`.
"""

REPEAT = """\
## Repeat it

```
make bench                                            # all of this page
python -m tools.bench --rounds 3 --only decode        # a quick look, printed
```

It wants a machine that does nothing else. The system's load average was {before:.1f} before and {after:.1f} after this
run; the run itself accounts for 1 to 2. Above that, other processes took part: absolute times are then too long, ratios
still hold within their intervals, and host times suffer most, because others' data displaces ours in shared caches.
"""


def render(results: dict[str, Any]) -> str:
    """The page for one run's results."""
    found = targets(results)
    parts = [HEAD, machine_section(results), targets_section(found), READING]
    parts += [threads_section(each) for each in results.get("threads", [])]
    if results.get("threads") and not any("genai" in s["names"] for t in results["threads"] for s in t["scenarios"]):
        parts.append(NO_GENAI)
    if results.get("start"):
        parts.append(start_section(results))
    if results.get("memory"):
        parts.append(memory_section(results["memory"]))
    parts.append(REPEAT.format(**results["load"]))
    return "\n".join(parts)


def machine_section(results: dict[str, Any]) -> str:
    """The machine's facts."""
    rows = [[name, value] for name, value in results["machine"].items()]
    return f"## Machine\n\n{table(['', ''], rows)}"


def targets_section(found: Sequence[Target]) -> str:
    """The targets, and for each that is missed by how much and why."""
    if not found:
        return ""
    rows = []
    for each in found:
        sign = ">=" if each.at_least else "<="
        digits = 0 if each.unit else 3
        verdict = "met" if each.met else f"missed by {each.missed_by:.{digits}f}{each.unit}"
        bound = f"{sign} {each.bound:g}{each.unit}"
        rows.append([each.title, bound, with_bounds(each.found, digits) + each.unit, verdict])
    whys = dict.fromkeys(each.why for each in found if not each.met)
    reasons = "".join(f"\n{why}\n" for why in whys)
    return f"## Targets (one thread)\n\n{table(['', 'target', 'found', ''], rows)}{reasons}"


def threads_section(measured: dict[str, Any]) -> str:
    """All scenarios with one thread count."""
    count = measured["threads"]
    parts = [f"## {count} thread{'s' if count > 1 else ''}\n"]
    decoding = [each for each in measured["scenarios"] if "step" in each["rounds"][0][each["names"][0]]]
    parts += [decode_section(each) for each in decoding]
    if measured["scenarios"]:
        parts.append(ttft_section(measured["scenarios"]))
    return "\n".join(parts)


def decode_section(scenario: dict[str, Any]) -> str:
    """One table: step, speed, host time, tokens a second."""
    rounds, names = scenario["rounds"], scenario["names"]
    step, host = (baseline(rounds, what, LOOP, AGAIN) for what in ("step", "host"))
    rows = [
        [
            TITLES[name],
            *decode_figures(rounds, name, step, host),
            f"{scenario['same'][name]}/{scenario['new']}",
        ]
        for name in names
        if name != AGAIN
    ]
    heads = ["", "step, µs", "speed over (a)", "host a token, µs", "host over (a)", "tokens/s", "same tokens"]
    title = f"### Decode: {scenario['prompt']} prompt tokens, {scenario['new']} new, {len(rounds)} rounds\n\n"
    return f"{title}{table(heads, rows)}\n{pair_note(rounds)}"


def decode_figures(
    rounds: Sequence[dict[str, dict[str, float]]], name: str, step: Sequence[float], host: Sequence[float]
) -> list[str]:
    """A contestant's cells. The loop's own times are those of both halves, and its ratios are 1 by definition."""
    if name == LOOP:
        steps, hosts, speed, cost = step, host, "1", "1"
    else:
        steps, hosts = column(rounds, name, "step"), column(rounds, name, "host")
        speed, cost = with_bounds(paired(step, steps)), with_bounds(paired(hosts, host), 2)
    rate = bootstrap_median(column(rounds, name, "rate")).median
    return [microseconds(steps), speed, microseconds(hosts, 1), cost if name != "genai" else "-", f"{rate:.1f}"]


def pair_note(rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    """What the two halves of the A/A pair differed by."""

    def halves(what: str) -> Interval:
        return paired(column(rounds, AGAIN, what), column(rounds, LOOP, what))

    step, host = halves("step"), halves("host")
    return (
        f"A/A pair, second half over first: step {with_bounds(step)}, host time {with_bounds(host, 2)}. Differences "
        f"below {100 * deviation(step):.1f} % of a step or {100 * deviation(host):.0f} % of host time say nothing.\n"
    )


def ttft_section(scenarios: Iterable[dict[str, Any]]) -> str:
    """Time to the first token, by prompt length."""
    shown = list(scenarios)
    names = [name for name in TITLES if name != AGAIN and any(name in each["names"] for each in shown)]
    rows = [[TITLES[name], *(ttft_cell(each, name) for each in shown)] for name in names]
    pair = [ttft_pair(each) for each in shown]
    heads = ["", *(f"{each['prompt']} prompt tokens" for each in shown)]
    return (
        f"### Time to first token: ms, and over (a)\n\n{table(heads, [*rows, ['A/A pair', *pair]])}\n"
        "From the call of the request to its first token, everything loaded and warm.\n"
    )


def ttft_cell(scenario: dict[str, Any], name: str) -> str:
    """Milliseconds and the ratio to (a); - for one that did not take part."""
    if name not in scenario["names"]:
        return "-"
    own = baseline(scenario["rounds"], "ttft", LOOP, AGAIN)
    if name == LOOP:
        return f"{bootstrap_median(own).median * 1e3:.0f}"
    times = column(scenario["rounds"], name, "ttft")
    return f"{bootstrap_median(times).median * 1e3:.0f}, {with_bounds(paired(times, own))}"


def ttft_pair(scenario: dict[str, Any]) -> str:
    """The second half of the A/A pair over the first."""
    rounds = scenario["rounds"]
    return with_bounds(paired(column(rounds, AGAIN, "ttft"), column(rounds, LOOP, "ttft")))


def microseconds(seconds: Sequence[float], digits: int = 0) -> str:
    """The median in microseconds."""
    return f"{bootstrap_median(seconds).median * 1e6:.{digits}f}"
