"""What the project asks of these figures, and whether a run shows it: an end of an interval decides, not its middle."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tools.bench.contestants import AGAIN, LOOP
from tools.bench.ratios import Interval, Rounds, baseline, bootstrap_median, column, deviation, difference, paired

Results = dict[str, Any]
PRECISIONS = ("int4", "int8", "fp32")
CHECKED = 128
NOISY = 0.1
"""An A/A deviation above which it is allowed for no more: parity is then shown without it, or not at all."""


@dataclass(frozen=True)
class Target:
    """A figure and its bound. at_least: it must not be below it, else not above.

    pair: the A/A deviation of the same run, None where there is none. level: the bound asks for parity, where what two
    equal programs differ by is allowed for. part: where it was measured. count: it is a number of things.
    """

    title: str
    part: str
    found: Interval
    bound: float
    at_least: bool
    unit: str = ""
    pair: float | None = None
    level: bool = False
    count: bool = False

    @property
    def worst(self) -> float:
        """The end of the interval that decides: the lower one where the figure must be large."""
        return self.found.low if self.at_least else self.found.high

    @property
    def allowed(self) -> float:
        """The bound, moved by the A/A deviation where it asks for parity."""
        room = (self.pair or 0.0) if self.level else 0.0
        return self.bound - room if self.at_least else self.bound + room

    @property
    def met(self) -> bool:
        """Whether the whole interval is on the right side."""
        return self.worst >= self.allowed if self.at_least else self.worst <= self.allowed

    @property
    def told(self) -> bool:
        """Whether the run can tell: where the bound asks for parity and two equal programs differ by too much, only if
        the interval is on the right side of the bound itself.
        """
        beyond = self.worst >= self.bound if self.at_least else self.worst <= self.bound
        return not self.level or (self.pair or 0.0) <= NOISY or beyond

    @property
    def missed_by(self) -> float:
        """How far the deciding end is outside, in the figure's unit; 0 when it is met."""
        return 0.0 if self.met else abs(self.worst - self.allowed)


def targets(results: Results) -> list[Target]:
    """Every target that the kept parts say something about."""
    return [target for group in GROUPS for target in group(results)]


def scenario_of(results: Results, part: str, prompt: int | None = None) -> dict[str, Any] | None:
    """A part's scenario, the only one or that of a prompt length; None when it was not measured."""
    scenarios = results.get(part, {}).get("found", {}).get("scenarios", [])
    return next((each for each in scenarios if prompt in (None, each["prompt"])), None)


def halves(rounds: Rounds, what: str, first: str = LOOP, second: str = AGAIN) -> float:
    """The deviation of an A/A pair."""
    return deviation(paired(column(rounds, second, what), column(rounds, first, what)))


def speed_over(scenario: dict[str, Any], name: str, mine: str = "tokens") -> Interval:
    """How many times as fast as `name` a decode step of `mine` is; the loop stands for both halves of its pair."""
    rounds = scenario["rounds"]
    theirs = baseline(rounds, "step", LOOP, AGAIN) if name == LOOP else column(rounds, name, "step")
    return paired(theirs, column(rounds, mine, "step"))


def decoding(results: Results) -> Iterator[Target]:
    """Tokens and decode speed in three precisions."""
    for precision in PRECISIONS:
        part = f"decode-{precision}"
        scenario = scenario_of(results, part)
        if scenario is None:
            continue
        pair, names = halves(scenario["rounds"], "step"), scenario["names"]
        for name, title in ((LOOP, "(a)"), ("genai", "(b)")):
            if name in names:
                same = float(scenario["same"]["tokens"][name])
                yield Target(f"{precision}: tokens equal to {title}", part, exactly(same), CHECKED, True, count=True)
                found = speed_over(scenario, name)
                yield Target(f"{precision}: decode speed over {title}", part, found, 1.0, True, pair=pair, level=True)
        if "optimum" in names:
            found = speed_over(scenario, "optimum")
            yield Target(f"{precision}: decode speed over (c), 64 tokens", part, found, 1.15, True, pair=pair)


def long_context(results: Results) -> Iterator[Target]:
    """Decode speed behind 1,024 tokens, where copies of the caches cost most."""
    for precision, part in (("int4", "context"), ("int8", "context-int8"), ("fp32", "context-fp32")):
        scenario = scenario_of(results, part, 1024)
        if scenario is None:
            continue
        pair = halves(scenario["rounds"], "step")
        for name, title in (("optimum", "(c)"), ("numpy", "session.run and numpy")):
            if name in scenario["names"]:
                told = f"{precision}: decode speed over {title}, 1,024 tokens"
                yield Target(told, part, speed_over(scenario, name), 1.4, True, pair=pair)


def first_token(results: Results) -> Iterator[Target]:
    """Time to the first token, warm and in a cold process."""
    for precision in PRECISIONS:
        context = "context" if precision == "int4" else f"context-{precision}"
        for prompt, part in ((64, f"decode-{precision}"), (512, context), (1024, context)):
            scenario = scenario_of(results, part, prompt)
            if scenario is not None:
                yield from first_over(scenario, part, f"{precision}: first token over {{}}, prompt of {prompt:,}")
    rounds = results.get("start", {}).get("found", {}).get("rounds", [])
    if rounds and "genai" in rounds[0]:
        found = paired(column(rounds, "executor", "first"), column(rounds, "genai", "first"))
        yield Target("cold process: first request over (b)'s", "start", found, 0.7, False)
    if rounds and "genai-text" in rounds[0]:
        found = paired(column(rounds, "executor-text", "whole"), column(rounds, "genai-text", "whole"))
        yield Target("cold process: start to the first piece of text over (b)'s", "start", found, 0.7, False)


def first_over(scenario: dict[str, Any], part: str, title: str) -> Iterator[Target]:
    """Time to the first token over those of (a) and, where it took part, of (b). title: with a place for their name."""
    rounds = scenario["rounds"]
    own, pair = column(rounds, "tokens", "ttft"), halves(rounds, "ttft")
    against = [("(a)", baseline(rounds, "ttft", LOOP, AGAIN))]
    if "genai" in scenario["names"]:
        against.append(("(b)", column(rounds, "genai", "ttft")))
    for name, theirs in against:
        yield Target(title.format(name), part, paired(own, theirs), 0.9, False, pair=pair)


def process(results: Results) -> Iterator[Target]:
    """Start-up and memory of a process."""
    rounds = results.get("start", {}).get("found", {}).get("rounds", [])
    if rounds:
        floor = baseline(rounds, "start", "sessions", "sessions-again")
        more = difference(column(rounds, "executor", "start"), floor)
        pair = deviation(
            difference(column(rounds, "sessions-again", "start"), column(rounds, "sessions", "start")), 0.0
        )
        yield Target("start-up over the same sessions alone", "start", more, 60.0, False, " ms", pair)
    for precision in PRECISIONS:
        part = "memory" if precision == "int4" else f"memory-{precision}"
        rounds = results.get(part, {}).get("found", [])
        if rounds:
            more = difference(column(rounds, "executor", "peak"), baseline(rounds, "peak", LOOP, AGAIN))
            pair = deviation(difference(column(rounds, AGAIN, "peak"), column(rounds, LOOP, "peak")), 0.0)
            yield Target(f"{precision}: peak unique memory over (a)", part, more, 10.0, False, " MB", pair)


def host_time(results: Results) -> Iterator[Target]:
    """What Python does around a run."""
    if scenario := scenario_of(results, "decode-int4"):
        rounds = scenario["rounds"]
        found = paired(column(rounds, "tokens", "host"), baseline(rounds, "host", LOOP, AGAIN))
        pair = halves(rounds, "host")
        yield Target("int4: host time a token over (a)'s", "decode-int4", found, 1.0, False, pair=pair, level=True)
    short, long = scenario_of(results, "host", 128), scenario_of(results, "host", 8000)
    if short and long:
        found = paired(host_over_loop(long["rounds"]), host_over_loop(short["rounds"]))
        title = "tiny: host time at 8,000 tokens over that at 128, both over (a)'s"
        yield Target(title, "host", found, 1.0, False, pair=halves(long["rounds"], "host"), level=True)
    if scenario := scenario_of(results, "tiny"):
        rounds = scenario["rounds"]
        more = difference(column(rounds, "tokens", "step"), column(rounds, "run-only", "step"))
        more = Interval(*(1e6 * each for each in (more.median, more.low, more.high)))
        pair = 1e6 * deviation(difference(column(rounds, AGAIN, "step"), column(rounds, LOOP, "step")), 0.0)
        yield Target("tiny: a token over the run call alone", "tiny", more, 6.0, False, " µs", pair)
        if "genai" in scenario["names"]:
            pair = halves(rounds, "step")
            yield Target(
                "tiny: speed over (b)", "tiny", speed_over(scenario, "genai"), 1.0, True, pair=pair, level=True
            )


def host_over_loop(rounds: Rounds) -> list[float]:
    """The executor's host time over the loop's, round by round."""
    loop = baseline(rounds, "host", LOOP, AGAIN)
    return [own / other for own, other in zip(column(rounds, "tokens", "host"), loop, strict=True)]


def workflows(results: Results) -> Iterator[Target]:
    """Packages whose policies are graphs."""
    first, second = "one-graph", "one-graph-again"
    for part, title in (("workflow", "SmolLM2"), ("tiny-workflow", "tiny")):
        scenario = scenario_of(results, part)
        if scenario is None:
            continue
        rounds = scenario["rounds"]
        runs, pair = exactly(max(column(rounds, "workflow", "runs"))), halves(rounds, "step", first, second)
        yield Target(f"{title} workflow: session runs a token", part, runs, 2, False, count=True)
        if part == "workflow":
            found = paired(baseline(rounds, "step", first, second), column(rounds, "workflow", "step"))
            title = "SmolLM2 workflow: speed over the same as one graph"
            yield Target(title, part, found, 0.99, True, pair=pair, level=True)
            continue
        for name, how, bound in (("policies-bound", "io-bound", 1.1), ("policies-run", "session.run", 1.4)):
            found = speed_over(scenario, name, "workflow")
            yield Target(f"tiny workflow: speed over three policies, {how}", part, found, bound, True, pair=pair)


def chosen_forms(results: Results) -> Iterator[Target]:
    """Of every fixture, the chosen form against the best other one: the fixture where that comes out worst."""
    fixtures = results.get("forms", {}).get("found", {}).get("fixtures", {})
    found = [(*form_ratio(each["rounds"]), case) for case, each in fixtures.items()]
    if found:
        ratio, pair, form, case = max(found, key=lambda each: each[0].median)
        title = f"chosen form over the best other one, worst fixture ({case}, {form})"
        yield Target(title, "forms", ratio, 1.02, False, pair=pair, level=True)


def form_ratio(rounds: Rounds) -> tuple[Interval, float, str]:
    """Time of the chosen form over that of the fastest other one; the A/A deviation; and that one's name."""
    chosen = baseline(rounds, "request", "chosen", "chosen-again")
    others = [name for name in rounds[0] if not name.startswith("chosen")]
    best = min(others, key=lambda name: bootstrap_median(column(rounds, name, "request")).median)
    pair = deviation(paired(column(rounds, "chosen-again", "request"), column(rounds, "chosen", "request")))
    return paired(chosen, column(rounds, best, "request")), pair, best


def compiling(results: Results) -> Iterator[Target]:
    """Time and memory of the compiler."""
    rounds = results.get("compile", {}).get("found", [])
    for name in rounds[0] if rounds else ():
        seconds, peak = (
            column(rounds, name, "seconds"),
            paired(column(rounds, name, "peak"), column(rounds, name, "weights")),
        )
        yield Target(f"compile SmolLM2, {name}", "compile", bootstrap_median(seconds), 15.0, False, " s")
        yield Target(f"compiler's peak memory over the weights, {name}", "compile", peak, 1.5, False)
    rounds = results.get("steps", {}).get("found", [])
    if rounds:
        found = paired(step_cost(rounds, 1000, 2000), step_cost(rounds, 1, 1000))
        yield Target("a step's compile time, 1,000 to 2,000 steps over 1 to 1,000", "steps", found, 1.15, False)


def step_cost(rounds: Rounds, few: int, many: int) -> list[float]:
    """Seconds of the processor that a further step costs between two numbers of steps, round by round."""
    low, high = column(rounds, str(few), "processor"), column(rounds, str(many), "processor")
    return [(high[at] - low[at]) / (many - few) for at in range(len(low))]


def exactly(value: float) -> Interval:
    """A figure that has no spread."""
    return Interval(value, value, value)


GROUPS: tuple[Callable[[Results], Iterator[Target]], ...] = (
    decoding,
    long_context,
    first_token,
    process,
    host_time,
    workflows,
    chosen_forms,
    compiling,
)
