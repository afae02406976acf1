"""The parts of a run: what each measures, how long it takes on a quiet machine of two cores, and its results on disk.

A part can be run alone; what it found is kept, and the page is made of all that is kept. A ratio never mixes parts.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench import cold, compile_cost
from tools.bench.forms import forms_of
from tools.bench.machine import load_average, machine_facts
from tools.bench.place import ROOT, WAYS, Place
from tools.bench.turn_parts import TURNS, take_turns

Results = dict[str, Any]
"""Part -> {when, load, machine, seconds, found}."""


@dataclass(frozen=True)
class Part:
    """needs: packages that must be built. seconds: expected with 15 rounds. usual: taken when none is named."""

    title: str
    seconds: int
    measure: Callable[[Place, int], Any]
    needs: tuple[str, ...] = ()
    usual: bool = True


def _turns(name: str, title: str, seconds: int, *, usual: bool = True) -> Part:
    turns = TURNS[name]
    return Part(title, seconds, lambda place, rounds: take_turns(place, turns, rounds), (turns.package,), usual)


def _start(place: Place, rounds: int) -> Any:
    return {
        "rounds": cold.start_up(place, 1, rounds),
        "parts": cold.load_parts(place, 1),
        "imports": cold.import_times(place.environment),
    }


def _memory(package: str, seconds: int, most: int) -> Part:
    """most: rounds, which differ by some 0.1 MB."""
    title = f"cold processes: memory, {package}"
    return Part(title, seconds, lambda place, rounds: cold.peak_memory(place, package, min(rounds, most)), (package,))


PARTS: dict[str, Part] = {
    "decode-int4": _turns("decode-int4", "int4: 64 tokens of prompt, 128 new, everyone", 170),
    "decode-int8": _turns("decode-int8", "int8: 64 + 128", 150),
    "decode-fp32": _turns("decode-fp32", "fp32: 64 + 128", 280),
    "threads": _turns("threads", "int4: 64 + 128, two threads", 35),
    "threads-int8": _turns("threads-int8", "int8: 64 + 64, two threads", 40),
    "threads-fp32": _turns("threads-fp32", "fp32: 64 + 32, two threads", 50),
    "context": _turns("context", "int4: prompts of 256, 512, 1,024 and 2,048 tokens", 320),
    "context-int8": _turns("context-int8", "int8: a prompt of 1,024 tokens", 100),
    "context-fp32": _turns("context-fp32", "fp32: a prompt of 1,024 tokens", 130),
    "batch": _turns("batch", "int4: 1, 2, 4 and 8 rows", 90),
    "size-tiny": _turns("size-tiny", "random decoder of 0.1 million weights", 12),
    "size-small": _turns("size-small", "random decoder of 9 million weights", 10),
    "size-medium": _turns("size-medium", "random decoder of 46 million weights", 20),
    "tiny": _turns("tiny", "tiny decoder: what is around the run call", 25),
    "host": _turns("host", "tiny decoder: host time by context, to 8,000", 80),
    "host-long": _turns("host-long", "int4: host time at 8,000 tokens of context", 600, usual=False),
    "workflow": _turns("workflow", "workflow form beside the same authored as one graph", 95),
    "tiny-workflow": _turns("tiny-workflow", "tiny decoder with three policies", 30),
    "forms": Part("each fixture in every form", 30, lambda place, rounds: forms_of(place, ROOT / "fixtures", rounds)),
    "start": Part("cold processes: start-up and first request", 80, _start, ("int4", "workflow")),
    "memory": _memory("int4", 35, 5),
    "memory-int8": _memory("int8", 25, 2),
    "memory-fp32": _memory("fp32", 40, 2),
    "compile": Part(
        "compiling real packages",
        25,
        lambda place, rounds: compile_cost.compile_packages(place, min(rounds, 3)),
        ("workflow",),
    ),
    "steps": Part(
        "compiling packages of 1 to 2,000 steps",
        85,
        lambda place, rounds: compile_cost.compile_steps(place, min(rounds, 7)),
    ),
}


def plan(names: Iterable[str], place: Place) -> str:
    """What is going to be measured and how long that takes on a quiet machine; and what is absent."""
    chosen = list(names)
    lines = [f"  {name:14} {PARTS[name].seconds:4} s  {PARTS[name].title}" for name in chosen]
    total = sum(PARTS[name].seconds for name in chosen)
    lines.append(f"  {'together':14} {total:4} s, on a quiet machine of two cores and with 15 rounds")
    needed = dict.fromkeys(package for name in chosen for package in PARTS[name].needs)
    for peer in ("genai", "optimum", "llama"):
        if not place.has(peer):
            lines.append(f"  {peer} does not take part. To have it: {WAYS[peer]}")
    if missing := [package for package in needed if not place.has(package)]:
        lines.append(
            f"  not built, so their parts are left out: {', '.join(missing)}. To have them: {WAYS['packages']}"
        )
    return "\n".join(lines)


def measure(name: str, place: Place, rounds: int) -> dict[str, Any]:
    """One part as plain data: what was found, when, and on what load."""
    before, begun = load_average(), time.time()
    found = PARTS[name].measure(place, rounds)
    return {
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime(begun)),
        "seconds": round(time.time() - begun),
        "load": {"before": before, "after": load_average()},
        "machine": machine_facts(),
        "found": found,
    }


def keep(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Write a part's result; an earlier one is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def kept(folder: Path) -> Results:
    """What is kept of every part, in the order of PARTS."""
    files = {name: folder / f"{name}.json" for name in PARTS}
    return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}
