"""The bench's page: which targets a run meets, what each section shows, the plots. Its results are made up."""

import json
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest

from tests.data import ROOT
from tools.bench.parts import PARTS, keep, kept
from tools.bench.plots import all_plots, write_plots
from tools.bench.ratios import Interval
from tools.bench.report import render, targets_section
from tools.bench.start_report import start_section
from tools.bench.svg import Axis, Series, line_plot, mark_step, scale
from tools.bench.targets import Target, form_ratio, step_cost, targets

Figures = dict[str, float]
SVG = "{http://www.w3.org/2000/svg}"


def figures(step: float, host: float = 40e-6, ttft: float = 0.2, **more: float) -> Figures:
    return {"step": step, "host": host, "ttft": ttft, "rate": 1 / step, "runs": 1.0, **more}


def scenario(prompt: int, new: int, entries: dict[str, Figures], same: int = 128, rows: int = 1) -> dict[str, Any]:
    names = list(entries)
    return {
        "prompt": prompt, "new": new, "rows": rows, "names": names, "check": 0, "compared": 128,
        "same": {one: dict.fromkeys(names, same) for one in names}, "rounds": [entries] * 3,
    }  # fmt: skip


def part(found: Any) -> dict[str, Any]:
    load = {"before": 0.5, "after": 1.5}
    return {"when": "2026-01-02 03:04", "seconds": 60, "load": load, "machine": {"Processor": "P"}, "found": found}


def turns_part(*scenarios: dict[str, Any], absent: tuple[str, ...] = ()) -> dict[str, Any]:
    versions = {"llama": {"llama_cpp_python": "1.2"}}
    return part(
        {"threads": 1, "scenarios": list(scenarios), "package": "int4", "absent": list(absent), "versions": versions}
    )


LOOP = figures(0.010)


def decode(own: Figures, *, same: int = 128) -> dict[str, Any]:
    """A run in which the loop takes 10 ms a step, 40 us of host time and 200 ms to the first token."""
    peers = {"genai": figures(0.0100), "optimum": {"step": 0.0125, "ttft": 0.25, "rate": 80.0}}
    return turns_part(scenario(64, 128, {"loop": LOOP, "tokens": own, **peers, "loop-again": LOOP}, same))


def whole(own: Figures) -> dict[str, Any]:
    """Every part, with the same figures for the executor throughout."""
    pair = {"loop": LOOP, "tokens": own, "loop-again": LOOP}
    one = {"one-graph": LOOP, "workflow": {**own, "runs": 2.0}}
    policies = {"policies-bound": figures(0.0115), "policies-run": figures(0.0150)}
    start = {
        "sessions": {"start": 300.0}, "sessions-again": {"start": 300.0}, "executor": {"start": 350.0, "first": 140.0},
        "genai": {"start": 290.0, "first": 250.0}, "executor-text": {"start": 350.0, "whole": 440.0},
        "genai-text": {"start": 290.0, "whole": 640.0},
        "stored": {"start": 320.0, "first": 140.0}, "stored-text": {"start": 320.0, "whole": 400.0},
    }  # fmt: skip
    memory = {name: {"loaded": 100.0, "peak": 200.0, "shared": 210.0} for name in ("loop", "executor", "loop-again")}
    forms = {"chosen": {"request": 1.0}, "chosen-again": {"request": 1.0}, "fuse_islands": {"request": 2.0}}
    steps = {str(count): {"processor": 1 + count / 1000, "seconds": 2.0, "peak": 90.0} for count in (1, 1000, 2000)}
    cost = {"workflow": {"seconds": 5.0, "processor": 4.0, "peak": 120.0, "weights": 100.0}}
    numpy = {"numpy": figures(0.015), "optimum": figures(0.015)}
    return {
        "decode-int4": decode(own),
        "context": turns_part(
            scenario(512, 4, pair), scenario(1024, 32, {**pair, **numpy}), absent=("genai",)
        ),
        "batch": turns_part(scenario(64, 32, pair, rows=1), scenario(64, 32, pair, rows=4)),
        "tiny": turns_part(scenario(16, 512, {**pair, "run-only": figures(own["step"] - 5e-6)})),
        "host": turns_part(scenario(128, 128, pair), scenario(8000, 128, pair)),
        "workflow": turns_part(scenario(64, 64, {**one, "one-graph-again": LOOP})),
        "tiny-workflow": turns_part(scenario(16, 256, {**one, **policies, "one-graph-again": LOOP})),
        "forms": part({"fixtures": {"case": {"requests": 3, "rounds": [forms] * 3}}, "same": ["other"], "failed": {}}),
        "start": part({"rounds": [start] * 3, "parts": {"open": 250.0, "tokenizer": 90.0}, "imports": {"a": 3.0}}),
        "memory": part([memory] * 3),
        "compile": part([cost] * 3),
        "steps": part([steps] * 3),
    }  # fmt: skip


GOOD, BAD = figures(0.010, 40e-6, 0.15), figures(0.0125, 60e-6, 0.25)


def test_stored_sessions_stand_beside_the_plain_form() -> None:
    """Over its floor and over (b); an older result without them makes a page, too."""
    results = whole(GOOD)["start"]
    page = start_section(results, "told")
    assert "| `load()`, int4, with stored sessions | 320 | 20 [20, 20] | 140 |" in page
    assert "| the same with stored sessions | 400 | 0.625 [0.625, 0.625] |" in page
    for each in results["found"]["rounds"]:
        for name in ("stored", "stored-text"):
            each.pop(name, None)
    assert "stored" not in start_section(results, "told")


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_a_run_that_is_good_throughout_meets_every_target() -> None:
    found = targets(whole(GOOD))
    assert [each.title for each in found if not each.met] == []
    assert len(found) == len({each.title for each in found}) == 27


def test_targets_say_by_how_much_they_are_missed() -> None:
    found = {each.title: each for each in targets({"decode-int4": decode(BAD, same=100)})}
    missed = {title: each.missed_by for title, each in found.items() if not each.met}
    assert missed == pytest.approx(
        {
            "int4: tokens equal to (a)": 28,
            "int4: tokens equal to (b)": 28,
            "int4: decode speed over (a)": 0.2,
            "int4: decode speed over (b)": 0.2,
            "int4: decode speed over (c), 64 tokens": 0.15,
            "int4: first token over (a), prompt of 64": 0.35,
            "int4: first token over (b), prompt of 64": 0.35,
            "int4: host time a token over (a)'s": 0.5,
        }
    )


def test_each_precision_has_rows_of_its_own_for_the_first_token_and_memory() -> None:
    """From the parts of that precision, by arithmetic on figures of which only one is beyond the bound."""
    late = {"loop": LOOP, "tokens": figures(0.010, 40e-6, 0.19), "loop-again": LOOP}
    sooner = figures(0.01, ttft=0.16)
    peaks = {"loop": 200.0, "executor": 212.0, "loop-again": 200.0}
    large = {name: {"loaded": 1.0, "peak": peak, "shared": 1.0} for name, peak in peaks.items()}
    results = {
        "decode-int8": decode(GOOD),
        "decode-fp32": decode(GOOD),
        "context-int8": turns_part(scenario(1024, 32, late)),
        "context-fp32": turns_part(scenario(512, 4, late), scenario(1024, 32, {**late, "genai": sooner})),
        "memory-fp32": part([large] * 2),
    }
    found = {each.title: each for each in targets(results) if "first token" in each.title or "memory" in each.title}
    assert {title: each.part for title, each in found.items()} == {
        "int8: first token over (a), prompt of 64": "decode-int8",
        "int8: first token over (b), prompt of 64": "decode-int8",
        "int8: first token over (a), prompt of 1,024": "context-int8",
        "fp32: first token over (a), prompt of 64": "decode-fp32",
        "fp32: first token over (b), prompt of 64": "decode-fp32",
        "fp32: first token over (a), prompt of 512": "context-fp32",
        "fp32: first token over (a), prompt of 1,024": "context-fp32",
        "fp32: first token over (b), prompt of 1,024": "context-fp32",
        "fp32: peak unique memory over (a)": "memory-fp32",
    }
    assert found["int8: first token over (a), prompt of 1,024"].missed_by == pytest.approx(0.19 / 0.2 - 0.9)
    assert found["fp32: first token over (b), prompt of 1,024"].found.median == pytest.approx(0.19 / 0.16)
    assert found["fp32: peak unique memory over (a)"].missed_by == pytest.approx(2)
    assert found["fp32: first token over (a), prompt of 64"].met


def test_memory_of_each_precision_has_a_section() -> None:
    results = {name: whole(GOOD)["memory"] for name in ("memory", "memory-int8", "memory-fp32")}
    page = render(results, Path("plots"), Path("page.md"))
    assert [line for line in page.splitlines() if line.startswith("## Memory")] == [
        "## Memory, int4", "## Memory, int8", "## Memory, fp32"
    ]  # fmt: skip
    assert set(results) <= set(PARTS)


def test_the_deciding_end_of_the_interval_counts() -> None:
    speed = Target("speed", "part", Interval(1.2, 1.1, 1.3), 1.15, True)
    assert not speed.met
    assert speed.missed_by == pytest.approx(0.05)
    assert Target("time", "part", Interval(0.8, 0.7, 0.95), 0.9, False).missed_by == pytest.approx(0.05)
    assert Target("time", "part", Interval(0.8, 0.7, 0.9), 0.9, False).met


def test_only_parity_is_allowed_what_two_equal_programs_differ_by() -> None:
    found = Interval(1.0, 0.98, 1.02)
    assert Target("speed", "part", found, 1.0, True, pair=0.02, level=True).met
    assert not Target("speed", "part", found, 1.0, True, pair=0.01, level=True).met
    assert not Target("speed", "part", found, 1.0, True, pair=0.02).met
    assert not Target("speed", "part", found, 1.0, True, level=True).met


@pytest.mark.parametrize(("low", "high", "pair", "told"), [
    (0.95, 1.1, 0.1, True), (0.95, 1.1, 0.11, False), (0.999, 1.2, 0.2, False), (1.0, 1.2, 0.2, True)
])  # fmt: skip
def test_a_noisy_run_tells_only_what_is_beyond_the_bound_itself(
    low: float, high: float, pair: float, told: bool
) -> None:
    assert Target("speed", "part", Interval(1.05, low, high), 1.0, True, pair=pair, level=True).told == told
    turned = Interval(1 / 1.05, 1 / high, 1 / low)
    assert Target("time", "part", turned, 1.0, False, pair=pair, level=True).told == told


def test_a_form_is_held_against_the_best_of_the_others() -> None:
    rounds = [
        {"chosen": {"request": 3.0}, "chosen-again": {"request": 3.0}, "a": {"request": 4.0}, "b": {"request": 2.0}}
    ]
    assert form_ratio(rounds) == (Interval(1.5, 1.5, 1.5), 0.0, "b")


def test_the_cost_of_a_step_is_the_slope() -> None:
    rounds = [{"1": {"processor": 1.0}, "1000": {"processor": 2.998}, "2000": {"processor": 6.998}}]
    assert step_cost(rounds, 1, 1000) == pytest.approx([0.002])
    assert step_cost(rounds, 1000, 2000) == pytest.approx([0.004])
    (found,) = targets({"steps": part(rounds)})
    assert found.found.median == pytest.approx(2.0)
    assert not found.met


# ---- the page --------------------------------------------------------------------------------------------------------


def test_page_shows_every_part_with_when_and_load(tmp_path: Path) -> None:
    page = render(whole(BAD), tmp_path, tmp_path / "page.md")
    for heading in (
        "## Machine", "## Targets", "## Decode: SmolLM2, int4", "## Longer prompts", "## Several rows",
        "## Host time by context", "## Workflow form: SmolLM2", "## The chosen form", "## Start-up", "## Memory",
        "## Compiling", "## Compile time by steps", "## Repeat it",
    ):  # fmt: skip
        assert heading in page
    assert page.count("*2026-01-02 03:04 UTC, 60 s; load average 0.5 before, 1.5 after.*") == 12
    assert (
        "| int4: decode speed over (a) | >= 1 | 0.800 [0.800, 0.800] | 0.000 | missed by 0.200 | decode-int4 |" in page
    )
    assert "genai: pip install 'genai-compile[bench]'" in page
    assert "llama_cpp_python 1.2" in page


def test_a_line_of_a_decode_table() -> None:
    page = render({"decode-int4": decode(BAD)}, Path("plots"), Path("page.md"))
    ratio = "1.500 [1.500, 1.500]"
    cells = ["executor, token ids", "12500", "0.800 [0.800, 0.800]", "60.0", ratio, "80.0", "250.0"]
    assert f"| {' | '.join([*cells, '1.250 [1.250, 1.250]', '128/128'])} |" in page
    assert "| Optimum, ORT generate (c) | 12500 | 0.800 [0.800, 0.800] | - | - | 80.0 |" in page


def test_page_can_hold_one_part_and_says_what_is_met() -> None:
    page = render({"memory": whole(GOOD)["memory"]}, Path("plots"), Path("page.md"))
    assert "## Memory" in page
    assert "## Decode" not in page
    assert "1 of 1 are met" in page
    assert "## Plots" not in page
    assert "Not measured" in render({"memory": part([])}, Path("plots"), Path("page.md"))
    assert targets_section([]) == ""


def test_parts_from_two_machines_are_told_apart() -> None:
    results = {name: whole(GOOD)[name] for name in ("memory", "compile")}
    results["compile"]["machine"] = {"Processor": "Q"}
    page = render(results, Path("plots"), Path("page.md"))
    assert "Of memory:" in page
    assert "Of compile:" in page


def test_kept_parts_come_back_in_order(tmp_path: Path) -> None:
    results = whole(GOOD)
    for name in reversed(results):
        keep(tmp_path, name, results[name])
    assert kept(tmp_path) == json.loads(json.dumps(results))
    assert list(kept(tmp_path)) == [name for name in PARTS if name in results]


# ---- plots -----------------------------------------------------------------------------------------------------------


def test_plots_are_written_and_linked(tmp_path: Path) -> None:
    (tmp_path / "stale.svg").write_text("")
    write_plots(whole(GOOD), tmp_path)
    assert sorted(each.stem for each in tmp_path.iterdir()) == sorted(all_plots(whole(GOOD)))
    page = render(whole(GOOD), tmp_path, tmp_path.parent / "page.md")
    assert f"![compile by steps]({tmp_path.name}/compile-by-steps.svg)" in page


def test_a_point_stands_where_its_value_is() -> None:
    """Linear from 0 to 10 both ways: 5 is in the middle of either axis."""
    text = line_plot("A & B", Axis("x", "y"), [Series("line <1>", ((0, 0), (5, 5), (10, 10)))])
    root = xml.fromstring(text)
    dots = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in root.iter(f"{SVG}circle")]
    (x0, y0), (x1, y1), (x2, y2) = dots
    assert (x1, y1) == ((x0 + x2) / 2, (y0 + y2) / 2)
    assert x0 < x2
    assert y0 > y2  # SVG counts downwards
    assert {"A & B", "line <1>"} <= {each.text for each in root.iter(f"{SVG}text")}


def test_logarithmic_places_are_equal_for_equal_factors() -> None:
    axis = scale([64, 1024], 0, 100, log=True)
    assert (axis.low, axis.high) == (64, 1024)
    assert [axis.place(value) for value in (64, 256, 1024)] == pytest.approx([0, 50, 100])
    wide = scale([0.14, 134.5], 0, 100, log=True)
    assert wide.marks == pytest.approx((0.1, 1, 10, 100, 1000))


def test_marks_are_round_numbers() -> None:
    assert [mark_step(value) for value in (10, 9, 13, 47, 0.3)] == pytest.approx([1, 1, 2, 5, 0.05])
    assert scale([3, 7], 0, 1, log=False).marks == tuple(range(8))


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        line_plot("empty", Axis("x", "y"), [])
    with pytest.raises(ValueError, match="can't be drawn"):
        scale([0, 1], 0, 1, log=True)


# ---- the page that there is ------------------------------------------------------------------------------------------


def test_every_target_that_is_not_met_has_a_row_on_the_page_that_explains_it() -> None:
    """Which fixture is the worst, in brackets at the end, may change from run to run."""
    page, why = ((ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("performance", "where-time-goes"))
    rows = [[each.strip() for each in line.strip("|").split(" | ")] for line in page.splitlines() if " | " in line]
    found = [row for row in rows if len(row) == 6 and row[1].startswith((">=", "<="))]
    assert len(found) > 40
    explained = [line.split(" | ")[0] for line in why.splitlines() if line.startswith("| ")]
    missed = [row[0].partition(", worst fixture (")[0] for row in found if row[4] != "met"]
    assert [name for name in missed if not any(name in each for each in explained)] == []
