"""Each pass before and after, on plans small enough to read."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from genai_compiler.passes import PASSES
from genai_compiler.passes.drop_dead_steps import drop_dead_steps
from genai_compiler.passes.mark_last_reads import mark_last_reads
from genai_compiler.passes.peel_prompt import peel_prompt
from genai_compiler.passes.place_state import place_state
from genai_compiler.passes.profile import Profile, profile_of
from genai_compiler.plan.ir import Carry, Copy, Decode, Loop, Op, Plan, Release, SymbolCheck
from genai_compiler.plan.state import Slot, StateGroup
from genai_compiler.plan.verify import verify
from genai_compiler.read.attention import CacheOp
from genai_compiler.read.signature import Port
from onnx import ModelProto, TensorProto, helper

from tests.plan.small_plans import GROUP, branch, carry, decoder_plan, emit, invoke, join, keep, loop, plan

NOTHING = Profile({}, {})


def dropped(*body: Op) -> tuple[Op, ...]:
    return drop_dead_steps(plan(*body), NOTHING).body


def released(*body: Op) -> tuple[Op, ...]:
    after = mark_last_reads(plan(*body), NOTHING)
    assert verify(after) == ()
    return after.body


def test_each_pass_is_named_as_its_file_and_says_before_and_after() -> None:
    for each in PASSES:
        module = __import__(each.__module__, fromlist=["x"])
        assert each.__module__.rpartition(".")[2] == each.__name__
        assert "Before:" in (module.__doc__ or "")
        assert "After:" in (module.__doc__ or "")


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.__name__)
def test_a_pass_is_a_function_of_its_input(each: Any) -> None:
    signature = SimpleNamespace(cache_ops=(), outputs=[Port("logits", "float32", None)])
    graph: Any = SimpleNamespace(signature=signature, model=ModelProto(), absent=False)
    for before in (plan(invoke("f", "a", "c d"), emit("c")), decoder_plan()):
        text = repr(before)
        profile = Profile({"decoder": graph}, {})
        after = each(before, profile)
        assert repr(before) == text, "the input was edited"
        assert each(before, profile) == after
        assert verify(after) == ()


# ---- drop_dead_steps -------------------------------------------------------------------------------------------------


def test_an_unread_chain_goes_and_unread_results_of_what_stays() -> None:
    body = (invoke("f", "a", "c unread"), invoke("f", "c", "d"), invoke("f", "d", "e"), emit("c"))
    assert dropped(*body) == (invoke("f", "a", "c"), emit("c"))


def test_effects_stay() -> None:
    assert dropped(invoke("f", "a", "c"), invoke("effect", "c", "d")) == (
        invoke("f", "a", "c"),
        invoke("effect", "c", ""),
    )


def test_a_checked_result_stays_read() -> None:
    checked = replace(invoke("f", "a", "c d"), after=(SymbolCheck("n", (("c", 0, 1), ("d", 0, 1))),))
    assert dropped(checked, emit("c")) == (checked, emit("c"))


def test_what_a_loop_reads_at_its_head_and_back_edge_stays() -> None:
    body = (invoke("f", "s", "s.next"), invoke("f", "s.next", "unread"))
    before = (invoke("f", "a", "first"), loop(body, (carry("s", "first", "s.next"),)))
    assert dropped(*before) == (before[0], loop(body[:1], (carry("s", "first", "s.next"),)))


def test_unread_joins_go_with_what_only_they_read() -> None:
    cases = (invoke("f", "a", "c"), emit("a")), (invoke("f", "b", "d"),)
    assert dropped(branch(*cases, join("e", "c", "d"))) == (branch((emit("a"),), ()),)
    assert dropped(branch(*cases, join("e", "c", "d")), emit("e"))[0] == branch(*cases, join("e", "c", "d"))


def test_unread_copies_go() -> None:
    pairs = (("a", "c"), ("b", "d"))
    assert dropped(Copy("link", pairs, "steps[0]"), emit("d"))[0] == Copy("link", pairs[1:], "steps[0]")
    assert dropped(Copy("link", pairs, "steps[0]")) == ()


def test_a_kept_cell_is_a_reader() -> None:
    assert dropped(invoke("f", "a", "c"), keep("s", "c")) == (invoke("f", "a", "c"), keep("s", "c"))


# ---- mark_last_reads -------------------------------------------------------------------------------------------------


def test_a_value_is_released_after_its_last_read() -> None:
    body = (invoke("f", "a", "c d"), invoke("g", "c b", "e"), emit("e"), emit("d"))
    assert released(*body) == (
        body[0], Release(("a",)), body[1], Release(("b", "c")), body[2], Release(("e",)), body[3],
    )  # fmt: skip


def test_what_a_loop_reads_from_outside_lives_until_after_it() -> None:
    inner = (invoke("g", "s c", "d"), invoke("f", "d", "s.next"), emit("s.next"))
    body = (invoke("f", "a", "c"), loop(inner, (carry("s", "a", "s.next"),)), emit("s"), emit("b"))
    after = released(*body)
    marked = (inner[0], inner[1], Release(("d",)), inner[2])
    assert after[1] == replace(loop(marked, (carry("s", "a", "s.next"),)), released_on_entry=("a", "n"))
    assert after[2] == Release(("c", "go"))


def test_what_only_a_loops_entry_reads_is_released_there() -> None:
    body = (invoke("f", "s", "s.next"),)
    made = (invoke("f", "a", "first"), invoke("f", "first", "second"))
    cells = (carry("s", "second", "s.next"), carry("t", "first", "s.next"))
    after = released(*made, loop(body, cells))
    assert after[-1] == replace(loop(body, cells), released_on_entry=("first", "n", "second"))


def test_what_is_read_in_a_loop_or_after_it_outlives_its_entry() -> None:
    body, cells = (invoke("f", "s", "s.next"),), (carry("s", "b", "s.next"),)
    for inner, after in (((*body, emit("b")), ()), (body, (emit("b"),)), ((loop((emit("b"),)), *body), ())):
        marked = released(loop(inner, cells), *after)[0]
        assert isinstance(marked, Loop)
        assert "b" not in marked.released_on_entry
    (steady,) = released(loop(body, (carry("s", "b", "b"),)))  # what a cell becomes
    assert steady == replace(loop(body, (carry("s", "b", "b"),)), released_on_entry=("n",))


def test_an_inner_loop_releases_what_the_outer_one_makes_anew() -> None:
    inner = loop((invoke("f", "t", "t.next"),), (carry("t", "c", "t.next"),))
    outer = loop((invoke("f", "s", "c"), inner), (carry("s", "a", "t"),))
    (after,) = released(outer)
    assert after == replace(
        outer, body=(outer.body[0], replace(inner, released_on_entry=("c",))), released_on_entry=("a",)
    )


def test_the_runtimes_own_decoding_has_no_names_to_release() -> None:
    rotated = peel_prompt(decoder_plan(), NOTHING)
    followed = replace(rotated, body=(*rotated.body, emit("b"), emit("n")))
    start, prompt, whole = rotated.body
    after = mark_last_reads(followed, NOTHING).body
    assert after == (start, prompt, Release(("a",)), whole, emit("b"), Release(("b",)), emit("n"))


def test_what_a_region_hands_on_is_not_released_in_it() -> None:
    cases = (invoke("f", "a", "c"), emit("c")), (invoke("f", "b", "d"), emit("b"))
    after = released(branch(*cases, join("e", "c", "d")), emit("e"))
    assert after[0] == branch(*cases, join("e", "c", "d"))
    assert after[1] == Release(("a", "b", "go"))


def test_a_cell_is_released_after_it_is_kept() -> None:
    body = (loop((invoke("f", "s", "s.next"),), (carry("s", "a", "s.next"),)), keep("s", "s"), emit("b"))
    assert released(*body)[2:4] == (keep("s", "s"), Release(("s",)))


# ---- peel_prompt -----------------------------------------------------------------------------------------------------


def test_the_prompt_is_peeled_off_the_loop() -> None:
    before = decoder_plan(extras=(("scale", "b"),))
    after = peel_prompt(before, NOTHING)
    start, prompt, rotated = after.body
    whole = before.body[1]
    assert start == before.body[0]
    assert isinstance(whole, Loop)
    assert prompt == Decode("decoder", "prompt", "a", "logits.prompt", "steps[0].steps[0]", (("scale", "b"),))
    assert isinstance(rotated, Loop)
    assert rotated.body == whole.body[1:]
    assert rotated.advance == (Decode("decoder", "step", "token", "logits.next", "steps[0].steps[0]"),)
    assert rotated.carried == (whole.carried[0], Carry("logits", "logits.prompt", "logits.next", False))
    assert after.types["logits.prompt"] == after.types["logits.next"] == before.types["logits"]
    assert verify(after) == ()


def test_a_loop_with_nothing_in_it_is_left_alone() -> None:
    before = plan(loop((), (carry("s", "a", "s"),)))
    assert peel_prompt(before, NOTHING) is before


def test_a_plan_without_a_decoder_loop_is_left_alone() -> None:
    before = plan(loop((invoke("f", "s", "s.next"),), (carry("s", "a", "s.next"),)))
    assert peel_prompt(before, NOTHING) is before


# ---- place_state -----------------------------------------------------------------------------------------------------

GROUPED = CacheOp("GroupQueryAttention", "com.microsoft", "past.k", "past.v", "present.k", "present.v", None)
SLOTS = (Slot("past.k", "present.k", "float32", (-1, 2, -2, 8)), Slot("past.v", "present.v", "float32", (-1, 2, -2, 8)))


def placed(
    *groups: StateGroup, ops: tuple[CacheOp, ...] = (GROUPED,), aliasing: str = "permitted", also: tuple[str, ...] = ()
) -> Plan:
    """also: present tensors that another node of the graph reads."""
    outputs = [name for op in ops for name in (op.present_key, op.present_value)]
    nodes = [helper.make_node("Identity", [name], [f"{name}.copy"]) for name in also]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    model = SimpleNamespace(graph=helper.make_graph(nodes, "g", [], ports))
    graph: Any = SimpleNamespace(signature=SimpleNamespace(cache_ops=ops), model=model, absent=False)
    declared: Any = {each.name: SimpleNamespace(aliasing=aliasing) for each in groups}
    return place_state(replace(decoder_plan(), groups=groups), Profile({"decoder": graph}, declared))


def kv(name: str = "kv", slots: tuple[Slot, ...] = SLOTS) -> StateGroup:
    return replace(GROUP, name=name, slots=slots)


def test_a_present_that_the_graph_itself_reads_is_not_shared() -> None:
    (group,) = placed(kv(), also=("present.k",)).groups
    assert group.storage == "growing"
    assert "reads present.k" in group.reason


def test_an_operator_that_writes_in_place_gets_one_buffer() -> None:
    after = placed(kv())
    assert [each.storage for each in after.groups] == ["shared-buffer"]
    assert after.decisions[-1].startswith("place_state: kv is shared-buffer: GroupQueryAttention writes in place")


def test_an_operator_that_appends_gets_growing_tensors() -> None:
    after = placed(kv(), ops=(replace(GROUPED, op_type="Attention", domain=""),))
    assert [each.storage for each in after.groups] == ["growing"]
    assert "appends" in after.groups[0].reason


@pytest.mark.parametrize(("bounded", "storage"), [(True, "shared-buffer"), (False, "constant")])
def test_tensors_of_one_size_are_one_buffer_only_where_the_operator_keeps_a_window(bounded: bool, storage: str) -> None:
    whole = tuple(replace(each, dims=(-1, 2, 24, 8)) for each in SLOTS)
    after = placed(kv(slots=whole), ops=(replace(GROUPED, local_window=8, bounded=bounded),))
    assert [each.storage for each in after.groups] == [storage]


def test_a_package_may_forbid_one_buffer() -> None:
    after = placed(kv(), aliasing="forbidden")
    assert after.groups[0].storage == "growing"
    assert "does not permit" in after.groups[0].reason


@pytest.mark.parametrize(
    "slot", [Slot("past.k", "present.v", "float32", (-1, -2)), Slot("x", "y", "float32", (-1, -2))]
)
def test_slots_that_no_operator_pairs_grow(slot: Slot) -> None:
    after = placed(kv(slots=(slot,)))
    assert after.groups[0].storage == "growing"
    assert f"{slot.past} -> {slot.present}" in after.groups[0].reason


def test_groups_of_one_decoder_are_kept_in_one_way() -> None:
    after = placed(kv(), kv("other", (Slot("x", "y", "float32", (-1, -2)),)))
    assert [each.storage for each in after.groups] == ["growing", "growing"]
    assert "another group" in after.groups[0].reason


@pytest.mark.parametrize(("version", "alone"), [("1", True), ("1.0", True), ("2", False), ("2.0", False), ("20", True)])
def test_contracts_that_say_what_rows_do_that_sit_out(version: str, alone: bool) -> None:
    """Version 2 does (standard, 13.1); of others nothing is known."""
    contract = SimpleNamespace(id="onnx-genai.token-sampler", version=version)
    workflow = SimpleNamespace(serving=None, components={"sampler": SimpleNamespace(contract=contract)})
    package: Any = SimpleNamespace(workflow=workflow, graphs={}, session=SimpleNamespace(providers=()))
    assert ("sampler" in profile_of(package).apart) == alone
