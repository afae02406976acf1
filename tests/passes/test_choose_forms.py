"""Which form a component gets: sums done by hand over tables written by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from genai_compiler import Options, compile_package
from genai_compiler.costs import Costs
from genai_compiler.driver import plan_package
from genai_compiler.passes.choose_forms import choose_forms, possible_forms
from genai_compiler.passes.profile import Profile, profile_of
from genai_compiler.plan.ir import Form, Plan, Type
from genai_compiler.plan.placement import Placement
from genai_compiler.plan.verify import verify
from genai_compiler.problem import CompileError
from genai_compiler.read.load import load_package

from tests.conftest import FIXTURES
from tests.costs.tables import both, table

SEARCH = FIXTURES / "wide-search"
WORDS = 32768
Base = tuple[Plan, Profile]


@pytest.fixture(scope="module")
def base() -> Base:
    """The plan of the fixture before forms are chosen."""
    package = load_package(SEARCH)
    plan, _ = plan_package(package, "prove_extents", lambda stage, text: None)
    return plan, profile_of(package, table())


def operators(component: str) -> int:
    """Operators of a graph but for its searches."""
    nodes = onnx.load(SEARCH / f"{component}.onnx").graph.node
    return sum(each.op_type not in ("Constant", "ArgMax") for each in nodes)


def chosen(base: Base, costs: Costs, **changes: Any) -> tuple[dict[str, Form], str]:
    """(form of each component, what is said of the search)."""
    plan, profile = base
    after = choose_forms(plan, replace(profile, costs=costs, **changes))
    assert verify(after) == ()
    notes = [each for each in after.decisions if each.startswith("choose_forms: greedy")]
    return {each.name: each.form for each in after.components}, "".join(notes)


# ---- sums ------------------------------------------------------------------------------------------------------------


SLOW = {"call": 1000, "input": 10, "output": 1}
NUMBERS = 0.04
"""What `ended` takes of one row that has settled, a comparison of two numbers: no session runs for it."""


def test_every_form_costs_what_its_parts_sum_up_to(base: Base) -> None:
    forms, note = chosen(base, table())
    scores, greedy, ended = (1000 * operators(each) for each in ("scores", "greedy", "ended"))
    every = scores + greedy + 4 * WORDS
    fused = 100 + 3 * 10 + 3 * 1 + ended + every  # word, live and bound go in; word, live and slot come out
    own = 2 * 100 + (1 + 2) * 10 + (1 + 1) * 1 + every + NUMBERS
    host = 100 + 10 + 1 + scores + (20 + 2 * 2 + 0.5 + 7 * 1 + WORDS) + NUMBERS
    assert f"fused {fused:.1f}, own session {own:.1f}, host {host:.1f} us an iteration" in note
    assert forms == {"scores": "fused", "greedy": "host", "ended": "fused"}
    assert "host, the cheapest" in note
    assert "32768 elements" in note


@pytest.mark.parametrize(
    ("share", "form"), [(0.5, "host"), (0.89, "host"), (0.91, "fused"), (1.0, "fused"), (2.0, "fused")]
)
def test_the_border_between_graph_and_host(share: float, form: Form, base: Base) -> None:
    """The host's sum as a share of the graph's: a tenth less is what a table can tell."""
    fused = 1000 + 3 * 10 + 3 + (sum(map(operators, ("scores", "greedy", "ended")))) + 3000
    around = 1000 + 10 + 1 + operators("scores") + 20 + 4 + 0.5 + 7 + NUMBERS
    searches = {"ArgMax": {"graph": [[WORDS, 3000]], "host": [[WORDS, share * fused - around]]}, "ArgMin": both(1, 1)}
    forms, note = chosen(base, table(session=SLOW, node=1, searches=searches))
    assert forms["greedy"] == form
    assert f"{form}, {'as cheap as host' if share == 0.91 else 'the cheapest'}: fused {fused:.1f}" in note


@pytest.mark.parametrize(("host", "form"), [(0.8, "host"), (0.95, "own")])
def test_of_forms_that_cost_alike_the_first_one_stays(host: float, form: Form, base: Base) -> None:
    """`ended` is dear as a graph here, and numbers do its work in both: far cheaper than fused, they are alike."""
    own = 2 * 100 + (1 + 2) * 10 + 2 + 1000 * (operators("scores") + operators("greedy")) + 5000 + NUMBERS
    rest = 100 + 10 + 1 + 1000 * operators("scores") + 20 + 4 + 0.5 + 7 + NUMBERS
    searches = {"ArgMax": {"graph": [[WORDS, 5000]], "host": [[WORDS, host * own - rest]]}, "ArgMin": both(1, 1)}
    forms, note = chosen(base, table(searches=searches))
    assert forms["greedy"] == form
    assert ("as cheap as host" in note) == (form == "own")


def test_a_linked_graph_never_costs_more_than_its_parts(base: Base) -> None:
    free = table(session={"call": 0, "input": 0, "output": 0}, searches={"ArgMax": both(1, 9), "ArgMin": both(1, 9)})
    assert set(chosen(base, free)[0].values()) == {"fused"}


@pytest.mark.parametrize(("host", "form"), [(1.0, "host"), (5.0, "own")])
def test_what_may_not_be_fused_has_the_other_two_forms(host: float, form: Form, base: Base) -> None:
    costs = table(searches={"ArgMax": both(4, host), "ArgMin": both(1, 1)})
    forms, note = chosen(base, costs, apart={"greedy": "its contract says nothing of rows that sit out"})
    assert forms["greedy"] == form
    assert "fused" not in note


# ---- what is no choice -----------------------------------------------------------------------------------------------


def test_an_unknown_vocabulary_is_fused_and_says_so(base: Base) -> None:
    plan, profile = base
    unknown = Type("float32", 2, ("batch", "vocabulary"), 0)
    forms, note = chosen((replace(plan, types={**plan.types, "scores": unknown}), profile), table(node=1))
    assert forms["greedy"] == "fused"
    assert note.endswith("not on the host: the extent that it searches is not known")


def test_what_hints_place_stays_where_it_is(base: Base) -> None:
    plan, profile = base
    placed = replace(plan, placements=(Placement("greedy", "gpu"),))
    forms, _ = chosen((placed, profile), table())
    assert forms["greedy"] == ""


def test_an_operator_that_rounds_is_no_matter_for_the_host() -> None:
    package = load_package(FIXTURES / "tiny-decoder")
    plan, _ = plan_package(package, "prove_extents", lambda stage, text: None)
    possible = possible_forms(plan, profile_of(package))
    assert set(possible.values()) == {("fused", "own")}
    assert {"token_sampler", "termination", "last_token_logits"} <= set(possible)


def test_the_same_plan_and_table_give_the_same_forms(base: Base) -> None:
    plan, profile = base
    assert choose_forms(plan, profile) == choose_forms(plan, profile)


# ---- what is asked for -----------------------------------------------------------------------------------------------

FORMS: dict[str, dict[str, Form]] = {
    "chosen": {},
    "fused": {"": "fused"},
    "own": {"": "own"},
    "host": {"": "host"},
    "mixed": {"greedy": "own", "": "fused"},
}


@pytest.mark.parametrize("asked", FORMS)
def test_every_form_gives_what_a_plain_loop_gives(asked: str, tmp_path: Path) -> None:
    compiled = compile_package(SEARCH, tmp_path / "out", Options(forms=FORMS[asked]))
    assert compiled.plan is not None
    form = compiled.plan.component("greedy").form
    assert form == {"chosen": "host", "mixed": "own"}.get(asked, asked)
    runs = {"fused": "island_1", "mixed": "scores"}.get(asked, "ended")
    assert f"invoke {runs}(" in (tmp_path / "out" / "plan.txt").read_text("utf-8")
    words = np.array([30011, 7, 508])
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        result = model.run({"word": words, "bound": np.array([400]), "limit": np.array([5])})
    wanted = plain(words, 400, 5)
    assert [each.tolist() for each in result.rows("words")] == [[row] for row in wanted]


def plain(words: Any, bound: int, limit: int) -> list[list[int]]:
    """The loop by hand, with plain sessions."""
    sessions = {each: ort.InferenceSession(str(SEARCH / f"{each}.onnx")) for each in ("scores", "greedy", "ended")}
    found: list[list[int]] = [[] for _ in words]
    live = np.ones(len(words), np.bool_)
    for _ in range(limit):
        (scores,) = sessions["scores"].run(None, {"word": words})
        (following,) = sessions["greedy"].run(None, {"scores": scores, "live": live})
        for row in np.flatnonzero(live):
            found[row].append(int(following[row]))
        still = sessions["ended"].run(["live"], {"word": following, "bound": np.array([bound])})[0]
        words, live = np.where(live, following, words), live & still
    return found


@pytest.mark.parametrize("case", ["tiny-decoder", "tiny-held-state"])
def test_a_decoder_gives_the_same_tokens_in_every_form(case: str, tmp_path: Path) -> None:
    found = []
    for name, forms in FORMS.items():
        if name != "mixed":
            compile_package(FIXTURES / case, tmp_path / name, Options(forms=forms))
            with genai_runtime.load(tmp_path / name, threads=1) as model:
                batch = [[1, 10, 20, 30], [5]]
                found.append([row.tokens for row in model.generate(batch=batch, max_new_tokens=6).rows])
    assert found == found[:1] * 4
    assert all(found[0])


def refused(*pairs: tuple[str, Form]) -> list[tuple[str, str]]:
    with pytest.raises(CompileError) as error:
        compile_package(SEARCH, options=Options(stop_after="choose_forms", forms=dict(pairs)))
    return [(each.code, each.help) for each in error.value.problems]


def test_a_form_that_a_component_can_not_have_is_refused() -> None:
    assert refused(("scores", "host")) == [("impossible-form", "its forms: fused, own")]
    ((code, help),) = refused(("gredy", "own"))
    assert (code, "greedy" in help) == ("unknown-component", True)
    assert len(refused(("scores", "host"), ("nobody", "own"))) == 2


def test_why_a_component_has_one_form_only_is_told() -> None:
    """Of the runtime's own loop, and of a graph with state in place."""
    with pytest.raises(CompileError) as error:
        compile_package(FIXTURES / "tiny-gqa-v1", options=Options(stop_after="choose_forms", forms={"decoder": "host"}))
    (problem,) = error.value.problems
    assert (problem.code, problem.help) == (
        "impossible-form",
        "it has one form: it is the decoder, which the runtime's own loop runs",
    )
    with pytest.raises(CompileError) as error:
        compile_package(
            FIXTURES / "tiny-held-state", options=Options(stop_after="choose_forms", forms={"model": "host"})
        )
    (problem,) = error.value.problems
    assert (problem.code, problem.help) == ("impossible-form", "it has one form: it updates cells in place")


def test_a_form_that_nothing_can_choose_is_told() -> None:
    def said(package: Path, forms: dict[str, Form]) -> list[str]:
        made = compile_package(package, options=Options(stop_after="choose_forms", forms=forms))
        return [each.code for each in made.problems if each.code == "idle-form"]

    assert said(FIXTURES / "tiny-gqa-v1", {"": "own"}) == ["idle-form"]
    assert said(SEARCH, {"": "own"}) == []
    assert said(SEARCH, {"": "host", "greedy": "own", "ended": "own"}) == ["idle-form"]


def test_what_is_asked_of_all_is_asked_of_those_that_can(base: Base) -> None:
    forms, note = chosen(base, table(), forms={"": "host", "ended": "own"})
    assert forms == {"scores": "fused", "greedy": "host", "ended": "own"}
    assert note == "choose_forms: greedy: host, as asked"


def test_a_request_may_replace_what_numpy_does(tmp_path: Path) -> None:
    """A component that a request may replace keeps its runner's ways."""
    from genai_runtime.host_program import HostInput, HostProgram, HostStep
    from genai_runtime.sessions import Graph, Sessions, Settings

    graphs = {each: Graph(SEARCH / f"{each}.onnx", SEARCH) for each in ("greedy", "ended")}
    program = HostProgram((HostInput("scores", "float32", (-1, -1)),), (HostStep("ArgMax", ("scores",), "word", (0,)),))
    ports = (("scores", "scores"), ("word", "word"))
    runner = Sessions(graphs, Settings()).host_runner(
        "greedy", ("scores",), ("word",), "steps[0]", program, {"ended": ports}
    )
    assert runner.chosen({}) is runner
    assert runner.chosen({"greedy": "greedy"}) is runner
    assert runner.chosen({"greedy": "ended"}) is not runner
