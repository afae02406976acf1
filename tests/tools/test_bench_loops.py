"""The bench's contestants make the same tokens: each loop against a bare `session.run` loop. Nothing here is timed."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy
from tools.bench.bound_loop import BoundLoop
from tools.bench.compile_cost import compile_once, weight_bytes
from tools.bench.contestant_process import ContestantProcess
from tools.bench.contestants import LOOP, Contestant, Generate, executor
from tools.bench.forms import CHOSEN, distinct_forms, time_forms
from tools.bench.numpy_loop import NumpyLoop
from tools.bench.one_graph import OneGraphLoop
from tools.bench.parts import PARTS, plan
from tools.bench.place import Place, environment_with_home
from tools.bench.policy_loops import PolicyLoop
from tools.bench.rounds import Scenario, opened_apart, prompt_ids, run_scenario
from tools.bench.run_clock import RunClock, Trace, step_times
from tools.bench.step_documents import write_steps
from tools.bench.turn_parts import TURNS, absent, present
from tools.peers.policy_package import write_policy_package

TINY = FIXTURES / "tiny-gqa-v1"
PROMPT, NEW = [1, 10, 20, 30], 16


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture's graph with three policies around it."""
    folder = tmp_path_factory.mktemp("policies") / "package"
    write_policy_package(folder, TINY, 64)
    return folder


@pytest.fixture(scope="module")
def wanted() -> list[int]:
    return greedy(TINY / "model.onnx", PROMPT, NEW)


def bound(package: Path, clock: RunClock) -> BoundLoop:
    return BoundLoop(package, 1, clock)


LOOPS: dict[str, Callable[[Path, RunClock], BoundLoop | NumpyLoop]] = {
    "bound": bound,
    "numpy": lambda package, clock: NumpyLoop(package, 1, clock),
    "policies, bound": lambda package, clock: PolicyLoop(package, 1, clock, bound=True),
    "policies, run": lambda package, clock: PolicyLoop(package, 1, clock, bound=False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_by_hand_make_the_tokens_of_a_bare_loop(name: str, package: Path, wanted: list[int]) -> None:
    loop = LOOPS[name](package, RunClock())
    for _ in range(2):  # buffers are used again
        trace = loop.generate([PROMPT], NEW)
        assert trace.tokens == wanted
    runs = {"policies, bound": 4, "policies, run": 4}.get(name, 1)
    assert set(step_times(trace.calls).runs) == {runs}


def test_rows_of_a_bound_loop_are_those_of_solo_runs(package: Path) -> None:
    prompts = [PROMPT, [5, 6, 7, 8], [9, 3, 9, 3]]
    trace = BoundLoop(package, 1, RunClock()).generate(prompts, NEW)
    solo = [greedy(TINY / "model.onnx", each, NEW) for each in prompts]
    assert trace.tokens == [token for each in solo for token in each]
    assert trace.rows == 3


@pytest.mark.parametrize("new", [1, 2, 7, NEW])
def test_one_graph_makes_the_same_tokens_in_one_run_each(
    package: Path, wanted: list[int], tmp_path: Path, new: int
) -> None:
    loop = OneGraphLoop(package, tmp_path, 1, RunClock())
    for _ in range(2):
        trace = loop.generate([PROMPT], new)
        assert trace.tokens == wanted[:new]
    assert set(step_times(trace.calls).runs) <= {1}


def test_executors_of_both_forms_make_the_same_tokens(package: Path, wanted: list[int], tmp_path: Path) -> None:
    for name, source, kind in (("plain", TINY, "executor"), ("policies", package, "workflow")):
        compile_package(source, tmp_path / name)
        with genai_runtime.load(tmp_path / name, threads=1) as model:
            assert executor(model, RunClock(), kind)([PROMPT], NEW).tokens == wanted
    with genai_runtime.load(tmp_path / "plain", threads=1) as model:
        assert executor(model, RunClock(), "text")([PROMPT], NEW).tokens == wanted


def test_a_scenario_compares_everyone_with_everyone(package: Path, tmp_path: Path) -> None:
    contestants = {name: Contestant(name, name, str(package)) for name in (LOOP, "run-only")}
    opening = partial(opened_apart, contestants, 1, environment_with_home(tmp_path / "home"))
    scenario = Scenario(4, 8, (LOOP, "run-only"), rounds=2)
    found = run_scenario(opening, scenario, [PROMPT])
    assert json.loads(json.dumps(found))["same"] == {
        LOOP: {LOOP: 8, "run-only": 0},
        "run-only": {LOOP: 0, "run-only": 8},
    }
    assert found["compared"] == 8
    assert len(found["rounds"]) == 2
    assert set(found["rounds"][0][LOOP]) == {"ttft", "step", "host", "runs", "rate"}


def test_processes_are_renewed_and_tokens_checked_in_the_first_set_only() -> None:
    """Seven rounds in sets of three: three openings, each with a warm-up of its own."""
    openings: list[list[tuple[int, int]]] = []

    @contextmanager
    def opening(names: Sequence[str]) -> Iterator[dict[str, Generate]]:
        asked: list[tuple[int, int]] = []
        openings.append(asked)

        def generate(rows: Sequence[list[int]], new: int) -> Trace:
            asked.append((len(rows[0]), new))
            return Trace([len(openings)] * new, 1.0, 2.0)

        yield dict.fromkeys(names, generate)

    found = run_scenario(opening, Scenario(80, 4, ("only",), rounds=7, check=20, renew=3), [[5] * 80])
    timed = [(80, 4)] * 3
    assert openings == [[(80, 20), *timed], [(64, 4), *timed], [(64, 4), (80, 4)]]
    assert (found["compared"], len(found["rounds"])) == (20, 7)


def test_rows_of_a_prompt_begin_apart_and_are_equally_long() -> None:
    rows = prompt_ids(TINY / "tokenizer.json", 50, 3)
    assert [len(each) for each in rows] == [50, 50, 50]
    assert rows[1][:13] == rows[0][37:]


# ---- peers in processes of their own ---------------------------------------------------------------------------------

ECHO = """
import json, sys
print(json.dumps({"ready": True, "versions": {}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["new"] > 100: sys.exit("too many")
    made = [token + 1 for token in asked["rows"][0]][: asked["new"]]
    print(json.dumps({"tokens": made, "ttft": 0.5, "seconds": 2.0, "steps": [0.25, 0.5, 0.75]}), flush=True)
"""


def test_a_peer_answers_in_its_turn_and_its_own_times_count() -> None:
    peer = ContestantProcess([sys.executable, "-c", ECHO])
    for prompt in ([1, 2, 3], [7, 8, 9]):
        trace = peer.generate([prompt], 2)
        assert trace.tokens == [prompt[0] + 1, prompt[1] + 1]
        assert trace.measured() == {"ttft": 0.5, "step": 0.5, "rate": 1 / 1.5}
    peer.close()


@pytest.mark.parametrize("new", [0, 101])
def test_last_words_of_a_peer_that_ends_are_shown(new: int) -> None:
    if not new:
        with pytest.raises(RuntimeError, match="no model here"):
            ContestantProcess([sys.executable, "-c", "import sys; sys.exit('no model here')"])
        return
    peer = ContestantProcess([sys.executable, "-c", ECHO])
    with pytest.raises(RuntimeError, match="too many"):
        peer.generate([[1]], new)


def place_in(folder: Path) -> Place:
    return Place(folder / "own", folder / "peers", folder, environment_with_home(folder / "home"))


def test_absent_peers_and_packages_are_named_with_a_way_to_have_them(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    told = plan(["decode-int4", "steps"], place)
    assert "optimum does not take part. To have it: make bench-peers" in told
    assert "llama does not take part" in told
    assert "left out: int4. To have them: make bench-packages" in told
    assert f"{PARTS['decode-int4'].seconds + PARTS['steps'].seconds} s, on a quiet machine" in told
    scenario = TURNS["decode-int4"].scenarios[0]
    assert {"optimum", "llama"} <= set(absent(place, [scenario]))
    assert not {"optimum", "llama"} & set(present(place, scenario).names)
    assert "loop" in present(place, scenario).names


# ---- forms and costs -------------------------------------------------------------------------------------------------


def test_forms_that_are_one_program_are_timed_once(tmp_path: Path) -> None:
    assert list(distinct_forms(TINY, tmp_path / "tiny")) == [CHOSEN]
    forms = distinct_forms(FIXTURES / "nested-loops", tmp_path / "nested")
    assert list(forms) == [CHOSEN, "without fuse_islands"]
    found = time_forms("nested-loops", forms, rounds=2)
    assert [set(each) for each in found["rounds"]] == [{CHOSEN, "without fuse_islands", "chosen-again"}] * 2


def test_a_made_package_of_steps_computes_what_its_steps_say(tmp_path: Path) -> None:
    """Shift and scale in turn, and every tenth step a branch whose flag says: scale."""
    write_steps(tmp_path / "steps", 23)
    compile_package(tmp_path / "steps", tmp_path / "compiled")
    with genai_runtime.load(tmp_path / "compiled", threads=1) as model:
        made = model.run({"x": np.array([[1.0, -2.0]], np.float32)})["result"]
    expected = np.array([[1.0, -2.0]])
    for number in range(23):
        expected = expected * 2 if number % 2 or number % 10 == 9 else expected + 1
    np.testing.assert_array_equal(made, expected.astype(np.float32))


def test_a_compilation_says_what_it_cost(tmp_path: Path) -> None:
    found = compile_once(TINY, tmp_path / "compiled", environment_with_home(tmp_path / "home"))
    assert set(found) == {"seconds", "processor", "peak"}
    assert (tmp_path / "compiled" / "manifest.json").exists()
    with pytest.raises(RuntimeError, match="ended with 2"):
        compile_once(tmp_path, tmp_path / "none", environment_with_home(tmp_path / "home"))
    sizes: Sequence[int] = [file.stat().st_size for file in TINY.glob("*.onnx")]
    assert weight_bytes(TINY) == sum(sizes)
