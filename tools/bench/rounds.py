"""`python -m tools.bench.rounds`: one process in which contestants take turns, one for each set of them.

Only ratios taken side by side mean something on a shared machine, so every contestant generates once a round, in an
order that rotates and turns around, and every figure is later compared within its round.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.contestants import Contestant, Generate, open_all
from tools.bench.run_clock import RunClock, Trace

SETTLE = 0.03
"""Seconds before a turn: idle worker threads of the last contestant spin for a while."""
TEXTS = Path(__file__).parent.parent / "smollm2" / "texts"
WARM = 64, 8
"""Prompt and new tokens of the generation before the first round, where nothing is checked in it."""


@dataclass(frozen=True)
class Scenario:
    """A request that contestants are timed on: prompt tokens, new tokens, rows, and who takes part.

    check: new tokens of the generation before the first round, whose tokens are compared; 0 for a short one.
    """

    prompt: int
    new: int
    names: tuple[str, ...]
    rounds: int
    rows: int = 1
    check: int = 0


def prompt_ids(tokenizer: Path, length: int, rows: int = 1) -> list[list[int]]:
    """Rows of `length` ids of this repository's English texts, each beginning a little later than the last."""
    import tokenizers

    text = "\n".join(each.read_text(encoding="utf-8") for each in sorted(TEXTS.glob("*.txt")))
    ids: list[int] = tokenizers.Tokenizer.from_file(str(tokenizer)).encode(text).ids
    long = ids * ((length + 37 * rows) // len(ids) + 1)
    return [long[37 * row : 37 * row + length] for row in range(rows)]


def turns(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The order of a round: every other one is the last one backwards, then it rotates by one."""
    at = number // 2 % len(names)
    order = names[at:] + names[:at]
    return order[::-1] if number % 2 else order


def take_round(
    contestants: dict[str, Generate], order: Sequence[str], ids: Sequence[list[int]], new: int
) -> dict[str, Trace]:
    """One generation of everyone."""
    traces: dict[str, Trace] = {}
    for name in order:
        gc.collect()
        time.sleep(SETTLE)
        traces[name] = contestants[name](ids, new)
    return traces


def equal_tokens(tokens: Sequence[int], wanted: Sequence[int]) -> int:
    """How many leading tokens are the same."""
    pairs = zip(tokens, wanted, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(tokens), len(wanted)))


def run_scenario(contestants: dict[str, Generate], scenario: Scenario, ids: Sequence[list[int]]) -> dict[str, Any]:
    """A warm-up round and those that count. Returns plain data: by round and name the medians of a generation.

    same: by name and name, how many leading tokens were the same in every round; compared: out of how many.
    """
    checked = max(scenario.check, scenario.new)
    short = [each[: WARM[0]] for each in ids]
    first = (ids, scenario.check) if scenario.check else (short, min(scenario.new, WARM[1]))
    traces = take_round(contestants, scenario.names, *first)
    same = {one: dict.fromkeys(scenario.names, checked * scenario.rows) for one in scenario.names}
    if scenario.check:
        compare(traces, same)
    measured: list[dict[str, dict[str, float]]] = []
    for number in range(scenario.rounds):
        traces = take_round(contestants, turns(scenario.names, number), ids, scenario.new)
        if not scenario.check:
            compare(traces, same)
        measured.append({name: trace.measured() for name, trace in traces.items()})
        title = f"prompt {scenario.prompt}, {scenario.new} new, {scenario.rows} row(s)"
        print(f"  {title}: round {number + 1} of {scenario.rounds}", file=sys.stderr, flush=True)
    return {**asdict(scenario), "same": same, "compared": checked * scenario.rows, "rounds": measured}


def compare(traces: dict[str, Trace], same: dict[str, dict[str, int]]) -> None:
    """Lower what was the same so far to what is the same in this round."""
    for one, row in same.items():
        for other in row:
            row[other] = min(row[other], equal_tokens(traces[one].tokens, traces[other].tokens))


def main(arguments: list[str] | None = None) -> int:
    """Reads a task as JSON (contestants, tokenizer, threads, scenarios), writes the measurements as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.rounds", description=__doc__)
    parser.add_argument("task", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    task = json.loads(options.task.read_text(encoding="utf-8"))
    contestants = open_all([Contestant(**each) for each in task["contestants"]], task["threads"], RunClock())
    scenarios = [Scenario(**{**each, "names": tuple(each["names"])}) for each in task["scenarios"]]
    tokenizer = Path(task["tokenizer"])
    found = [run_scenario(contestants, each, prompt_ids(tokenizer, each.prompt, each.rows)) for each in scenarios]
    options.out.write_text(json.dumps({"threads": task["threads"], "scenarios": found}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
