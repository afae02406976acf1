"""`python -m tools.bench.rounds`: one process in which all contestants take turns, one for each thread count.

Only ratios taken side by side mean something on a shared machine, so every contestant generates once a round, in an
order that rotates and turns around, and every figure is later compared within its round.
"""

import argparse
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.contestants import Generate, make_contestants
from tools.bench.run_clock import RunClock, Trace

SETTLE = 0.03
"""Seconds before a turn: idle worker threads of the last contestant spin for a while."""

TEXTS = Path(__file__).parent.parent / "smollm2" / "texts"


@dataclass(frozen=True)
class Scenario:
    """A request that contestants are timed on: prompt tokens, new tokens, and who takes part."""

    prompt: int
    new: int
    names: tuple[str, ...]


def prompt_ids(tokenizer: Path, length: int) -> list[int]:
    """The first `length` ids of this repository's English texts, repeated when they are shorter."""
    import tokenizers

    text = "\n".join(each.read_text(encoding="utf-8") for each in sorted(TEXTS.glob("*.txt")))
    ids: list[int] = tokenizers.Tokenizer.from_file(str(tokenizer)).encode(text).ids
    return (ids * (length // len(ids) + 1))[:length]


def turns(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The order of a round: every other one is the last one backwards, then it rotates by one."""
    at = number // 2 % len(names)
    order = names[at:] + names[:at]
    return order[::-1] if number % 2 else order


def take_round(contestants: dict[str, Generate], order: tuple[str, ...], ids: list[int], new: int) -> dict[str, Trace]:
    """One generation of everyone."""
    traces: dict[str, Trace] = {}
    for name in order:
        gc.collect()
        time.sleep(SETTLE)
        traces[name] = contestants[name](ids, new)
    return traces


def equal_tokens(tokens: list[int], wanted: list[int]) -> int:
    """How many leading tokens are the same."""
    pairs = zip(tokens, wanted, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(tokens), len(wanted)))


def run_scenario(contestants: dict[str, Generate], scenario: Scenario, ids: list[int], rounds: int) -> dict[str, Any]:
    """A warm-up round and `rounds` that count. Returns plain data: by round and name the medians of a generation."""
    take_round(contestants, scenario.names, ids, min(scenario.new, 8))
    measured: list[dict[str, dict[str, float]]] = []
    same = dict.fromkeys(scenario.names, scenario.new)
    for number in range(rounds):
        traces = take_round(contestants, turns(scenario.names, number), ids, scenario.new)
        wanted = traces[scenario.names[0]].tokens
        for name, trace in traces.items():
            same[name] = min(same[name], equal_tokens(trace.tokens, wanted))
        measured.append({name: trace.measured() for name, trace in traces.items()})
        print(
            f"  prompt {scenario.prompt}, {scenario.new} new: round {number + 1} of {rounds}",
            file=sys.stderr,
            flush=True,
        )
    return {**asdict(scenario), "same": same, "rounds": measured}


def main(arguments: list[str] | None = None) -> int:
    """Reads a task as JSON (packages, compiled, threads, rounds, scenarios), writes the measurements as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.rounds", description=__doc__)
    parser.add_argument("task", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    task = json.loads(options.task.read_text(encoding="utf-8"))
    scenarios = [Scenario(each["prompt"], each["new"], tuple(each["names"])) for each in task["scenarios"]]
    names = list(dict.fromkeys(name for each in scenarios for name in each.names))
    packages = Path(task["packages"])
    contestants = make_contestants(packages, Path(task["compiled"]), task["threads"], RunClock(), names)
    tokenizer = packages / "v1" / "tokenizer.json"
    found = [run_scenario(contestants, each, prompt_ids(tokenizer, each.prompt), task["rounds"]) for each in scenarios]
    options.out.write_text(json.dumps({"threads": task["threads"], "scenarios": found}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
