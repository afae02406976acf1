"""Where time goes: one span a session run, a choice and a piece of text, counted against what a request must do."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_runtime.cli import main
from genai_runtime.timings import ADAPTER, REQUEST, RUN, SELECT, Span, Timings

from tests.conftest import Traced

Compiled = Callable[[str], tuple[Path, Traced]]


def span(kind: str, name: str, begun: int, ended: int) -> Span:
    return Span(kind, name, "steps[0]", begun, ended, 1)


def test_a_request_of_ten_tokens_is_ten_runs_and_ten_choices(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("tiny-gqa-v1")[0], threads=1, timings=True) as model:
        timings = model.timings
        assert timings is not None
        tokens = model.generate([1, 5, 9], max_new_tokens=10, stop_on_eos=False).tokens
        assert len(tokens) == 10
        kinds = [each.kind for each in timings.spans]
        assert (kinds.count(RUN), kinds.count(SELECT)) == (10, 10), "a prompt, nine steps; ten choices"
        assert {each.name for each in timings.spans if each.kind == RUN} == {"decoder"}
        assert {each.step for each in timings.spans if each.kind == RUN} == {"pipeline.workflow.steps[0].steps[0]"}
        assert {each.step for each in timings.spans if each.kind == SELECT} == {"pipeline.workflow.steps[0].steps[1]"}
        assert all(each.begun <= each.ended for each in timings.spans)


def test_graphs_that_choose_are_runs_of_their_own(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("tiny-held-state")[0], threads=1, timings=True) as model:
        timings = model.timings
        assert timings is not None
        assert len(model.generate([1, 5, 9], max_new_tokens=6).tokens) == 6
        names = [each.name for each in timings.spans]
        assert names.count("island_1") == 6
        assert SELECT not in {each.kind for each in timings.spans}
        timings.clear()
        assert timings.spans == []


REQUESTS: Mapping[str, Callable[[genai_runtime.Model], object]] = {
    "tiny-decoder": lambda model: model.generate([1, 5, 9], max_new_tokens=4).tokens,
    "tiny-concat-v1": lambda model: model.generate([1, 5, 9], max_new_tokens=4).tokens,
    "tiny-chained-drafts": lambda model: model.generate([1, 5, 9], max_new_tokens=6, speculate=True).tokens,
    "tiny-block-drafts": lambda model: model.generate([1, 5, 9], max_new_tokens=6, speculate=True).tokens,
    "tiny-stages-v1": lambda model: model.generate([1, 5, 9], max_new_tokens=4).tokens,
    "tiny-denoiser": lambda model: model.draw([1, 5, 9], steps=2, seed=1, width=32, height=32).pictures,
    "nested-loops": lambda model: model.run({"start": [1], "outer_limit": [2], "inner_limit": [3], "ceiling": [99]}),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_every_run_names_its_place_in_the_document(compiled: Compiled, case: str) -> None:
    """Linked graphs, stages, drafts, loops and denoising: a place for each run, and as many runs as sessions made."""
    with genai_runtime.load(compiled(case)[0], threads=1, timings=True) as model:
        REQUESTS[case](model)
        assert model.timings is not None
        runs = [each for each in model.timings.spans if each.kind == RUN]
        assert runs
        assert {each.name for each in runs} <= set(model.describe()["providers"])
        assert all(each.step.startswith(("pipeline.workflow.steps[", "speculative.")) for each in runs)
        assert all(":" in each.origin for each in runs), "a file and a line"


def test_without_being_asked_nothing_is_noted(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("tiny-gqa-v1")[0], threads=1) as model:
        assert model.timings is None


def test_shares_are_of_the_requests_and_the_loop_is_the_rest() -> None:
    timings = Timings([span(RUN, "m", 0, 600), span(RUN, "m", 600, 800), span(SELECT, "", 800, 900)])
    timings.spans.append(span(REQUEST, "all", 0, 1000))
    assert [(each.name, each.calls, each.total, each.share) for each in timings.shares()] == [
        ("session run: m", 2, 0.8, 0.8),
        ("select a token", 1, 0.1, 0.1),
        ("loop", 1, 0.1, 0.1),
    ]
    assert timings.table().splitlines()[1].split() == ["session", "run:", "m", "2", "0.00", "0.4", "80.0%"]


def test_a_failed_call_is_noted_too() -> None:
    timings = Timings()
    with pytest.raises(ZeroDivisionError):
        timings.timed(RUN, "m", "steps[1]", lambda: 1 // 0)()
    assert [(each.name, each.origin) for each in timings.spans] == [("m", "steps[1]")]


def test_the_command_prints_shares_and_writes_a_trace(
    compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    folder = str(compiled("tiny-gqa-v1")[0])
    assert main([folder, "--tokens", "1,5,9", "-n", "4", "--ignore-eos", "--profile", str(trace)]) == 0
    shown = capsys.readouterr().err
    assert "session run: decoder" in shown
    assert "loop" in shown
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    assert {each["ph"] for each in events} == {"X"}
    assert sum(each["cat"] == RUN for each in events) == 4
    whole = next(each for each in events if each["cat"] == REQUEST)
    assert whole["ts"] == 0
    assert all(each["ts"] + each["dur"] <= whole["dur"] + 1e-3 for each in events)


def test_adapters_have_spans_of_their_own(compiled: Compiled) -> None:
    """One for each step that the executor says it opens an adapter for, of those that this request comes to."""
    folder = compiled("tiny-denoiser")[0]
    stated = re.findall(
        r'open_adapter\(.*?"(pipeline\.workflow\.steps[^"]*)"', (folder / "executor.py").read_text(), re.S
    )
    with genai_runtime.load(folder, threads=1, timings=True) as model:
        assert model.timings is not None
        model.run(
            {
                "request.input_ids": [[1, 2, 3]],
                "request.negative_input_ids": [[7]],
                "noise": np.ones((1, 4, 3, 2), np.float32),
            }
        )
        seen = {each.step for each in model.timings.spans if each.kind == ADAPTER}
        assert any(each.name.startswith("adapter: ") for each in model.timings.shares())
    drawn = {each for each in stated if each.endswith(".default")}
    assert seen == set(stated) - drawn


def test_without_a_file_the_table_alone_is_told(
    compiled: Compiled, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(compiled("tiny-gqa-v1")[0]), "--tokens", "1,5,9", "-n", "4", "--profile"]) == 0
    told = capsys.readouterr().err
    assert "session run: decoder" in told
    assert "trace:" not in told
    assert list(tmp_path.iterdir()) == []
