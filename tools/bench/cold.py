"""Starts cold processes, taking turns: start-up, the first request, memory, and what an import of the runtime costs."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.place import ROOT, Place
from tools.bench.ratios import Rounds
from tools.bench.rounds import prompt_ids, turns

PROGRAM = Path(__file__).parent / "cold_process.py"
PROMPT, NEW = 64, 128
PACKAGE = "int4"


def graphs_of(compiled: Path, package: Path) -> list[tuple[str, str]]:
    """The graphs a compiled folder opens, each with the folder of its weights."""
    manifest = json.loads((compiled / "manifest.json").read_text(encoding="utf-8"))
    homes = {"package": package, "compiled": compiled}
    return [
        (str((homes[each["in"]] / each["file"]).resolve()), str((package / each["weights"]).resolve()))
        for each in manifest["graphs"].values()
    ]


def make_task(place: Place, name: str, threads: int, **more: Any) -> dict[str, Any]:
    """What a cold process is told about one package."""
    return task_of(place, name, place.compiled(name), threads, **more)


def task_of(place: Place, name: str, compiled: Path, threads: int, **more: Any) -> dict[str, Any]:
    """The same about one of its compiled folders."""
    package = place.package(name)
    return {
        "root": str(ROOT),
        "package": str(package),
        "compiled": str(compiled),
        "graphs": graphs_of(compiled, package),
        "threads": threads,
        "ids": prompt_ids(package / "tokenizer.json", PROMPT)[0],
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
    whole = {"whole": (found["answered"] - begin) * 1e3} if "answered" in found else {}
    return {**found, **whole, "start": (found["ready"] - begin) * 1e3}


def start_up(place: Place, threads: int, rounds: int) -> Rounds:
    """Per round and kind milliseconds: `start`; `first`, of the first token of a request of ids that follows; `whole`,
    from before the process was started to the first piece of text behind a prompt of text.
    """
    one, other = make_task(place, PACKAGE, threads), make_task(place, "workflow", threads)
    asking, text = {**one, "new": 1}, {**one, "text": prompt_text(place)}
    kinds = {"sessions": ("sessions", one), "executor": ("executor", asking), "loop": ("loop", asking),
             "workflow-sessions": ("sessions", other), "workflow-executor": ("executor", other),
             "executor-text": ("executor", text)}  # fmt: skip
    kept = task_of(place, PACKAGE, place.compiled(PACKAGE, more=("--store-sessions",)), threads)
    kinds["stored"] = ("executor", {**kept, "new": 1})
    kinds["stored-text"] = ("executor", {**kept, "text": prompt_text(place)})
    if place.has("genai"):
        kinds["genai"], kinds["genai-text"] = ("genai", asking), ("genai", text)
    kinds["sessions-again"] = ("sessions", one)
    measured: Rounds = []
    for number in range(-1, rounds):  # the first round only warms the page cache and compiles the modules
        order = turns(tuple(kinds), max(number, 0))
        found = {name: start(*kinds[name], place.environment) for name in order}
        if number >= 0:
            told = ("start", "first", "whole")
            measured.append({name: {key: each[key] for key in told if key in each} for name, each in found.items()})
            print(f"  start-up: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return measured


def prompt_text(place: Place) -> str:
    """The text of the prompt of ids."""
    import tokenizers

    file = place.package(PACKAGE) / "tokenizer.json"
    text: str = tokenizers.Tokenizer.from_file(str(file)).decode(prompt_ids(file, PROMPT)[0])
    return text


def load_parts(place: Place, threads: int, rounds: int = 5) -> dict[str, float]:
    """Median milliseconds of the parts of `load`, and of opening the tokenizer afterwards."""
    task = make_task(place, PACKAGE, threads, parts=True)
    found = [start("executor", task, place.environment) for _ in range(rounds)]
    parts = {name: statistics.median(each["parts"][name] for each in found) for name in found[0]["parts"]}
    return {**parts, "tokenizer": statistics.median(each["tokenizer"] for each in found)}


def peak_memory(place: Place, package: str, rounds: int) -> Rounds:
    """Per round and kind MB: `loaded` and `peak` unique memory (uss), and `shared`, the peak with shares (pss)."""
    task = make_task(place, package, 1, memory=True, new=NEW)
    kinds = {"loop": "loop", "executor": "executor", **({"genai": "genai"} if place.has("genai") else {})}
    kinds["loop-again"] = "loop"
    measured: Rounds = []
    for number in range(rounds):
        found = {name: start(kinds[name], task, place.environment) for name in turns(tuple(kinds), number)}
        if not found["loop"]["peak"]:
            return []
        measured.append({name: memory_figures(each) for name, each in found.items()})
        print(f"  memory: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return measured


def memory_figures(found: dict[str, Any]) -> dict[str, float]:
    """What is kept of one process."""
    return {"loaded": found["loaded"]["uss"], "peak": found["peak"]["uss"], "shared": found["peak"]["pss"]}


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
