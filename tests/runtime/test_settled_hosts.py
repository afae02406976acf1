"""One row that has settled in a loop with a step that numpy does: it gives what the plain way and plain sessions give.

`searched`: the scores of a row come from a script by iteration; their largest place is published, and ends the row when
it is the first one. A NaN among the scores is the session's matter, in a settled loop as before.
"""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import Options, compile_package
from genai_runtime import ExecutionError
from genai_runtime.host_run import HostBank
from genai_runtime.settled import SETTLED
from genai_runtime.steady import WORTH_BINDING
from genai_runtime.values import to_array, to_value

from tests.held_packages import CAPABILITIES, FLAGS, ONE, ROWS
from tests.reference.values import Array
from tests.runtime.test_host_run import bench, sampler, search
from tests.test_generated_code import check_module
from tests.two_routes import TwoRoutes
from tools.fixtures.document import application, cell, emit, invoke, literal, loop, onnx, output, package, tensor
from tools.fixtures.document import write_document as write
from tools.fixtures.graph import Sketch

WORDS, STEPS = 7, SETTLED + 9
SLOT, SCORES = tensor("int64", "batch", 1, rows=True), tensor("float32", "batch", WORDS, rows=True)
SCRIPT = tensor("float32", "batch", "steps", WORDS, rows=True)
HOST = Options(forms={"greedy": "host"})


def searched(folder: Path) -> Path:
    folder.mkdir(parents=True)
    scores, greedy, ended = Sketch("scores"), Sketch("greedy"), Sketch("ended")
    script, at = scores.input("script", "float32", "batch", "steps", WORDS), scores.input("at", "int64", 1)
    last = scores.input("last", "int64", "batch")
    found = scores.op.Squeeze(scores.op.Gather(script, at, axis=1), [1])
    weight = scores.op.Cast(scores.op.Unsqueeze(last, [1]), to=1)
    scores.output(scores.op.Sub(found, scores.op.Mul(weight, 0.0)), "scores", "float32", "batch", WORDS)
    given, live = greedy.input("scores", "float32", "batch", WORDS), greedy.input("live", "bool", "batch")
    best = greedy.op.ArgMax(given, axis=-1, keepdims=0)
    greedy.output(greedy.op.Where(live, best, -1), "word", "int64", "batch")
    word = ended.input("word", "int64", "batch")
    ended.output(ended.op.Greater(word, 0), "live", "bool", "batch")
    ended.output(ended.op.Unsqueeze(word, [1]), "slot", "int64", "batch", 1)
    for sketch in (scores, greedy, ended):
        sketch.save(folder / f"{sketch.name}.onnx")
    components = {
        "scores": onnx("scores.onnx", {"script": SCRIPT, "at": ONE, "last": ROWS}, {"scores": SCORES}),
        "greedy": onnx("greedy.onnx", {"scores": SCORES, "live": FLAGS}, {"word": ROWS}),
        "ended": onnx("ended.onnx", {"word": ROWS}, {"live": FLAGS, "slot": SLOT}),
    }
    inputs = {"script": application(SCRIPT, "script"), "turns": application(ONE, "turns")}
    inputs |= {"yes": literal(FLAGS, True), "none": literal(ROWS, 0)}
    state = {"last": cell(ROWS, "none"), "live": cell(FLAGS, "yes")}
    body = [
        invoke("scores", {"script": "script", "at": "at", "last": "last"}, {"scores": "scores"}),
        invoke("greedy", {"scores": "scores", "live": "live"}, {"word": "word"}),
        invoke("ended", {"word": "word"}, {"live": "goes", "slot": "slot"}),
        emit("slot", "words", "append", when="live", axis=1),
    ]
    counted = {"value": "at", "contract": ONE}
    main = loop(body, "live", "turns", {"last": "word", "live": "goes"}, iteration=counted)
    outputs = {"words": output(tensor("int64", "batch", "many", rows=True))}
    capabilities = [*CAPABILITIES[:4], "loop_induction_values"]
    write(folder, package(capabilities, inputs, outputs, components, [main], state=state))
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, genai_runtime.Model, genai_runtime.Model]:
    """(the package, its model, the one without the shorter way)."""
    folder = tmp_path_factory.mktemp("hosts")
    root = searched(folder / "package")
    made = compile_package(root, folder / "whole", HOST)
    assert "settled((steady_scores, ()), (steady_greedy, ())" in made.executor
    check_module(made.executor)
    plain = compile_package(root, folder / "plain", Options(forms=HOST.forms, without=("keep_results",)))
    assert "SETTLED" not in plain.executor
    return root, *(genai_runtime.load(folder / name, threads=1) for name in ("whole", "plain"))


Both = tuple[Path, genai_runtime.Model, genai_runtime.Model]


def any_script(seed: int) -> dict[str, Array]:
    """Scores with ties, infinities and now and then a NaN; a row ends some time, or never."""
    draw = np.random.default_rng(seed)
    rows, steps = int(draw.choice([1, 1, 1, 3])), int(draw.integers(1, STEPS + 6))
    scores = draw.integers(-3, 4, (rows, steps, WORDS)).astype(np.float32)
    scores[:, :, 0] = np.where(draw.random((rows, steps)) < 0.05, 9, -9)
    scores[draw.random(scores.shape) < 0.05] = -np.inf
    if draw.random() < 0.5:
        scores[draw.random(scores.shape) < 0.02] = np.nan
    return {"script": scores, "turns": np.array([steps + int(draw.random() < 0.1)])}


def by_sessions(root: Path, script: Array, turns: int) -> list[list[int]]:
    """The loop by hand, one plain session for the search."""
    session = ort.InferenceSession(str(root / "greedy.onnx"), providers=["CPUExecutionProvider"])
    live, found = np.ones(len(script), np.bool_), [list[int]() for _ in script]
    for at in range(min(turns, script.shape[1])):
        (words,) = session.run(None, {"scores": script[:, at], "live": live})
        for row in np.flatnonzero(live):
            found[row].append(int(words[row]))
        live &= words > 0
    return found


def test_any_script_gives_what_plain_sessions_give(both: Both) -> None:
    root, *models = both
    long = nan = 0
    for seed in range(150):
        inputs = any_script(seed)
        wanted = by_sessions(root, inputs["script"], inputs["turns"].item())
        if max(map(len, wanted)) == inputs["script"].shape[1] < inputs["turns"].item():
            continue  # the script ends before the loop: below
        for model in models:
            assert [each.reshape(-1).tolist() for each in model.run(inputs).rows("words")] == wanted, seed
        TwoRoutes(models[0], root).agree(inputs)
        long += len(wanted) == 1 and len(wanted[0]) > 2 * SETTLED
        nan += bool(np.isnan(inputs["script"][:, SETTLED + 1 : len(wanted[0])]).any())
    assert min(long, nan) > 10


def test_a_script_that_ends_too_soon_is_told_alike(both: Both) -> None:
    script = np.tile(np.arange(WORDS, dtype=np.float32), (1, STEPS, 1))
    said = set[str]()
    for model in both[1:]:
        with pytest.raises(ExecutionError, match=f"idx={STEPS} must be within") as failure:
            model.run({"script": script, "turns": np.array([STEPS + 3])})
        said.add(str(failure.value))
    assert len(said) == 1


def test_a_settled_search_allocates_no_result(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set's results are made once, and no session is opened for the search."""
    made, keep = list[int](), HostBank.keep
    monkeypatch.setattr(HostBank, "keep", lambda bank: (made.append(1), keep(bank))[1])
    script = np.tile(np.arange(WORDS, dtype=np.float32), (1, 40, 1))
    compile_package(both[0], both[0].parent / "again", HOST)
    with genai_runtime.load(both[0].parent / "again", threads=1, timings=True) as model:
        assert model.run({"script": script, "turns": np.array([40])})["words"].tolist() == [[WORDS - 1] * 40]
        assert model.timings is not None
        spans = [(each.kind, each.name) for each in model.timings.spans]
        assert (len(made), spans.count(("host", "greedy"))) == (2, 40)
        assert ("session run", "greedy") not in spans


# ---- one search ------------------------------------------------------------------------------------------------------


def test_results_take_turns(tmp_path: Path) -> None:
    made = bench(tmp_path, *search())
    steady = made.runner.steady(WORTH_BINDING)
    scores = [to_value(np.eye(4, dtype=np.float32)[[place]]) for place in range(4)]
    found = [steady(each)[0] for each in scores]
    assert (found[0] is found[2], found[1] is found[3], found[0] is found[1]) == (True, True, False)
    assert [to_array(each).tolist() for each in found[2:]] == [[2], [3]]
    assert [len(each.made) for each in steady.sets()] == [1, 1]
    assert not made.opened


def test_a_loop_that_is_too_short_keeps_nothing(tmp_path: Path) -> None:
    made = bench(tmp_path, *search())
    steady = made.runner.steady(WORTH_BINDING - 1)
    first, second, third = (steady(to_value(np.ones((1, 4), np.float32)))[0] for _ in range(3))
    assert first is not third is not second
    assert steady.sets() == ()


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_what_numpy_leaves_to_the_session_is_written_in_its_place(tmp_path: Path, count: int) -> None:
    made = bench(tmp_path, *search())
    steady = made.runner.steady(WORTH_BINDING)
    for at in range(count):
        array = np.array([[0, 3, 1, 9]], np.float32) * (1 if at < count - 1 else np.nan)
        (found,) = steady(to_value(array))
        (wanted,) = made.plain.run(None, {"scores": array})
        assert to_array(found).tolist() == wanted.tolist()
    assert made.opened


def test_other_extents_are_results_of_their_own(tmp_path: Path) -> None:
    """They were promised not to change; where they do, all is as it is without."""
    made = bench(tmp_path, *search())
    steady = made.runner.steady(WORTH_BINDING)
    for rows in (1, 1, 1, 2, 3, 1):
        (found,) = steady(to_value(np.tile(np.array([[0, 3, 1]], np.float32), (rows, 1))))
        assert to_array(found).tolist() == [1] * rows
    assert steady.sets() == ()


def test_what_is_wrong_is_said_by_the_session_every_time(tmp_path: Path) -> None:
    made = bench(tmp_path, *sampler())
    steady = made.runner.steady(WORTH_BINDING)
    wrong: list[Any] = [np.ones((2, 6), np.float32), np.ones(2, np.bool_), np.zeros(2, np.bool_), np.zeros(2, np.int64)]
    for _ in range(3):
        with pytest.raises(ExecutionError) as failure:
            steady(*map(to_value, wrong))
        assert (failure.value.code, failure.value.origin) == ("step-failed", "steps[0] (component 'policy')")
