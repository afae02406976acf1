"""Starts cold processes, taking turns: start-up, the first request, memory, and what an import of the runtime costs."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.contestants import has_genai
from tools.bench.rounds import prompt_ids, turns

PROGRAM = Path(__file__).parent / "cold_process.py"
ROOT = Path(__file__).parent.parent.parent
PROMPT, NEW = 64, 128


@dataclass(frozen=True)
class Place:
    """Where things are: built packages, compiled folders, and the environment that the processes get."""

    packages: Path
    compiled: Path
    environment: dict[str, str]


def graphs_of(compiled: Path, package: Path) -> list[tuple[str, str]]:
    """The graphs a compiled folder opens, each with the folder of its weights."""
    manifest = json.loads((compiled / "manifest.json").read_text(encoding="utf-8"))
    homes = {"package": package, "compiled": compiled}
    return [
        (str((homes[each["in"]] / each["file"]).resolve()), str((package / each["weights"]).resolve()))
        for each in manifest["graphs"].values()
    ]


def make_task(place: Place, form: str, threads: int, **more: Any) -> dict[str, Any]:
    """What a cold process is told about one form of the package."""
    package, compiled = place.packages / form, place.compiled / form
    return {
        "root": str(ROOT),
        "package": str(package),
        "compiled": str(compiled),
        "graphs": graphs_of(compiled, package),
        "threads": threads,
        "ids": prompt_ids(place.packages / "v1" / "tokenizer.json", PROMPT),
        **more,
    }


def start(kind: str, task: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """One cold process. `start`: milliseconds from before it was started to the moment it was ready."""
    begin = time.monotonic()
    made = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), kind, json.dumps(task)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise RuntimeError(f"a cold process ({kind}) failed:\n{made.stderr}")
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return {**found, "start": (found["ready"] - begin) * 1e3}


def start_up(place: Place, threads: int, rounds: int) -> list[dict[str, dict[str, float]]]:
    """Per round and kind: `start`, and for the v1 form `first`, the milliseconds of the first token after that."""
    one, other = make_task(place, "v1", threads, new=1), make_task(place, "workflow", threads)
    kinds = {"sessions": ("sessions", one), "executor": ("executor", one), "sessions-again": ("sessions", one),
             "workflow-sessions": ("sessions", other), "workflow-executor": ("executor", other)}  # fmt: skip
    if has_genai():
        kinds["genai"] = ("genai", one)
    measured: list[dict[str, dict[str, float]]] = []
    for number in range(-1, rounds):  # the first round only warms the page cache and compiles the modules
        order = turns(tuple(kinds), max(number, 0))
        found = {name: start(*kinds[name], place.environment) for name in order}
        if number >= 0:
            measured.append(
                {name: {key: each[key] for key in ("start", "first") if key in each} for name, each in found.items()}
            )
            print(f"  start-up: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return measured


def load_parts(place: Place, threads: int, rounds: int = 5) -> dict[str, float]:
    """Median milliseconds of the parts of `load` on the v1 form, and of opening the tokenizer afterwards."""
    task = make_task(place, "v1", threads, parts=True)
    found = [start("executor", task, place.environment) for _ in range(rounds)]
    parts = {name: statistics.median(each["parts"][name] for each in found) for name in found[0]["parts"]}
    return {**parts, "tokenizer": statistics.median(each["tokenizer"] for each in found)}


def peak_memory(place: Place, threads: int) -> dict[str, dict[str, dict[str, float]]]:
    """Per kind MB `loaded` and at the `peak` of a request, medians of three processes each."""
    task = make_task(place, "v1", threads, memory=True, new=NEW)
    kinds = ["sessions", "executor", *(["genai"] if has_genai() else [])]
    runs = [{kind: start(kind, task, place.environment) for kind in kinds} for _ in range(3)]
    return {
        kind: {
            when: {name: statistics.median(run[kind][when][name] for run in runs) for name in runs[0][kind][when]}
            for when in ("loaded", "peak")
        }
        for kind in kinds
    }


def import_times(environment: dict[str, str], rounds: int = 5) -> dict[str, float]:
    """Median milliseconds of each module's own import that genai_runtime adds to numpy and onnxruntime."""
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        command = [sys.executable, "-P", "-X", "importtime", "-c", "import numpy, onnxruntime, genai_runtime"]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(parse_import_times(made.stderr.splitlines(), after="onnxruntime"))
    names = {name for each in found for name in each}
    medians = {name: statistics.median(each.get(name, 0.0) for each in found) for name in names}
    return dict(sorted(medians.items(), key=lambda item: -item[1]))


def parse_import_times(lines: Sequence[str], after: str) -> dict[str, float]:
    """Own milliseconds by module, from `-X importtime` output, of what was imported after the module `after`."""
    own: dict[str, float] = {}
    for line in lines:
        fields = line.removeprefix("import time:").split("|")
        if len(fields) != 3 or not fields[0].strip().isdigit():
            continue
        name = fields[2].strip()
        own[name] = int(fields[0]) / 1e3
        if name == after:
            own.clear()
    return own


def environment_with_home(home: Path) -> dict[str, str]:
    """This process's environment, with a home of its own: ONNX Runtime opens a store below it."""
    return {**os.environ, "HOME": str(home), "USERPROFILE": str(home)}
