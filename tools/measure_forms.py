"""Time a package in each of its forms beside the chosen one: `python -m tools.measure_forms PACKAGE...`.

Each form is compiled into a folder of its own and loaded in this process, one thread. A round runs every one once, in
an order that rotates; a figure is the median of a round's quotient with the chosen form (95 % bounds by bootstrap). The
chosen form is there twice: what those two differ by is what differs when nothing does. Times are the thread's own, in
which other processes have no part but by what they displace in shared caches.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import genai_runtime
import numpy as np
from genai_compiler import compile_package
from genai_compiler.costs.files import chosen_costs
from genai_compiler.driver import Options
from genai_compiler.plan.ir import Form

FORMS: dict[str, dict[str, Form]] = {
    "chosen": {},
    "chosen again": {},
    "fused": {"": "fused"},
    "own sessions": {"": "own"},
    "host": {"": "host"},
}
REQUESTS: dict[str, tuple[dict[str, Any], ...]] = {
    "wide-search": ({"word": np.array([30011]), "bound": np.array([-5]), "limit": np.array([64])},),
    "nested-loops": (
        {
            "start": np.array([1]),
            "outer_limit": np.array([4]),
            "inner_limit": np.array([32]),
            "ceiling": np.array([1 << 60]),
        },
    ),
    "bounded-growing": (),
}
"""Inputs of packages that make no text."""


def main() -> None:
    """Print a table a package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=32, help="new tokens a request, where a package makes text")
    parser.add_argument("--prompt", type=int, default=8, help="tokens of the prompt")
    parser.add_argument("--costs", help="as of genai-compile")
    asked = parser.parse_args()
    for package in asked.packages:
        with TemporaryDirectory() as folder:
            print(f"{package.name}: {asked.rounds} rounds")
            _report(_timed(package, Path(folder), asked))


def _timed(package: Path, folder: Path, asked: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each form, a list entry a round."""
    models = {}
    for name, forms in FORMS.items():
        out = folder / name.replace(" ", "-")
        options = Options(forms=forms, costs=chosen_costs(asked.costs, {}))
        compile_package(package, out, options)
        models[name] = genai_runtime.load(out, threads=1)
    times: dict[str, list[float]] = {name: [] for name in models}
    names = list(models)
    for turn in range(-2, asked.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            begun = time.thread_time()
            _request(models[name], package.name, asked)
            if turn >= 0:
                times[name].append(time.thread_time() - begun)
    return times


def _request(model: Any, name: str, asked: argparse.Namespace) -> None:
    if name in REQUESTS:
        for inputs in REQUESTS[name]:
            model.run(inputs)
        return
    tokens = [1 + number % 60 for number in range(asked.prompt)]
    model.generate(tokens, max_new_tokens=asked.tokens, temperature=0, stop_on_eos=False).tokens  # noqa: B018


def _report(times: dict[str, list[float]]) -> None:
    generator = np.random.default_rng(0)
    for name, found in times.items():
        quotients = np.array(found) / np.array(times["chosen"])
        drawn = np.median(generator.choice(quotients, (2000, len(quotients))), axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        print(f"  {name:<14}{median(found) * 1e6:>12.0f} us  {np.median(quotients):.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
