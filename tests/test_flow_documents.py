"""Shapes of control flow that no fixture has: each is compiled, run, and held against the reference interpreter."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package

from tests.flow_packages import FLAG, ONE, SCALAR, add, below, flow_package, session_cell, traced
from tests.reference.values import ReferenceError
from tests.two_routes import TwoRoutes
from tools.fixtures.document import Document, branch, cell, emit, invoke, loop, sequence, tensor

Made = Callable[..., TwoRoutes]
GROWS = tensor("int64", "length")
STEADY = {"a": 3, "b": 5, "n": 4, "m": 2}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Write a package, compile it, load it."""

    def make(steps: Sequence[Document], state: Mapping[str, Document] | None = None, **workflow: Document) -> TwoRoutes:
        package = flow_package(tmp_path / "package", steps, state, **workflow)
        compile_package(package, out=tmp_path / "compiled")
        return TwoRoutes(genai_runtime.load(tmp_path / "compiled", threads=1), package)

    return make


def run(routes: TwoRoutes, session: str | None = None, **values: int) -> genai_runtime.Result:
    return routes.agree({name: np.array([value]) for name, value in {**STEADY, **values}.items()}, session=session)


def counted(steps: Sequence[Document], carried: Mapping[str, str], times: str = "n") -> Document:
    return loop(steps, "package.true", times, carried)


def test_a_guard_on_an_output_without_rows_is_refused(made: Made) -> None:
    with pytest.raises(CompileError, match="no request axis"):
        made([below("a", "b", "less"), emit("a", "out", when="less")])


def test_a_cell_that_nothing_reads(made: Made) -> None:
    """It is released behind its loop all the same."""
    body = [add("a", "b", "sum"), emit("sum", "trace", "append", axis=0)]
    routes = made([counted(body, {"idle": "idle"}), emit("a", "out")], {"idle": cell(ONE, "m")})
    assert run(routes)["trace"].tolist() == [8] * 4


def test_cells_change_all_at_once(made: Made) -> None:
    steps = [counted([traced("x")], {"x": "y", "y": "x"}), emit("x", "out")]
    routes = made(steps, {"x": cell(ONE, "a"), "y": cell(ONE, "b")})
    assert run(routes)["trace"].tolist() == [3, 5, 3, 5]
    assert run(routes, n=3)["out"].tolist() == [5]


def test_two_cells_may_become_one_value_and_one_may_stay(made: Made) -> None:
    body = [add("x", "kept", "grown"), traced("grown")]
    steps = [counted(body, {"x": "grown", "y": "grown", "kept": "kept"}), emit("y", "out")]
    routes = made(steps, {"x": cell(ONE, "a"), "y": cell(ONE, "b"), "kept": cell(ONE, "m")})
    assert run(routes)["trace"].tolist() == [5, 7, 9, 11]
    assert run(routes, n=0)["out"].tolist() == [5]


def test_a_cell_may_become_a_value_from_outside_the_loop(made: Made) -> None:
    routes = made([counted([traced("x")], {"x": "b"}), emit("x", "out"), emit("b", "out")], {"x": cell(ONE, "a")})
    assert run(routes)["trace"].tolist() == [3, 5, 5, 5]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_sibling_regions_may_use_a_name_twice(made: Made, n: int) -> None:
    twice = [loop([add("x", "b", "t"), traced("t")], "package.true", times, {"x": "t"}) for times in ("n", "m")]
    inner = branch(
        "less", {"true": sequence(*[twice[0], emit("x", "out")]), "false": sequence(*[twice[1], emit("x", "out")])}
    )
    routes = made([below("a", "b", "less"), inner], {"x": cell(ONE, "a")})
    run(routes, n=n)
    run(routes, n=n, a=9)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_loops_in_branches_in_loops(made: Made, n: int) -> None:
    inner = loop([add("x", "a", "x.next"), traced("x.next")], "package.true", "m", {"x": "x.next"})
    cases = {
        "true": sequence(inner, traced("total")),
        "false": sequence(add("total", "b", "other"), traced("other")),
    }
    body = [
        below("total", "limit", "less"),
        branch("less", cases, outputs={"joined": {"cases": {"true": "x", "false": "other"}}}),
        add("joined", "a", "total.next"),
    ]
    steps = [add("a", "b", "limit"), counted(body, {"total": "total.next"}), emit("total", "out")]
    run(made(steps, {"total": cell(ONE, "a"), "x": cell(ONE, "total")}), n=n)


def test_an_integer_predicate_without_a_default_is_an_error_at_run_time(made: Made) -> None:
    routes = made([branch("a", {"3": emit("b", "out"), "-7": emit("a", "out")})])
    assert run(routes)["out"].tolist() == [5]
    assert run(routes, a=-7)["out"].tolist() == [-7]
    with pytest.raises(genai_runtime.ExecutionError, match=r"steps\[0\]: branch-case"):
        routes.model.run({name: np.array([8]) for name in STEADY})


def test_counters_of_nested_loops_without_emits(made: Made) -> None:
    inner = loop([add("x", "a", "x.next")], "package.true", "m", {"x": "x.next"})
    outer = counted([inner, add("x", "total", "total.next")], {"total": "total.next"})
    steps = [outer, emit("total", "out")]
    assert run(made(steps, {"total": cell(ONE, "a"), "x": cell(ONE, "b")}))["out"].tolist() == [3 + 4 * (5 + 2 * 3)]


def test_steps_are_numbered_by_the_innermost_loop(made: Made) -> None:
    body = [invoke("mix", {"acc": "x", "outer": "a", "inner": "i"}, {"next": "x.next"}), traced("x.next")]
    step = loop(body, "package.true", "n", {"x": "x.next"}, iteration={"value": "i", "contract": SCALAR})
    routes = made([step, emit("x", "out")], {"x": cell(ONE, "b")})
    run(routes)
    events = list(routes.model.stream({name: np.array([value]) for name, value in STEADY.items()}))
    assert [(each.output, each.step) for each in events] == [*(("trace", at) for at in range(4)), ("out", 0)]


def test_a_component_with_effects_runs_although_nothing_reads_it(made: Made) -> None:
    effect = {"audit": {"retry": "idempotent", "speculation_safety": {"kind": "none"}}}
    routes = made([add("a", "b", "unread"), emit("a", "out")], effects=effect)
    assert "invoke add" not in routes_plan(routes)
    document = {"add": {**component("add"), "effects": ["audit"]}}
    routes = made([add("a", "b", "unread"), emit("a", "out")], effects=effect, components=document)
    assert "invoke add" in routes_plan(routes)
    assert run(routes)["out"].tolist() == [3]


def component(name: str) -> Document:
    return {
        "implementation": {"kind": "onnx", "artifact": f"{name}.onnx"},
        "ports": {"inputs": {"a": ONE, "b": ONE}, "outputs": {"sum": ONE}},
    }


def routes_plan(routes: TwoRoutes) -> str:
    return (routes.package.parent / "compiled" / "plan.txt").read_text("utf-8")


# ---- laws of cells ---------------------------------------------------------------------------------------------------


def refused_by_both(routes: TwoRoutes, **values: int) -> None:
    """Both routes refuse the run, because a cell breaks its law."""
    inputs = {name: np.array([value]) for name, value in {**STEADY, **values}.items()}
    with pytest.raises(ReferenceError, match="recurrence"):
        routes.agree(inputs)
    with pytest.raises(genai_runtime.ExecutionError, match="recurrence"):
        routes.model.run(inputs)


def test_a_growing_cell_that_stays_as_it_is_breaks_its_law(made: Made) -> None:
    law = {"kind": "growing", "axis": 0, "increment": "a", "max": "b"}
    routes = made([counted([traced("n")], {"x": "x"}), emit("n", "out")], {"x": cell(GROWS, "m", law)})
    refused_by_both(routes, a=1)
    run(routes, a=0)
    run(routes, a=1, n=0)


def test_a_bounded_cell_that_stays_as_it_is_keeps_within_its_bound(made: Made) -> None:
    law = {"kind": "bounded", "axis": 0, "max": "b"}
    routes = made([counted([traced("n")], {"x": "x"}), emit("n", "out")], {"x": cell(GROWS, "m", law)})
    refused_by_both(routes, b=0)
    run(routes, b=1)


def test_an_invariant_cell_that_stays_as_it_is_needs_no_check(made: Made) -> None:
    routes = made([counted([traced("x")], {"x": "x"}), emit("x", "out")], {"x": cell(ONE, "a")})
    run(routes)
    assert "invariant(" not in (routes.package.parent / "compiled" / "executor.py").read_text("utf-8")


# ---- session state ---------------------------------------------------------------------------------------------------


def test_a_session_cell_of_an_inner_loop_keeps_what_it_held_when_the_loop_is_not_entered(made: Made) -> None:
    inner = loop([add("x", "a", "x.next"), traced("x.next")], "package.true", "m", {"x": "x.next"})
    steps = [counted([inner, add("total", "x", "total.next")], {"total": "total.next"}), emit("total", "out")]
    routes = made(steps, {"total": cell(ONE, "a"), "x": session_cell("b")})
    for times in (0, 2, 0, 1):
        run(routes, session="s", n=times)


def test_a_session_cell_moves_through_a_branch(made: Made) -> None:
    cases = {
        "true": sequence(loop([add("x", "a", "x.next")], "package.true", "n", {"x": "x.next"})),
        "false": sequence(loop([add("x", "b", "x.next")], "package.true", "m", {"x": "x.next"})),
    }
    join = {"final": {"cases": {"true": "x", "false": "x"}}}
    steps = [below("a", "b", "less"), branch("less", cases, outputs=join), emit("final", "out")]
    routes = made(steps, {"x": session_cell("b")})
    for first in (3, 9, 3):
        run(routes, session="s", a=first)


def test_a_session_cell_moves_through_the_default_of_a_branch(made: Made) -> None:
    """Any source of a branch output may be the cell's last value (standard, 3.5)."""
    grown = sequence(loop([add("x", "a", "x.next")], "package.true", "n", {"x": "x.next"}))
    join = {"final": {"cases": {"3": "b"}, "default": "x"}}
    steps = [branch("a", {"3": emit("b", "out")}, default=grown, outputs=join), emit("final", "out")]
    routes = made(steps, {"x": session_cell("b")})
    assert run(routes, session="s", a=2)["out"].tolist() == [5 + 4 * 2]
    assert run(routes, session="s", a=3)["out"].tolist() == [5]
    assert run(routes, session="s", a=1)["out"].tolist() == [5 + 4 * 1], "the branch output is what the session holds"


def test_a_liveness_flag_stops_a_loop_before_its_bound(made: Made) -> None:
    body = [add("x", "a", "x.next"), traced("x.next"), below("x.next", "b", "go.next")]
    steps = [loop(body, "go", "n", {"x": "x.next", "go": "go.next"}), emit("x", "out")]
    routes = made(steps, {"x": cell(ONE, "a"), "go": cell(FLAG, "package.true")})
    assert run(routes, a=1, b=3, n=9)["trace"].tolist() == [2, 3]
    inputs = {name: np.array([value]) for name, value in {**STEADY, "a": 1, "b": 3, "n": 9}.items()}
    assert routes.agree(inputs, stop_on_eos=False)["trace"].tolist() == [2, 3], "no matter of end tokens"
    run(routes, a=1, b=100, n=3)
