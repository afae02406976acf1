"""The plots of docs/performance.md: tokens/s, first token and host time by context, rows and size; compile time."""

from pathlib import Path
from typing import Any

from tools.bench.contestants import LOOP, TITLES
from tools.bench.ratios import bootstrap_median, column
from tools.bench.svg import Axis, Series, line_plot
from tools.bench.turn_report import Scenario, points

Results = dict[str, Any]
LINES = ("tokens", LOOP, "genai")
MILLIONS = {"size-tiny": 0.14, "size-small": 8.6, "size-medium": 46.3, "decode-fp32": 134.5}
"""Part -> millions of weights."""
WHAT = {
    "speed": ("Tokens a second, of the median step", "tokens/s", 1.0),
    "ttft": ("Time to the first token", "ms", 1e3),
    "host": ("Host time a token", "µs", 1e6),
}
"""Figure -> title, axis, factor."""
HOST_LINES = ("tokens", LOOP)
"""onnxruntime-genai's host work is inside its calls."""


UNDRAWN = ("speed-by-context-tiny", "ttft-by-context-tiny")
"""Of the tiny decoder by context only host time is asked for."""
BY = {"context": "context", "context-tiny": "context, tiny decoder", "rows": "rows", "size": "size of the model"}


def write_plots(results: Results, folder: Path) -> None:
    """Write every plot that the results have points for; those of an earlier run without them go."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, text in all_plots(results).items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


def all_plots(results: Results) -> dict[str, str]:
    """Name -> SVG."""
    made: dict[str, str] = {}
    for by, (axis_title, log, scenarios) in axes(results).items():
        for what, (title, unit, factor) in WHAT.items():
            if f"{what}-by-{by}" in UNDRAWN:
                continue
            series = lines_of(scenarios, what, factor)
            if series and max(len(each.points) for each in series) > 1:
                axis = Axis(axis_title, unit, log, what == "ttft" or (by == "size" and what == "speed"))
                made[f"{what}-by-{by}"] = line_plot(f"{title}, by {BY[by]}", axis, series)
    if rounds := results.get("steps", {}).get("found"):
        made["compile-by-steps"] = compile_plot(rounds)
    return made


def axes(results: Results) -> dict[str, tuple[str, bool, list[tuple[float, Scenario]]]]:
    """By context, rows and size: the axis, whether it is logarithmic, and (x, scenario)."""

    def scenarios(part: str) -> list[Scenario]:
        found: list[Scenario] = results.get(part, {}).get("found", {}).get("scenarios", [])
        return found

    context = [each for part in ("decode-int4", "context") for each in scenarios(part)]
    sizes = [(x, each) for part, x in MILLIONS.items() for each in scenarios(part)]
    return {
        "context": ("prompt tokens (int4)", True, [(each["prompt"], each) for each in context]),
        "context-tiny": ("prompt tokens (tiny decoder)", True, [(each["prompt"], each) for each in scenarios("host")]),
        "rows": ("rows (int4, 64 prompt tokens)", False, [(each["rows"], each) for each in scenarios("batch")]),
        "size": ("millions of weights (fp32, 64 prompt tokens)", True, sizes),
    }


def lines_of(scenarios: list[tuple[float, Scenario]], what: str, factor: float) -> list[Series]:
    """A line for each contestant that has the figure."""
    names = HOST_LINES if what == "host" else LINES
    found = [(name, points(scenarios, name, what)) for name in names]
    return [Series(TITLES[name], tuple((x, factor * y) for x, y in line)) for name, line in found if line]


def compile_plot(rounds: list[dict[str, dict[str, float]]]) -> str:
    """Processor and wall seconds by number of steps."""
    counts = sorted(map(int, rounds[0]))
    series = [
        Series(title, tuple((count, bootstrap_median(column(rounds, str(count), what)).median) for count in counts))
        for what, title in (("processor", "processor time"), ("seconds", "wall clock"))
    ]
    return line_plot("Compile time, by steps of the workflow", Axis("steps", "s"), series)
