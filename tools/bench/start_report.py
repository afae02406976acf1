"""The sections on cold processes: start-up with what remains of it, and memory."""

from collections import defaultdict
from typing import Any

from tools.bench.ratios import Interval, Rounds, baseline, bootstrap_median, column, difference, paired
from tools.bench.tables import table, with_bounds

START_TITLES = {
    "sessions": "imports numpy and onnxruntime, opens the same sessions (floor)",
    "executor": "`load()`, int4",
    "stored": "`load()`, int4, with stored sessions",
    "workflow-sessions": "floor of the workflow form",
    "workflow-executor": "`load()`, workflow form",
    "loop": "hand-written loop (a)",
    "genai": "onnxruntime-genai: `Model()` (b)",
}
FLOORS = {
    "executor": "sessions",
    "stored": "sessions",
    "workflow-executor": "workflow-sessions",
    "loop": "sessions",
    "genai": "sessions",
}
MEMORY_TITLES = {
    "loop": "hand-written loop (a)",
    "executor": "executor, token ids",
    "genai": "onnxruntime-genai (b)",
}
START_TEXT = """\
One cold process each, taking turns, {count} rounds, one thread, files in the page cache. Start-up lasts from before the
process is started to the moment its sessions (its model) are open. First token: a request of 64 prompt tokens directly
after that, in the same process. The floor ran twice a round: second over first {pair}.
"""


def start_section(result: dict[str, Any], told: str) -> str:
    """Start-up, and the list of what remains."""
    rounds = result["found"]["rounds"]
    rows = [
        [title, milliseconds(column(rounds, kind, "start")), over_floor(rounds, kind), first_token(rounds, kind)]
        for kind, title in START_TITLES.items()
        if kind in rounds[0]
    ]
    pair = with_bounds(paired(column(rounds, "sessions-again", "start"), column(rounds, "sessions", "start")))
    heads = ["", "start-up, ms", "over its floor, ms", "first token after that, ms"]
    text = START_TEXT.format(count=len(rounds), pair=pair)
    made = f"{table(heads, rows)}\n{from_the_start(rounds)}{remains(result['found'])}"
    return f"## Start-up\n\n{told}\n\n{text}\n{made}"


def from_the_start(rounds: Rounds) -> str:
    """A prompt of text in a cold process, where it was measured."""
    kinds = {
        "executor-text": "`load(text=True)`, `generate`",
        "stored-text": "the same with stored sessions",
        "genai-text": "onnxruntime-genai (b)",
    }
    if not {"executor-text", "genai-text"} <= rounds[0].keys():
        return ""
    other = column(rounds, "genai-text", "whole")
    rows = [
        [title, milliseconds(column(rounds, kind, "whole")), with_bounds(paired(column(rounds, kind, "whole"), other))]
        for kind, title in kinds.items()
        if kind in rounds[0]
    ]
    told = "From before the process is started to the first piece of text behind a prompt of text (64 tokens):"
    return f"{told}\n\n{table(['', 'ms', 'over (b)'], rows)}\n"


def over_floor(rounds: Rounds, kind: str) -> str:
    """Milliseconds more than the floor of the same round."""
    if kind not in FLOORS:
        return "-"
    floor = FLOORS[kind]
    own = baseline(rounds, "start", floor, f"{floor}-again") if floor == "sessions" else column(rounds, floor, "start")
    found: Interval = difference(column(rounds, kind, "start"), own)
    return with_bounds(found, 0)


def first_token(rounds: Rounds, kind: str) -> str:
    """Milliseconds of the first request's first token."""
    return milliseconds(column(rounds, kind, "first")) if "first" in rounds[0][kind] else "-"


def milliseconds(values: list[float]) -> str:
    """The median."""
    return f"{bootstrap_median(values).median:.0f}"


def remains(results: dict[str, Any]) -> str:
    """What start-up consists of beyond the floor: imports by group, and the parts of `load`."""
    groups = import_groups(results["imports"])
    imports = [[name, f"{sum(each.values()):.1f}", largest(each)] for name, each in groups.items()]
    parts = [[name, f"{value:.1f}"] for name, value in results["parts"].items() if name != "tokenizer"]
    tokenizer = results["parts"]["tokenizer"]
    return (
        "What remains. Imports that `genai_runtime` adds to numpy and onnxruntime (each module's own time under "
        "`-X importtime`, which itself costs about a third):\n\n"
        f"{table(['', 'ms', 'largest'], imports)}\n"
        f"Inside `load()`, int4:\n\n{table(['', 'ms'], parts)}\n"
        f"The tokenizer is opened when text is first asked for, after start-up: {tokenizer:.0f} ms.\n"
    )


def import_groups(modules: dict[str, float]) -> dict[str, dict[str, float]]:
    """Modules by where they come from: this runtime, numpy's typing, everything else."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for name, time in modules.items():
        root = name.partition(".")[0]
        group = root if root in ("genai_runtime", "numpy") else "standard library and others"
        groups[group][name] = time
    return dict(sorted(groups.items(), key=lambda item: -sum(item[1].values())))


def largest(modules: dict[str, float], count: int = 6) -> str:
    """The modules that cost most."""
    order = sorted(modules.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name.removeprefix('genai_runtime.')} {time:.1f}" for name, time in order)


def memory_section(result: dict[str, Any], told: str, package: str) -> str:
    """Unique and proportional memory of one process each."""
    rounds, head = result["found"], f"## Memory, {package}\n\n"
    if not rounds:
        return f"{head}Not measured: this system has no `/proc/self/smaps_rollup`.\n"
    floor = baseline(rounds, "peak", "loop", "loop-again")
    rows = []
    for kind, title in MEMORY_TITLES.items():
        if kind in rounds[0]:
            peak = floor if kind == "loop" else column(rounds, kind, "peak")
            more = "-" if kind == "loop" else with_bounds(difference(peak, floor), 1)
            sizes = [column(rounds, kind, "loaded"), peak, column(rounds, kind, "shared")]
            rows.append([title, *(f"{bootstrap_median(each).median:.0f}" for each in sizes), more])
    heads = ["", "USS after load", "peak USS", "peak PSS", "peak USS over (a)"]
    pair = with_bounds(difference(column(rounds, "loop-again", "peak"), column(rounds, "loop", "peak")), 1)
    return (
        f"{head}{told}\n\nA process each, one thread, 64 prompt tokens, 128 new ones; MB (10^6 bytes), "
        f"medians of {len(rounds)}. USS is what a process has for itself, PSS adds its share of what it has in common "
        f"with others; looked at every 5 ms while the request runs. A/A pair of (a): {pair} MB.\n\n{table(heads, rows)}"
    )
