"""Every golden executor is run: its outputs equal the reference interpreter's and the plain decoding loop's."""

import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import ExecutionError, binding

from tests.conftest import CASES, FIXTURES
from tests.reference.document import read_document
from tests.reference.interpreter import interpret
from tests.reference.plain_loop import greedy
from tests.reference.values import Array, ReferenceError
from tests.two_routes import TwoRoutes, collect
from tools.fixtures.document import emit, write_document

Models = Callable[[str], genai_runtime.Model]
Routes = Callable[[str], TwoRoutes]
DECODERS = {"tiny-runtime-policy": (2, 5), "tiny-gqa-v1": (2, 5), "tiny-concat-v1": (2,)} | {
    "tiny-block-drafts": (2, 5),
    "tiny-chained-drafts": (2, 5),
    "tiny-tied-v1": (2, 5),
}
"""Packages whose token policy the runtime supplies, and their end tokens."""
PROMPTS = [[1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4]]


@pytest.fixture
def routes(model: Models) -> Routes:
    return lambda case: TwoRoutes(model(case), FIXTURES / case)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def test_every_fixture_is_run_here() -> None:
    flow = {"branch-joins", "nested-loops", "session-counter", "ragged-emit", "bounded-growing", "tiny-decoder"}
    flow |= {"wide-search"}
    elsewhere = {"tiny-held-state", "negatives"}  # tests/runtime/test_held.py, tests/images/test_package.py
    elsewhere |= {"tiny-turns"}  # tests/runtime/test_settled.py
    elsewhere |= {"tiny-encoder-v2", "tiny-media-v2", "tiny-minimal-v2", "tiny-vision-v2"}  # tests/test_pipelines.py
    elsewhere |= {"tiny-budget-v1", "tiny-even-bands-v2", "tiny-fields-v2", "tiny-tiles-v2"}  # test_processor_fixtures
    elsewhere |= {"tiny-own-tokens-v1"}  # tests/test_own_tokens.py
    elsewhere |= {"tiny-stages-v1", "tiny-shifted-v1"}  # tests/test_stages.py, tests/test_stage_windows.py
    elsewhere |= {"tiny-encoder-decoder-v1"}  # tests/lower/test_config_models.py
    elsewhere |= {"tiny-ssru-v1"}  # tests/lower/test_one_token_rows.py
    elsewhere |= {"tiny-vision-stages-v1"}  # tests/test_vision_stages.py
    elsewhere |= {"tiny-embedder-v2"}  # tests/lower/test_pipeline_pass.py
    elsewhere |= {"tiny-denoiser"}  # tests/lower/test_iterative.py
    assert {*flow, *DECODERS, *elsewhere} == set(CASES)


@pytest.mark.parametrize("words", [[30011], [7, 508, 2], [0, 506, 1015, 3]], ids=str)
def test_rows_that_search(routes: Routes, words: list[int]) -> None:
    inputs = {"word": ints(*words), "bound": ints(400), "limit": ints(5)}
    batch = routes("wide-search").agree(inputs)
    for row, word in enumerate(words):
        assert batch.rows("words")[row].tolist() == [searched(word, 400, 5)]


def searched(word: int, bound: int, limit: int) -> list[int]:
    """One row of wide-search in plain Python."""
    found: list[int] = []
    for _ in range(limit):
        scores = [place * (word + 3) % 509 for place in range(32768)]
        word = scores.index(max(scores))
        found.append(word)
        if word < bound:
            break
    return found


# ---- control flow ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("selector", [0, -1, 1, 7])
@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (4, 0)])
def test_branch_cases_and_joins(routes: Routes, flag: bool, selector: int, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    result = routes("branch-joins").agree({"x": x, "flag": np.array(flag), "selector": np.array(selector)})
    chosen = 2 * x if flag else -x
    expected = {0: chosen * chosen, -1: -chosen}.get(selector, chosen + 10)
    np.testing.assert_array_equal(result["result"], expected)


@pytest.mark.parametrize("outer", [0, 1, 2, 5])
@pytest.mark.parametrize("inner", [0, 1, 3])
@pytest.mark.parametrize("ceiling", [-100, 40, 10_000])
def test_nested_loops_of_any_count(routes: Routes, outer: int, inner: int, ceiling: int) -> None:
    inputs = {"start": ints(2), "outer_limit": ints(outer), "inner_limit": ints(inner), "ceiling": ints(ceiling)}
    result = routes("nested-loops").agree(inputs)
    assert ("trace" in result) == bool(outer and inner)
    assert ("rounds" in result) == bool(outer)


@pytest.mark.parametrize("starts", [[7], [7, 1, 4], [12, 9, 5, 2], [3, 3]], ids=str)
@pytest.mark.parametrize("dead", [(), (0,), (-1,)], ids=str)
def test_rows_that_end_or_never_start(routes: Routes, starts: list[int], dead: tuple[int, ...]) -> None:
    live = np.ones(len(starts), np.bool_)
    live[list(dead)] = False
    batch = routes("ragged-emit").agree({"x": ints(*starts)[:, None], "live": live})
    for row, start in enumerate(starts):
        solo = routes("ragged-emit").agree({"x": ints(start)[:, None], "live": live[row : row + 1]})
        np.testing.assert_array_equal(batch["final"][row : row + 1], solo["final"])
        for output in ("blocks", "latest"):
            wanted = solo.rows(output)[0] if output in solo else None
            got = batch.rows(output)[row] if output in batch else None
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("budget", "turns"), [((4, 4), 4), ((3, 1), 0), ((0, 0), 2), ((5,), 1), ((2, 0, 5), 7)])
def test_growing_and_bounded_cells(routes: Routes, budget: tuple[int, ...], turns: int) -> None:
    x = np.arange(1, len(budget) + 1, dtype=np.float32)[:, None]
    routes("bounded-growing").agree({"x": x, "budget": ints(*budget), "turns": ints(turns)})


def test_a_growing_cell_stops_at_its_bound(model: Models) -> None:
    inputs = {"x": np.ones((1, 1), np.float32), "budget": ints(6), "turns": ints(0)}
    with pytest.raises(ReferenceError, match="above 6"):
        interpret(FIXTURES / "bounded-growing", inputs)
    with pytest.raises(ExecutionError, match="recurrence") as failure:
        model("bounded-growing").run(inputs)
    assert failure.value.origin.endswith(" pipeline.workflow.steps[0]")


def test_inactive_rows_of_a_cell_without_a_request_axis_are_an_error(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "bounded-growing", tmp_path / "package")
    document = read_document(FIXTURES / "bounded-growing")
    del document["pipeline"]["workflow"]["state"]["left"]["contract"]["batch_layout"]
    write_document(tmp_path / "package", document)
    inputs = {"x": np.array([[1.0], [3.0]], np.float32), "budget": ints(3, 1), "turns": ints(0)}
    with pytest.raises(ReferenceError, match="no request axis"):
        interpret(tmp_path / "package", inputs)
    compile_package(tmp_path / "package", out=tmp_path / "compiled")
    with pytest.raises(ExecutionError, match="inactive-rows"):
        genai_runtime.load(tmp_path / "compiled", threads=1).run(inputs)


def test_session_state_lives_from_call_to_call(routes: Routes, model: Models) -> None:
    both = routes("session-counter")

    def call(session: str | None, times: int, start: int = 0) -> genai_runtime.Result:
        return both.agree({"step": ints(2), "times": ints(times), "start": ints(start)}, session=session)

    assert call("a", 2)["count"].tolist() == [4]
    assert call("a", 3, start=100)["count"].tolist() == [10]
    assert call("b", 1, start=7)["count"].tolist() == [9]
    assert call(None, 1)["count"].tolist() == [2]
    assert call("a", 0)["count"].tolist() == [10]
    with pytest.raises(ExecutionError, match="recurrence"):
        model("session-counter").run({"step": ints(2), "times": ints(2), "start": ints(0)}, session="a")
    assert call("a", 1)["count"].tolist() == [12], "a run that failed changes no session"
    model("session-counter").reset("a")
    both.store = {key: value for key, value in both.store.items() if key[0] != "a"}
    assert call("a", 1, start=5)["count"].tolist() == [7]
    for session in ("a", "b"):
        model("session-counter").reset(session)


# ---- decoders --------------------------------------------------------------------------------------------------------


def padded(prompts: list[list[int]]) -> Array:
    """Rows of one width, padded on the right with a token that would matter if it were read."""
    width = max(map(len, prompts))
    return np.array([prompt + [17] * (width - len(prompt)) for prompt in prompts])


@pytest.mark.parametrize("case", DECODERS)
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
@pytest.mark.parametrize("stop_on_eos", [True, False])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_greedy_tokens_equal_the_plain_loop(
    model: Models, case: str, prompt: list[int], stop_on_eos: bool, count: int
) -> None:
    stop = DECODERS[case] if stop_on_eos else ()
    wanted = greedy(FIXTURES / case / "model.onnx", prompt, count, stop)
    inputs = {"request.input_ids": np.array([prompt]), "request.max_iterations": ints(count)}
    result, events = collect(model(case), inputs, stop_on_eos=stop_on_eos)
    got = [row for row in result.rows("tokens") if row is not None] if "tokens" in result else []
    assert [row[0].tolist() for row in got] == ([wanted] if wanted else [])
    assert [token for each in events for token in each.value[0].tolist()] == wanted
    assert len(events) == len(wanted) - result.accepted, "one a token; an accepted draft comes with its block"
    assert [each.step for each in events] == list(range(len(events)))
    text = model(case).generate(prompt, max_new_tokens=count, stop_on_eos=stop_on_eos, temperature=0) if count else None
    assert text is None or text.tokens == wanted


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
@pytest.mark.parametrize("stop_on_eos", [True, False])
def test_the_runtime_policy_equals_the_interpreter(routes: Routes, prompt: list[int], stop_on_eos: bool) -> None:
    inputs = {"request.input_ids": np.array([prompt]), "request.max_iterations": ints(20)}
    routes("tiny-runtime-policy").agree(inputs, stop_on_eos=stop_on_eos)


def test_steps_may_follow_a_loop_that_the_runtime_drives(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "tiny-runtime-policy", tmp_path / "package")
    document = read_document(FIXTURES / "tiny-runtime-policy")
    workflow = document["pipeline"]["workflow"]
    workflow["outputs"]["echo"] = {**workflow["outputs"]["tokens"], "role": "tensor"}
    workflow["steps"] += [emit("request.input_ids", "echo") for _ in range(2)]
    write_document(tmp_path / "package", document)
    compile_package(tmp_path / "package", out=tmp_path / "compiled")
    both = TwoRoutes(genai_runtime.load(tmp_path / "compiled", threads=1), tmp_path / "package")
    result = both.agree({"request.input_ids": np.array([[3, 9]]), "request.max_iterations": ints(3)})
    assert result["echo"].tolist() == [[3, 9]]


@pytest.mark.parametrize("case", DECODERS)
def test_a_row_of_a_batch_gives_the_tokens_of_its_solo_run(model: Models, case: str) -> None:
    batch = model(case).generate(batch=PROMPTS, max_new_tokens=20, temperature=0)
    wanted = [greedy(FIXTURES / case / "model.onnx", prompt, 20, DECODERS[case]) for prompt in PROMPTS]
    assert case == "tiny-concat-v1" or len({*map(len, wanted)}) > 1, "rows should end at different times"
    assert [row.tokens for row in batch.rows] == wanted


@pytest.mark.parametrize("case", DECODERS)
def test_seeded_sampling_of_a_row_does_not_depend_on_its_neighbours(model: Models, case: str) -> None:
    options: dict[str, Any] = {"max_new_tokens": 16, "temperature": 1.3, "top_k": 20}
    batch = model(case).generate(batch=PROMPTS, seed=[7, 8, 9], **options)
    solo = [model(case).generate(prompt, seed=seed, **options) for prompt, seed in zip(PROMPTS, (7, 8, 9), strict=True)]
    assert [row.tokens for row in batch.rows] == [each.tokens for each in solo]


def controls(rows: int) -> dict[str, Array]:
    return {
        "request.temperature": np.full(rows, 1.5, np.float32),
        "request.top_k": np.zeros(rows, np.int64),
        "request.top_p": np.full(rows, 0.9, np.float32),
        "request.min_p": np.zeros(rows, np.float32),
        "request.seed": np.arange(4, 4 + rows),
    }


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
@pytest.mark.parametrize("stop_on_eos", [True, False])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_policy_graphs(routes: Routes, prompt: list[int], stop_on_eos: bool, count: int) -> None:
    inputs = {"request.input_ids": np.array([prompt]), "request.max_iterations": ints(count)}
    result = routes("tiny-decoder").agree(inputs, stop_on_eos=stop_on_eos)
    wanted = greedy(FIXTURES / "tiny-decoder" / "model.onnx", prompt, count, (2,))
    if stop_on_eos and count:
        assert result["tokens"][0].tolist() == wanted


def test_the_prompts_cache_lives_no_longer_than_a_step(
    compiled: Callable[[str], tuple[Path, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell takes over what it starts as; nothing else keeps it, so a request holds one cache and not two."""
    made: list[list[weakref.ref[Any]]] = []
    run_with_values = binding.run_with_values

    def watched(session: Any, origin: str = "") -> Any:
        run = run_with_values(session)

        def call(feed: Any, outputs: list[str], options: None) -> Any:
            values = list(run(feed, outputs, options))
            caches = [each for each, name in zip(values, outputs, strict=True) if "present." in name]
            if caches:
                made.append([weakref.ref(each) for each in caches])
            return values

        return call

    monkeypatch.setattr(binding, "run_with_values", watched)
    model = genai_runtime.load(compiled("tiny-decoder")[0], threads=1)
    events = model.stream({"request.input_ids": np.array([PROMPTS[0]]), "request.max_iterations": ints(5)})
    for _ in range(4):
        next(events)
    assert len(made) >= 4, "the prompt's run and one for each token, perhaps but the last"
    # where a token is published after the pass that follows it, that pass's past is still the current cell
    assert not any(each() is not None for values in made[:-2] for each in values)


def test_policy_graphs_with_rows_of_different_length(routes: Routes) -> None:
    rows = len(PROMPTS)
    inputs = {
        "request.input_ids": padded(PROMPTS),
        "request.max_iterations": ints(20),
        "prompt_lengths": ints(*map(len, PROMPTS)),
        "eos_ids": np.array([[2, 5]] * rows),
        "eos_lengths": np.full(rows, 2),
    }
    result = routes("tiny-decoder").agree({**inputs, **controls(rows), "request.top_k": np.ones(rows, np.int64)})
    wanted = [greedy(FIXTURES / "tiny-decoder" / "model.onnx", prompt, 20, (2, 5)) for prompt in PROMPTS]
    assert [row[0].tolist() for row in result.rows("tokens") if row is not None] == wanted


def test_policy_graphs_sample_a_row_as_they_do_alone(routes: Routes) -> None:
    inputs: dict[str, Array] = {"request.input_ids": np.array([PROMPTS[0]] * 3), **controls(3)}
    limits = {"request.max_iterations": ints(12), "row_max_iterations": ints(12, 5, -1)}
    batch = routes("tiny-decoder").agree({**inputs, **limits})
    for row in range(3):
        alone = {name: value[row : row + 1] for name, value in {**inputs, **limits}.items()}
        solo = routes("tiny-decoder").agree({**alone, "request.max_iterations": ints(12)})
        np.testing.assert_array_equal(batch.rows("tokens")[row], solo["tokens"])
