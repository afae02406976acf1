"""The sections on compiling: what real packages cost, what steps cost, and whether the right form was chosen."""

from typing import Any

from tools.bench.ratios import baseline, bootstrap_median, column, deviation, paired
from tools.bench.tables import table, with_bounds

STEPS_TEXT = """\
Packages of so many steps: invokes of two small graphs in turn, and every tenth a branch. Processor time is that of the
whole command, imports included; peak memory is what was resident.
"""
FORMS_TEXT = """\
Each fixture is compiled as the compiler chooses, with passes left out, and with all components that can asked to run
fused, in sessions of their own, or on the host; the forms take turns on one request. A ratio is the time of the chosen
form over that of the other one: below 1 the choice was right. `separate`: no graph is linked with another one.
"""


def compile_section(result: dict[str, Any], told: str) -> str:
    """Wall clock, processor time and memory of the compiler on real packages."""
    rounds = result["found"]
    heads = ["", "wall clock, s", "processor, s", "peak memory, MB", "weights, MB", "peak over weights"]
    rows = []
    for name in rounds[0]:
        cells = [with_bounds(bootstrap_median(column(rounds, name, "seconds")), 1)]
        cells += [f"{bootstrap_median(column(rounds, name, what)).median:.1f}" for what in ("processor",)]
        peak, weights = column(rounds, name, "peak"), column(rounds, name, "weights")
        cells += [f"{bootstrap_median(each).median:.0f}" for each in (peak, weights)]
        rows.append([f"SmolLM2, {name}", *cells, f"{paired(peak, weights).median:.2f}"])
    return f"## Compiling\n\n{told}\n\n{table(heads, rows)}"


def steps_section(result: dict[str, Any], told: str) -> str:
    """What compiling costs by the number of steps."""
    rounds = result["found"]
    rows = []
    for count in sorted(map(int, rounds[0])):
        figures = [
            bootstrap_median(column(rounds, str(count), what)).median for what in ("processor", "seconds", "peak")
        ]
        rows.append([f"{count:,}", f"{figures[0]:.2f}", f"{figures[1]:.2f}", f"{figures[2]:.0f}"])
    heads = ["steps", "processor, s", "wall clock, s", "peak memory, MB"]
    return f"## Compile time by steps\n\n{told}\n\n{STEPS_TEXT}\n{table(heads, rows)}"


def forms_section(result: dict[str, Any], told: str) -> str:
    """Every fixture with more than one form."""
    found = result["found"]
    rows = []
    for case, each in found["fixtures"].items():
        rounds = each["rounds"]
        chosen = baseline(rounds, "request", "chosen", "chosen-again")
        pair = deviation(paired(column(rounds, "chosen-again", "request"), column(rounds, "chosen", "request")))
        others = [name for name in rounds[0] if not name.startswith("chosen")]
        for name in others:
            ratio = paired(chosen, column(rounds, name, "request"))
            milliseconds = bootstrap_median(chosen).median * 1e3
            rows.append([f"`{case}`, {name}", f"{milliseconds:.2f}", with_bounds(ratio), f"{100 * pair:.1f} %"])
    heads = ["", "chosen form, ms a request", "chosen over this one", "A/A deviation"]
    same = ", ".join(f"`{each}`" for each in found["same"])
    notes = f"One program in every form: {same}.\n" if same else ""
    notes += "".join(f"\nNot timed: `{case}` ({why}).\n" for case, why in found["failed"].items())
    return f"## The chosen form\n\n{told}\n\n{FORMS_TEXT}\n{table(heads, rows)}\n{notes}"
