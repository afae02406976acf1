"""`python -m tools.bench.policy`: what a draw costs on the host and by a graph, by way of drawing and vocabulary.

    python -m tools.bench.policy [--model COMPILED [--way WAY]] [--rounds N]

Every figure is of one thread. Both sides take turns, each twice a round, so that the two halves of a side are an A/A
pair. A figure is the tenth percentile over rounds: on a shared machine a median tells of the neighbours. `--model`
generates with a compiled package instead, loaded for each side. The table that the compiler goes by is measured by
`genai-compile --calibrate`, with the same draws.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from genai_compiler.costs.timed_draws import ASKED, draw, graphs_in, scores

from tools.bench.policy_steps import step_pairs
from tools.bench.ratios import deviation, paired

VOCABULARIES = (512, 4096, 32000, 49152, 151936)
CALLS, TENTH = 20, 10
SIDES = ("host", "graph", "host again", "graph again")
Draw = Callable[[], Any]


def measured(calls: Mapping[str, Draw], rounds: int) -> dict[str, list[float]]:
    """Microseconds a call, round by round; the order turns around every other round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(-2, rounds):
        for name in list(calls)[:: 1 if number % 2 else -1]:
            call, begun = calls[name], time.perf_counter()
            for _ in range(CALLS):
                call()
            spent = (time.perf_counter() - begun) / CALLS * 1e6
            if number >= 0:
                found[name].append(spent)
    return found


def cost(found: Mapping[str, list[float]], side: str) -> float:
    """The tenth percentile over both halves of a side."""
    both = [each for name, times in found.items() if name.startswith(side) for each in times]
    return round(float(np.percentile(both, TENTH)), 1)


def line(name: str, found: Mapping[str, list[float]]) -> str:
    """A row of the table: costs, the ratio of medians within rounds, and how far apart the halves of the host were."""
    ratio, pair = paired(found["graph"], found["host"]), paired(found["host again"], found["host"])
    costs = f"{cost(found, 'host'):>9}{cost(found, 'graph'):>9}"
    interval = f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{name:<34}{costs}   {interval:<20}{pair.median:.2f} (off by {deviation(pair):.2f})"


def measure_draws(rounds: int) -> None:
    """Prints the table, of draws and of the steps before them."""
    print(f"{'':<34}{'host us':>9}{'graph us':>9}   {'graph/host':<20}host/host")
    with TemporaryDirectory() as folder:
        graphs = graphs_in(Path(folder))
        for vocabulary in VOCABULARIES:
            row = scores(vocabulary)
            for way in ASKED:
                calls = {side: draw(way, row, graphs if side.startswith("graph") else None) for side in SIDES}
                print(line(f"{way}, {vocabulary}", measured(calls, rounds)), flush=True)
            for step, calls in step_pairs(row).items():
                print(line(f"{step}, {vocabulary}", measured(calls, rounds)), flush=True)


def measure_model(folder: Path, way: str, rounds: int) -> None:
    """Tokens a second and microseconds a choice, by side, and whether both make the same tokens."""
    import genai_runtime

    texts, asked = ("Once upon a time", "The capital of France", "def main():"), {"top_k": 0, **ASKED[way]}
    sides = dict(zip(SIDES, ("host", "graph") * 2, strict=True))
    models = {name: genai_runtime.load(folder, threads=1, timings=True, policy=side) for name, side in sides.items()}
    rates: dict[str, list[float]] = {name: [] for name in models}
    choices: dict[str, list[float]] = {name: [] for name in models}
    same = 0
    for number in range(rounds):
        made = {}
        for name in list(models)[:: 1 if number % 2 else -1]:
            model, prompt = models[name], texts[number % len(texts)]
            assert model.timings is not None
            model.timings.clear()
            with model.generate(prompt, max_new_tokens=64, stop_on_eos=False, seed=number, **asked) as generation:
                made[name] = generation.tokens
                rates[name].append(1e6 / generation.stats.rate)
            spans = [each.ended - each.begun for each in model.timings.spans if each.kind == "select a token"]
            choices[name].append(float(np.median(spans)) / 1e3)
        same += made["host"] == made["graph"]
    print(line(f"a token of the model, {way}", rates))
    print(line("of it the choice", choices))
    print(f"the same tokens in {same} of {rounds} rounds")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.policy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--model", type=Path, help="a compiled folder")
    parser.add_argument("--way", choices=tuple(ASKED), default="top_k+top_p", help="of --model")
    given = parser.parse_args()
    if given.model is not None:
        measure_model(given.model, given.way, given.rounds)
        return
    measure_draws(given.rounds)


if __name__ == "__main__":
    main()
