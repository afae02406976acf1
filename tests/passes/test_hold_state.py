"""hold_state: where it applies, and each reason why a group stays carried; on plans of one small package."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.driver import plan_package
from genai_compiler.passes.hold_state import hold_state
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Branch, CheckHeld, Emit, ExtentCheck, Hold, Invoke, Loop, Op, Plan, SymbolCheck
from genai_compiler.plan.verify import verify
from genai_compiler.read.document import IndexedScatter, ReplaceUpdate
from genai_compiler.read.load import load_package
from onnx import helper

from tests.held_packages import Attention, decision, scripted_package
from tools.fixtures.document import Document, emit, output, sequence

Base = tuple[Plan, Profile]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The plan of a scripted package as the pass finds it."""
    package = load_package(scripted_package(tmp_path_factory.mktemp("hold") / "package"))
    plan, _ = plan_package(package, "place_state", lambda stage, text: None)
    assert package.workflow.serving is not None
    return plan, Profile(package.graphs, package.workflow.serving.state_service.groups)


def reason(plan: Plan, profile: Profile) -> str:
    """Why the group stays carried; the plan is left as it was."""
    after = hold_state(plan, profile)
    assert (after.body, after.groups) == (plan.body, plan.groups)
    assert len(after.decisions) == len(plan.decisions) + 1
    head, _, why = after.decisions[-1].partition(": caches stays carried: ")
    assert head == "hold_state"
    return why


def main_loop(plan: Plan) -> Loop:
    return next(op for op in plan.body if isinstance(op, Loop))


def updater(plan: Plan) -> Invoke:
    return next(op for op in main_loop(plan).body if isinstance(op, Invoke) and op.component == "model")


def with_loop(plan: Plan, **changes: Any) -> Plan:
    old = main_loop(plan)
    return replace(plan, body=tuple(replace(old, **changes) if op is old else op for op in plan.body))


def with_updater(plan: Plan, **changes: Any) -> Plan:
    old = updater(plan)
    return with_loop(plan, body=tuple(replace(old, **changes) if op is old else op for op in main_loop(plan).body))


def with_cells(plan: Plan, **changes: Any) -> Plan:
    cells = tuple(replace(each, **changes) if each.group else each for each in plan.cells)
    return replace(plan, cells=cells)


def with_group(profile: Profile, **changes: Any) -> Profile:
    return Profile(profile.graphs, {name: each.model_copy(update=changes) for name, each in profile.groups.items()})


def with_ops(profile: Profile, **changes: Any) -> Profile:
    graph = profile.graphs["model"]
    ops = tuple(replace(op, **changes) for op in graph.signature.cache_ops)
    held = replace(graph, signature=replace(graph.signature, cache_ops=ops))
    return Profile({**profile.graphs, "model": held}, profile.groups)


# ---- what it makes ---------------------------------------------------------------------------------------------------


def test_cells_leave_the_loop_and_the_run_says_where_they_are(base: Base) -> None:
    plan, profile = base
    after = hold_state(plan, profile)
    hold = next(op for op in after.body if isinstance(op, Hold))
    assert hold.cells == (("cell.k", "k"), ("cell.v", "v"))
    assert hold.pairs == (("past.k", "present.k"), ("past.v", "present.v"))
    assert hold.lengths == (("width", "mask"), ("valid", "mask"), ("new", "input_ids"))
    assert [each.cell for each in main_loop(after).carried] == ["live", "done", "count"]
    run = updater(after)
    assert (run.held, run.inputs) == ("caches", (("input_ids", "ids"), ("mask", "mask")))
    assert run.outputs == (("logits", "seen"),)
    assert main_loop(after).body[-1] == CheckHeld("caches", "most", main_loop(plan).origin)
    assert [each.storage for each in after.groups] == ["shared-buffer"]
    assert verify(after) == ()


def test_what_a_check_says_of_other_values_stays(base: Base) -> None:
    plan, profile = base
    batch = next(each for each in updater(plan).before if isinstance(each, SymbolCheck) and each.symbol == "batch")
    kept = updater(hold_state(plan, profile)).before
    assert {value for value, _, _ in batch.places} == {"ids", "mask", "cell.k", "cell.v"}
    assert kept == (SymbolCheck("batch", (("ids", 0, 1), ("mask", 0, 1))),)


def test_the_loop_is_found_among_others(tmp_path: Path) -> None:
    """Each of two loops with a group of its own is held."""

    def twice(workflow: Document) -> None:
        names = ("cell.", "caches", '"live"', '"done"', '"count"')

        def second(part: Any) -> Any:
            text = json.dumps(part)
            for name in names:
                text = text.replace(name, name[:-1] + "2" + name[-1] if name[-1] in '."' else name + "2")
            return json.loads(text)

        steps, groups = workflow["steps"], workflow["serving"]["state_service"]["groups"]
        workflow["state"] |= second(workflow["state"])
        groups |= second(groups)
        workflow["steps"] = [*steps, *second(steps)]

    package = load_package(scripted_package(tmp_path / "package", edit=twice))
    plan, _ = plan_package(package, "hold_state", lambda stage, text: None)
    assert [op.group for op in plan.body if isinstance(op, Hold)] == ["caches", "caches2"]
    assert verify(plan) == ()


# ---- the document ----------------------------------------------------------------------------------------------------


def test_a_package_may_forbid_it(base: Base) -> None:
    plan, profile = base
    assert hold_state(plan, with_group(profile, aliasing="forbidden")) is plan


@pytest.mark.parametrize("update", [ReplaceUpdate, IndexedScatter])
def test_only_appending_groups(base: Base, update: Any) -> None:
    plan, profile = base
    kind = update.model_construct(kind=update.model_fields["kind"].default or "another")
    assert "its update is" in reason(plan, with_group(profile, update=kind))


def test_cells_of_a_session_and_cells_of_another_law(base: Base) -> None:
    plan, profile = base
    for changes in ({"scope": "session"}, {"recurrence": "invariant"}, {"recurrence": "growing"}):
        assert reason(with_cells(plan, **changes), profile) == "a cell outlives the invocation, or is not bounded"


def test_cells_bounded_on_another_axis_or_differently(base: Base) -> None:
    plan, profile = base
    alike = "its cells are not bounded alike on the sequence axis"
    assert reason(with_cells(plan, axis=1), profile) == alike
    assert reason(plan, with_group(profile, sequence_axis=1)) == alike
    assert reason(with_cells(plan, axis=1), with_group(profile, sequence_axis=1)) == alike
    carried = [replace(each, maximum="turns") if each.cell == "cell.v" else each for each in main_loop(plan).carried]
    assert reason(with_loop(plan, carried=tuple(carried)), profile) == alike


def test_a_component_that_a_request_may_replace_or_that_has_effects(base: Base) -> None:
    plan, profile = base
    known = plan.component("model")
    for changed in (replace(known, overridable=True), replace(known, pure=False)):
        others = tuple(changed if each is known else each for each in plan.components)
        assert "may be replaced, or has effects" in reason(replace(plan, components=others), profile)


def test_a_component_that_is_no_graph(base: Base) -> None:
    plan, profile = base
    others = {name: graph for name, graph in profile.graphs.items() if name != "model"}
    assert reason(plan, Profile(others, profile.groups)) == "component 'model' is no graph"


def test_next_values_of_two_components(base: Base) -> None:
    plan, profile = base
    carried = [replace(each, next="ids") if each.cell == "cell.v" else each for each in main_loop(plan).carried]
    why = reason(with_loop(plan, carried=tuple(carried)), profile)
    assert why == "its next values are not all made by one step of the loop"


def test_a_cell_that_its_updater_does_not_read(base: Base) -> None:
    plan, profile = base
    inputs = tuple(pair for pair in updater(plan).inputs if pair[1] != "cell.v")
    assert reason(with_updater(plan, inputs=inputs), profile).startswith("a cell is not read by the step that updates")


def test_cells_that_change_places(base: Base) -> None:
    plan, profile = base
    swapped = {"next.k": "next.v", "next.v": "next.k"}
    carried = [replace(each, next=swapped.get(each.next, each.next)) for each in main_loop(plan).carried]
    assert "not exactly past and present" in reason(with_loop(plan, carried=tuple(carried)), profile)


def test_a_group_that_another_loop_holds(base: Base) -> None:
    plan, profile = base
    held = replace(plan, groups=hold_state(plan, profile).groups)
    assert reason(held, profile) == "another loop holds it already"


def test_types_that_no_buffer_is_made_for(base: Base) -> None:
    plan, profile = base
    types = {**plan.types, "cell.k": replace(plan.types["cell.k"], dtype="bfloat16")}
    assert reason(replace(plan, types=types), profile) == "its cells are bfloat16"


def read(value: str) -> Op:
    return Emit(value, "logits", "replace", "", "", 0, False, "here")


def test_a_cell_that_anything_else_reads(base: Base) -> None:
    plan, profile = base
    why = "is read by more than the step that updates it"
    body = main_loop(plan).body
    case = Branch("turns", (("1", (read("next.v"),)),), (), (), "there")
    for more in (read("cell.k"), read("next.v"), case):
        assert why in reason(with_loop(plan, body=(*body, more)), profile)
    assert why in reason(replace(plan, body=(*plan.body, read("cell.v"))), profile)
    assert why in reason(with_loop(plan, continue_when="cell.k"), profile)


def test_a_next_value_that_is_published(tmp_path: Path) -> None:
    def edit(workflow: Document) -> None:
        workflow["outputs"]["kv"] = output({"dtype": "float32", "rank": 4})
        workflow["steps"][0]["steps"].append(sequence(emit("next.v", "kv")))

    assert "is read by more than the step that updates it" in decision(scripted_package(tmp_path, edit=edit))


def test_a_loop_in_a_loop_is_left_alone(base: Base) -> None:
    plan, profile = base
    inner = main_loop(plan)
    outer = with_loop(plan, body=(inner,), carried=(), origin="outer")
    assert hold_state(outer, profile) is outer


# ---- contracts of the ports ------------------------------------------------------------------------------------------


def without(checks: tuple[Any, ...], symbol: str) -> tuple[Any, ...]:
    return tuple(each for each in checks if getattr(each, "symbol", "") != symbol)


def test_cells_that_may_differ_in_length(base: Base) -> None:
    plan, profile = base
    why = reason(with_updater(plan, before=without(updater(plan).before, "past")), profile)
    assert why == "no contract gives the cells that 'model' takes one length"


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_length_that_a_contract_ties_to_something_else(base: Base, side: str) -> None:
    plan, profile = base
    value = "cell.k" if side == "before" else "next.k"
    checks = (*getattr(updater(plan), side), SymbolCheck("odd", ((value, 2, 1), ("mask", 1, 1))))
    assert "ties the length of its cells" in reason(with_updater(plan, **{side: checks}), profile)


@pytest.mark.parametrize(("axis", "extent"), [(0, 1), (2, 7), (1, 3)])
def test_an_extent_that_only_a_contract_fixes(base: Base, axis: int, extent: int) -> None:
    plan, profile = base
    checks = (*updater(plan).after, ExtentCheck("next.k", axis, extent))
    assert reason(with_updater(plan, after=checks), profile) == "a contract fixes an extent of its cells"


def test_an_extent_that_the_cells_contract_says_too(base: Base) -> None:
    plan, profile = base
    checks = (*updater(plan).after, ExtentCheck("next.k", 1, 2))
    assert updater(hold_state(with_updater(plan, after=checks), profile)).held == "caches"


# ---- the graph -------------------------------------------------------------------------------------------------------


def test_operators_that_append_or_forget(base: Base) -> None:
    plan, profile = base
    assert "Attention is not known to write in place" in reason(plan, with_ops(profile, op_type="Attention"))
    assert "drop what left their window" in reason(plan, with_ops(profile, bounded=True))


def test_a_present_that_the_graph_reads_itself(tmp_path: Path) -> None:
    """Beside a longer buffer its extent, and what lies behind the valid entries, would be seen."""
    after = [helper.make_node("Shape", ["present.k"], ["extents"])]
    graph = Attention(after=after, outputs={"extents": ("int64", [4])})
    why = decision(scripted_package(tmp_path, graph))
    assert "'present.k' is also read inside the graph of 'model'" in why


def test_lengths_that_come_from_elsewhere(tmp_path: Path) -> None:
    cut = [helper.make_node("Slice", ["input_ids", "zero", "two", "one"], ["some"])]
    assert "total length" in decision(scripted_package(tmp_path / "total", Attention(total="other")))
    assert "valid lengths" in decision(scripted_package(tmp_path / "valid", Attention(valid="other")))
    assert "new tokens" in decision(scripted_package(tmp_path / "new", Attention(before=cut, ids="some")))
