"""Writes docs/performance.md: the template is here, the figures are those of the parts that are kept."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.cost_report import compile_section, forms_section, steps_section
from tools.bench.place import WAYS
from tools.bench.rounds import AGED
from tools.bench.start_report import memory_section, start_section
from tools.bench.tables import table, with_bounds
from tools.bench.targets import Target, targets
from tools.bench.turn_report import SECTIONS as TURN_SECTIONS
from tools.bench.turn_report import turn_section

Results = dict[str, Any]
HEAD = """\
# Performance

`make bench` writes this page and its plots: measure again rather than edit it. SmolLM2-135M-Instruct is compiled from
packages that onnxruntime-genai's own builder writes (float32, 8-bit and 4-bit weights, float32 state) and, for the
workflow form, from this repository's own; the other decoders have random weights and the same builder. Everything is on
the CPU, greedy, one thread where nothing else is said; prompts are cut from this repository's own English texts.

(a) is a hand-written loop on ONNX Runtime with every binding made once; (b) onnxruntime-genai's Python API; (c)
Optimum's `generate` on the same graph; (d) llama.cpp on the checkpoint that the packages are made of, whose 4-bit
weights are quantised in another way, so that its tokens soon differ.
"""
READING = """\
## How to read it

Contestants take turns: one generation each a round, in an order that rotates and turns around. Each waits for its turns
in a process of its own, since where memory lies decides how fast a session is, and one contestant's way with it would
change the others' figures; (c) and (d) need other versions of their libraries too. All processes are started anew after
five rounds (three with the tiny decoders), because one process may be a little faster than the next of the same
program; turns begin {aged} seconds after the last was opened. A figure of a contestant in a round is the median over
that generation's steps. What is compared is always two figures of the same round; tables give the median of that ratio
over the rounds and, in brackets, the interval in which that median lies with 95 % confidence (percentile bootstrap over
the rounds). Absolute times are medians over the rounds and hold for that machine and that hour only. The parts were
measured one after another, and no ratio mixes two of them.

One contestant of a part, mostly (a), runs twice in two processes, the first and the last one opened: what the two
differ by is what differs when nothing does. The A/A deviation is the end of that ratio's interval that is farther from
1; a difference smaller than that says nothing. (a) in a ratio is the geometric mean of the two.

A target is met when the whole interval is on the right side of its bound: the lower end where the figure must be large,
else the upper one. Where the bound asks for parity (0.99, 1.00 or 1.02), the A/A deviation of the same run is allowed.
Above 0.1 it is not: then the interval is on the right side of the bound itself, or the run was too noisy to tell.

A decode step lasts from the end of one session run of the decoder to the end of the next, and for (c) and (d) from one
token to the next. Host time is the step less all session runs inside it: for the executors and (a) everything that
Python and numpy do for a token, the argmax included. For onnxruntime-genai it is only Python around its calls; its own
C++ work is inside them: not comparable. (a) binds everything once for a known length; executors make and bind their
buffers for every request, which counts for the first token. Speed over something: how many times as fast.
"""
REPEAT = """\
## Repeat it

```
make packages bench-packages bench-peers      # once: the packages, and environments of the peers (networked, minutes)
make bench                                    # all of this page, about {minutes} minutes
make bench ARGS="--only tiny host"            # some parts again; the page is made of all that are kept
make bench ARGS="--plan"                      # what would be measured, how long that takes, who is absent
```

It wants a machine that does nothing else. Each part says the system's load average before and after it; the part itself
accounts for 1 (more with two threads). Above that, other processes took part: absolute times are then too long, ratios
still hold within their intervals, and host times suffer most, because others' data displaces ours in shared caches.
"""
PLOTS = (
    "speed-by-context", "ttft-by-context", "host-by-context", "host-by-context-tiny", "speed-by-rows", "ttft-by-rows",
    "host-by-rows", "speed-by-size", "ttft-by-size", "host-by-size", "compile-by-steps",
)  # fmt: skip
"""The order on the page; others that were drawn are left out."""


def render(results: Results, plots: Path, page: Path) -> str:
    """The page. plots: the folder of the plots, whose files are linked from `page`."""
    parts = [
        HEAD,
        machine_section(results),
        targets_section(targets(results)),
        plots_section(plots, page),
        READING.format(aged=AGED),
    ]
    parts += [section(name, result) for name, result in results.items()]
    parts += [absent_section(results), REPEAT.format(minutes=minutes())]
    return "\n".join(part for part in parts if part)


def minutes() -> int:
    """How long a whole run is expected to take."""
    from tools.bench.parts import PARTS

    return round(sum(part.seconds for part in PARTS.values() if part.usual) / 60)


def section(name: str, result: dict[str, Any]) -> str:
    """One part."""
    told = told_of(result)
    if name in TURN_SECTIONS:
        return turn_section(name, result, told)
    if name.partition("-")[0] == "memory":
        return memory_section(result, told, name.partition("-")[2] or "int4")
    makers = {"start": start_section, "compile": compile_section, "steps": steps_section, "forms": forms_section}
    return makers[name](result, told)


def told_of(result: dict[str, Any]) -> str:
    """When a part was measured, and on what load."""
    load = result["load"]
    averages = f"load average {load['before']:.1f} before, {load['after']:.1f} after"
    return f"*{result['when']} UTC, {result['seconds']} s; {averages}.*"


def machine_section(results: Results) -> str:
    """The machine's facts; of several machines each, with the parts that it measured."""
    by_facts: dict[str, tuple[dict[str, str], list[str]]] = {}
    for name, result in results.items():
        by_facts.setdefault(str(result["machine"]), (result["machine"], []))[1].append(name)
    parts = []
    for facts, names in by_facts.values():
        rows = [[name, value] for name, value in facts.items()]
        several = f"Of {', '.join(names)}:\n\n" if len(by_facts) > 1 else ""
        parts.append(f"{several}{table(['', ''], rows)}")
    return "## Machine\n\n" + "\n".join(parts)


def targets_section(found: Sequence[Target]) -> str:
    """The targets, and for each that is missed by how much."""
    if not found:
        return ""
    rows = [target_row(each) for each in found]
    met = sum(each.met and each.told for each in found)
    heads = ["", "target", "found, 95 % bounds", "A/A deviation", "", "part"]
    return f"## Targets\n\n{met} of {len(found)} are met; what that means is said below.\n\n{table(heads, rows)}"


def target_row(each: Target) -> list[str]:
    """One line of the table."""
    digits = 0 if each.count else 1 if each.unit else 3
    verdict = "met" if each.met else f"missed by {each.missed_by:.{digits}f}{each.unit}"
    verdict = verdict if each.told else "too noisy to tell"
    bound = f"{'>=' if each.at_least else '<='} {each.bound:g}{each.unit}"
    pair = "-" if each.pair is None else f"{each.pair:.{digits}f}{each.unit}"
    spread = f"{each.found.median:.0f}" if not digits else with_bounds(each.found, digits) + each.unit
    return [each.title, bound, spread, pair, verdict, each.part]


def plots_section(plots: Path, page: Path) -> str:
    """Links to the plots that are there."""
    folder = Path(os.path.relpath(plots, page.parent)).as_posix()
    found = [name for name in PLOTS if (plots / f"{name}.svg").exists()]
    lines = "\n".join(f"![{name.replace('-', ' ')}]({folder}/{name}.svg)\n" for name in found)
    return f"## Plots\n\n{lines}" if found else ""


def absent_section(results: Results) -> str:
    """Peers that did not take part in any part, with how to install them."""
    missing = dict.fromkeys(
        peer for name in TURN_SECTIONS if name in results for peer in results[name]["found"]["absent"]
    )
    if not missing:
        return ""
    lines = "\n".join(f"- {peer}: {WAYS[peer]}" for peer in missing)
    return f"## Absent\n\nNot installed in at least one part, so these rows are missing there:\n\n{lines}\n"
