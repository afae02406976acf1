"""What the project asks of these figures (one thread), and how far a run is from it."""

from dataclasses import dataclass
from typing import Any

from tools.bench.contestants import AGAIN, LOOP
from tools.bench.ratios import Interval, baseline, column, difference, paired


@dataclass(frozen=True)
class Target:
    """A figure and its bound. at_least: the figure must not be below it, else not above. why: it is missed."""

    title: str
    found: Interval
    bound: float
    at_least: bool
    unit: str
    why: str

    @property
    def met(self) -> bool:
        """Whether the median is within the bound."""
        return self.found.median >= self.bound if self.at_least else self.found.median <= self.bound

    @property
    def missed_by(self) -> float:
        """How far the median is outside, in the figure's unit; 0 when it is met."""
        return 0.0 if self.met else abs(self.found.median - self.bound)


HOST_WHY = (
    "A step of the model sweeps more than 100 MB through the caches, so that whatever the host does next finds neither "
    "its code nor its data there, and each function, frame and object that it meets costs a microsecond or two. The "
    "hand-written loop is one frame. The executor crosses several (choose, publish, yield, note, advance) a token."
)
DECODE_WHY = "The step differs by the host time above, and otherwise runs the same kernels: look at the A/A pair first."
START_WHY = "What remains is listed under start-up: imports of the runtime, then reading and hashing the small files."


def decode_rounds(threads: list[dict[str, Any]], prompt: int) -> dict[str, Any] | None:
    """The single-thread measurements of the scenario with that prompt length, None when they were not taken."""
    for each in threads:
        for scenario in each["scenarios"] if each["threads"] == 1 else ():
            if scenario["prompt"] == prompt:
                found: dict[str, Any] = scenario
                return found
    return None


def targets(results: dict[str, Any]) -> list[Target]:
    """Every target that the results say something about."""
    found: list[Target] = []
    scenario = decode_rounds(results.get("threads", []), 64)
    if scenario is not None and "tokens" in scenario["names"]:
        rounds = scenario["rounds"]
        step, host = column(rounds, "tokens", "step"), column(rounds, "tokens", "host")
        loop = paired(baseline(rounds, "step", LOOP, AGAIN), step)
        found.append(Target("decode speed against the hand-written loop", loop, 0.97, True, "", DECODE_WHY))
        if "genai" in scenario["names"]:
            genai = paired(column(rounds, "genai", "step"), step)
            found.append(Target("decode speed against onnxruntime-genai", genai, 0.97, True, "", DECODE_WHY))
        own = paired(host, baseline(rounds, "host", LOOP, AGAIN))
        found.append(Target("host time a token over the hand-written loop's", own, 1.25, False, "", HOST_WHY))
    if start := results.get("start"):
        more = difference(column(start, "executor", "start"), baseline(start, "start", "sessions", "sessions-again"))
        found.append(Target("start-up over a process that opens the sessions", more, 150.0, False, " ms", START_WHY))
    return found
