"""The shorter way of one row through a loop whose runs keep their results' extents: it gives what the plain way gives.

The other routes: the interpreter of documents, a bare ONNX Runtime loop, and the same package compiled without
`keep_results`, which has no such way.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import Options, compile_package
from genai_runtime import ExecutionError, binding
from genai_runtime.publish import Publisher
from genai_runtime.settled import SETTLED
from genai_runtime.steady import WORTH_BINDING, put_off
from genai_runtime.values import to_value

from tests.conftest import FIXTURES
from tests.held_packages import HEAD, KV_HEADS
from tests.reference.plain_loop import greedy
from tests.reference.values import Array
from tests.runtime.failing import failing_after
from tests.settled_packages import EDGE, SCRIPT, Inputs, attended, played, widening
from tests.test_generated_code import check_module
from tests.two_routes import TwoRoutes

CASE, CONTEXT = "tiny-turns", 64
STEPS = SETTLED + 9
Both = tuple[Path, genai_runtime.Model, genai_runtime.Model]


def two_forms(package: Path, out: Path) -> Both:
    """(the package, its model, its model without the shorter way)."""
    made = compile_package(package, out / "whole")
    assert "if step == SETTLED" in made.executor
    check_module(made.executor)
    assert "SETTLED" not in compile_package(package, out / "plain", Options(without=("keep_results",))).executor
    return package, *(genai_runtime.load(out / name, threads=1) for name in ("whole", "plain"))


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    made: dict[str, Both] = {}

    def get(name: str) -> Both:
        if name not in made:
            folder = tmp_path_factory.mktemp("settled")
            make = {"played": played, "predicate": lambda each: played(each, "predicate"), "attended": attended}
            make["attended first"] = lambda each: attended(each, True)
            make["sums"] = lambda each: attended(each, total="sum")
            make["first sums"] = lambda each: attended(each, True, "sum")
            package = FIXTURES / CASE if name == CASE else make[name](folder / name / "package")
            made[name] = two_forms(package, folder)
        return made[name]

    return get


Forms = Callable[[str], Both]


def outcome(model: genai_runtime.Model, inputs: Inputs, **options: Any) -> tuple[list[Any], str, str]:
    """What a run published, event by event, and the code and the place that it failed with."""
    events: list[Any] = []
    try:
        for each in model.stream(inputs, **options):
            events.append((each.output, each.row, each.step, str(each.value.dtype), each.value.tolist()))
    except ExecutionError as failure:
        return events, failure.code, failure.origin.partition(" (component")[0]
    return events, "", ""


def same(both: Both, inputs: Inputs, **options: Any) -> tuple[list[Any], str]:
    mine, wanted = (outcome(model, inputs, **options) for model in both[1:])
    assert mine == wanted
    if not mine[1]:
        TwoRoutes(both[1], both[0]).agree(inputs, **options)
    return mine[:2]


# ---- what is published -----------------------------------------------------------------------------------------------


def any_play(seed: int) -> Inputs:
    draw = np.random.default_rng(seed)
    rows, steps = int(draw.choice([1, 1, 1, 3])), int(draw.integers(1, STEPS + 6))
    chances = {"lengths": draw.choice([1.0, 0.8]), "shows": draw.choice([1.0, 0.7]), "goes": draw.choice([1.0, 0.93])}
    tables = {name: (draw.random((rows, steps)) < chance).astype(np.int64) for name, chance in chances.items()}
    if draw.random() < 0.1:
        tables["lengths"][0, -1] = draw.choice([2, -1])
    turns = steps + int(draw.random() < 0.1)
    return {"tokens": draw.integers(-9, 9, (rows, steps)), **tables, "turns": np.array([turns])}


@pytest.mark.parametrize("name", ["played", "predicate"])
@pytest.mark.parametrize("heed", [True, False])
def test_any_script_is_published_alike(forms: Forms, name: str, heed: bool) -> None:
    """Empty prefixes, guards, rows that end, prefixes that do not fit, and a run that fails behind the script's end."""
    found = [same(forms(name), any_play(seed), stop_on_eos=heed) for seed in range(80)]
    assert {"", "emit-length", "step-failed"} <= {code for _, code in found}
    assert any(len(events) > 2 * SETTLED for events, _ in found)


@pytest.mark.parametrize("turns", [0, 1, SETTLED, SETTLED + 1, SETTLED + 2, SETTLED + 3])
def test_any_number_of_iterations(forms: Forms, turns: int) -> None:
    script = {name: np.ones((1, STEPS), np.int64) for name in SCRIPT}
    events, code = same(forms("played"), {**script, "turns": np.array([turns])})
    assert ([each[4][0][0] for each in events if each[0] == "trace"], code) == ([*range(1, turns + 1)], "")


def test_nothing_is_published_of_a_row_whose_prefixes_are_all_empty(forms: Forms) -> None:
    """An empty value is not the same as none."""
    script = {name: np.ones((1, STEPS), np.int64) for name in SCRIPT}
    script["lengths"][:] = 0
    inputs = {**script, "turns": np.array([STEPS])}
    same(forms("played"), inputs)
    assert forms("played")[1].run(inputs)["trace"].shape == (1, 0)
    script["shows"][:] = 0
    assert [each[0] for each in same(forms("played"), inputs)[0]].count("trace") == 1


@pytest.mark.parametrize(("agreed", "code"), [(False, "recurrence"), (True, "symbol-conflict")])
def test_results_that_change_their_extents_are_refused_as_ever(tmp_path: Path, agreed: bool, code: str) -> None:
    """A cell's law, and a symbol of the contract, are what says that they do not: whenever it is, they say it."""
    both = two_forms(widening(tmp_path / "package", agreed), tmp_path)
    for when in (1, SETTLED, SETTLED + 1, SETTLED + 2, STEPS - 1, STEPS):
        inputs = {"when": np.array([when]), "turns": np.array([STEPS]), "start": np.zeros((1, 2), np.int64)}
        events, found = same(both, inputs)
        assert found == ("" if when == STEPS else code)
        assert len(events) >= when - 1
        said = set[str]()
        for model in both[1:]:
            try:
                model.run(inputs)
            except ExecutionError as failure:
                said.add(str(failure))
        assert len(said) == (when < STEPS), said


def test_a_run_in_place_that_changes_its_extents_is_refused_as_ever(tmp_path: Path) -> None:
    """It is repeated with results of its own, and writes once more what it has written in place."""
    both = two_forms(attended(tmp_path / "package", wide=True), tmp_path)
    masks = np.zeros((STEPS, 1, STEPS + 3), np.int64)
    for step in range(STEPS):
        masks[step, 0, : step + 3] = 1
    caches = {part: np.ones((1, KV_HEADS, STEPS + 3, HEAD), np.float32) for part in "kv"}
    for part in caches.values():
        part[:, :, 2:] = 0
    for when in (1, SETTLED, SETTLED + 1, SETTLED + 2, STEPS):
        tokens = np.arange(STEPS).reshape(-1, 1, 1) % 30
        tokens[when:] = EDGE
        inputs = {"tokens": tokens, "masks": masks, "goes": np.ones((STEPS, 1), np.int64), **caches}
        inputs |= {"most": np.array([STEPS + 3]), "turns": np.array([STEPS]), "start": np.zeros((1, 2), np.int64)}
        assert same(both, inputs)[1] == ("" if when == STEPS else "recurrence")


# ---- cells in place --------------------------------------------------------------------------------------------------


def any_masks(seed: int) -> Inputs:
    """Valid entries that grow by one, jump, fall back, have gaps, or exceed what is there."""
    draw = np.random.default_rng(seed)
    rows, extent = int(draw.choice([1, 1, 2])), int(draw.integers(6, 30))
    masks, valid = np.zeros((STEPS, rows, extent), np.int64), draw.integers(1, 4, rows)
    for step in range(STEPS):
        odd = draw.random()
        valid = valid + 1 if odd < 0.7 else draw.integers(1, extent + 1, rows)
        valid = np.minimum(valid, extent)
        for row in range(rows):
            places = np.arange(valid[row]) if odd < 0.9 else draw.permutation(extent)[: valid[row]]
            masks[step, row, places] = 1
            if odd > 0.99:
                masks[step, row, places[0]] = 2
    caches = {part: draw.standard_normal((rows, KV_HEADS, extent, HEAD)).astype(np.float32) for part in "kv"}
    for row in range(rows):
        for each in caches.values():
            each[row, :, masks[0, row].sum() - 1 :] = 0
    goes = (draw.random((STEPS, rows)) < 0.98).astype(np.int64)
    tokens = draw.integers(0, 32, (STEPS, rows, 1))
    if draw.random() < 0.3:
        goes[-1] = 0  # else the script ends before the loop does
    most, turns = extent + int(draw.choice([0, 3])), STEPS + int(draw.choice([0, 0, 1, 3]))
    bounds = {"most": np.array([most]), "turns": np.array([turns])}
    return {"tokens": tokens, "masks": masks, "goes": goes, **bounds, **caches}


@pytest.mark.parametrize("name", ["attended", "attended first", "sums", "first sums"])
def test_any_masks_give_what_cells_of_their_own_give(forms: Forms, name: str) -> None:
    """What a row skips is zero, and lengths beyond the cells are refused, as for cells that are made anew.

    Where the total length is a sum, a mask may ask for cells one longer, up to their bound. Where the script is too
    short, its own step fails, at its own iteration, and only if that one comes.
    """
    found = [same(forms(name), any_masks(seed)) for seed in range(80)]
    assert {code for _, code in found} == {"", "step-failed"} | ({"recurrence"} if "sums" in name else set())
    ends = [code for events, code in found if len(events) >= STEPS]
    assert min(ends.count(""), ends.count("step-failed")) > 5


def test_the_value_that_is_wrong_is_named_as_it_was(forms: Forms) -> None:
    """The iteration that the script lacks."""
    _, shorter, plain = forms("attended first")
    inputs = next(each for each in map(any_masks, range(80)) if each["k"].shape[0] == 1)
    inputs |= {"goes": np.ones_like(inputs["goes"]), "turns": np.array([STEPS + 3])}
    inputs["masks"][:] = inputs["masks"][:1]
    for model in (shorter, plain):
        with pytest.raises(ExecutionError, match=f"idx={STEPS} must be within"):
            model.run(inputs)


# ---- a decoder -------------------------------------------------------------------------------------------------------

PROMPTS = [[1, 10, 20, 30], [5, 6, 7, 8], [3, 40, 41, 42]]
ROWS = [[1], [5], [3], [40]]
"""Prompts that go into one batch: the operator takes longer ones alone, beside a past."""
END = 11


def request(prompts: list[list[int]], count: int, **more: Array) -> Inputs:
    return {"request.input_ids": np.array(prompts), "request.max_iterations": np.array([count]), **more}


@pytest.mark.parametrize("count", [0, 1, 2, SETTLED + 2, 40])
@pytest.mark.parametrize("end", [-1, END])
@pytest.mark.parametrize("prompts", [ROWS, *([each] for each in PROMPTS)], ids=str)
def test_rows_equal_the_plain_loop(forms: Forms, prompts: list[list[int]], count: int, end: int) -> None:
    wanted = [greedy(FIXTURES / CASE / "model.onnx", prompt, count, (end,)) for prompt in prompts]
    events, code = same(forms(CASE), request(prompts, count, eos=np.array([end])))
    assert ([[each[4][0][0] for each in events if each[1] == row] for row in range(len(prompts))], code) == (wanted, "")
    assert end < 0 or count < 40 or len(prompts) < 3 or len({*map(len, wanted)}) > 1, "rows end at different times"


def test_an_end_that_is_not_heeded(forms: Forms) -> None:
    for prompts in (ROWS, PROMPTS[:1]):
        same(forms(CASE), request(prompts, 30, eos=np.array([END])), stop_on_eos=False)


def test_listeners_hear_all_and_others_get_all(forms: Forms, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation that is drained makes no event of a token once the loop has settled."""
    seen, make = list[int](), Publisher.only_token
    monkeypatch.setattr(Publisher, "only_token", lambda *given: (seen.append(given[2]), make(*given))[1])
    _, model, _ = forms(CASE)
    wanted = greedy(FIXTURES / CASE / "model.onnx", PROMPTS[0], 30, ())
    drained = model.generate(PROMPTS[0], max_new_tokens=30)
    assert (drained.tokens, seen) == (wanted, [])
    read = model.generate(PROMPTS[0], max_new_tokens=30)
    text = "".join(read)
    assert (read.tokens, text, seen) == (wanted, drained.text, wanted[SETTLED + 1 :])
    halfway = model.generate(PROMPTS[0], max_new_tokens=30)
    for _ in range(SETTLED + 4):
        halfway._step()
    assert halfway.tokens == wanted


@pytest.mark.parametrize("quiet", [True, False])
def test_a_generation_that_is_cancelled_leaves_nothing_behind(forms: Forms, quiet: bool) -> None:
    _, model, _ = forms(CASE)
    wanted = greedy(FIXTURES / CASE / "model.onnx", PROMPTS[0], 40, ())
    generation, runs = model.generate(PROMPTS[0], max_new_tokens=40), [0]
    run, held = binding.run_bound, 2 * (SETTLED + 5)

    def cancelling(session: Any, origin: str = "") -> Callable[..., None]:
        real = run(session, origin)

        def counted(*given: Any) -> None:
            runs[0] += 1
            if runs[0] == held:
                generation.cancel()
            real(*given)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "run_bound", cancelling)
        rows = list(generation.pieces()) if not quiet else generation.tokens
    assert rows
    assert generation.finish_reason == "cancelled"
    assert SETTLED < len(generation.tokens) < 40
    assert generation.tokens == wanted[: len(generation.tokens)]
    assert model.generate(PROMPTS[0], max_new_tokens=40).tokens == wanted


@pytest.mark.parametrize(
    ("without", "runs"),
    [((), 2 * SETTLED + 5), (("use_numbers",), 2 * SETTLED + 5), (("use_numbers",), 2 * SETTLED + 6)],
)
def test_a_failure_behind_that_point_keeps_what_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...], runs: int
) -> None:
    """Either run may fail: that of cells in place at once, the other when its session fails a second time."""
    compile_package(FIXTURES / CASE, tmp_path / "out", Options(without=without))
    model = genai_runtime.load(tmp_path / "out", threads=1)
    monkeypatch.setattr(binding, "run_bound", failing_after(runs, lambda: RuntimeError("enough")))
    generation = model.generate(PROMPTS[0], max_new_tokens=40)
    with pytest.raises(ExecutionError, match="enough") as raised:
        generation.tokens  # noqa: B018
    assert raised.value.code == "step-failed"
    (row,) = generation.partial
    assert row.tokens == greedy(FIXTURES / CASE / "model.onnx", PROMPTS[0], len(row.tokens), ())
    assert len(row.tokens) > SETTLED


def test_two_threads_and_two_streams_of_one_model(forms: Forms) -> None:
    _, model, _ = forms(CASE)
    wanted = [greedy(FIXTURES / CASE / "model.onnx", prompt, 40, ()) for prompt in PROMPTS]
    with ThreadPoolExecutor(3) as pool:
        made = pool.map(lambda prompt: [model.generate(prompt, max_new_tokens=40).tokens for _ in range(5)], PROMPTS)
        assert list(made) == [[row] * 5 for row in wanted]
    streams = [model.stream(request([prompt], 40)) for prompt in PROMPTS]
    turns = [[next(each).value.item() for each in streams] for _ in range(40)]
    assert [list(row) for row in zip(*turns, strict=True)] == wanted


def test_a_profile_sees_every_run(tmp_path: Path) -> None:
    compile_package(FIXTURES / CASE, tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1, timings=True) as model:
        assert len(model.generate(PROMPTS[0], max_new_tokens=30).tokens) == 30
        assert model.timings is not None
        names = [each.name for each in model.timings.spans]
        runs = names.count("island_1"), names.count("model_linked")
        assert runs == (SETTLED + 1, 30), "the light one until Python computes it"


@pytest.mark.parametrize("count", [WORTH_BINDING - 1, WORTH_BINDING, WORTH_BINDING + 1])
def test_a_loop_that_is_allowed_few_iterations_binds_nothing(forms: Forms, count: int) -> None:
    """What was bound would have cost more than it saved."""
    _, model, _ = forms(CASE)
    made, make = list[int](), binding.new_bindings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "new_bindings", lambda session: (made.append(1), make(session))[1])
        assert model.generate(PROMPTS[0], max_new_tokens=count).tokens == greedy(
            FIXTURES / CASE / "model.onnx", PROMPTS[0], count, ()
        )
    held = 3  # of the cells in place: none yet, and two sets
    assert len(made) == held + (2 if count >= WORTH_BINDING else 0)


@pytest.mark.parametrize("read", [(), (1,), (0,), (0, 1)])
def test_a_result_that_the_iteration_still_reads_is_told_of_at_once(read: tuple[int, ...]) -> None:
    """Result 0 has other extents: its place keeps an earlier value, which nothing may go on with."""
    kept = [to_value(np.array([7])), to_value(np.array([1]))]
    made = [to_value(np.array([8, 9])), to_value(np.array([2]))]

    def law(*_: Any) -> object:
        raise ExecutionError("recurrence", "it grew")

    asked = kept, lambda: made, (law, None), RuntimeError("shape"), "steps[0]", read
    if 0 in read:
        with pytest.raises(ExecutionError, match="it grew"):
            put_off(*asked)
        return
    assert "it grew" in str(put_off(*asked))
    assert [each.numpy().tolist() for each in kept] == [[7], [2]]
