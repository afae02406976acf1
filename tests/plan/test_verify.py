"""Every kind of fault that the verifier knows, each in a plan written by hand; and that sound plans have none."""

from dataclasses import replace

import pytest
from genai_compiler.plan.ir import Emit, Op, Plan, Release
from genai_compiler.plan.verify import changed_effects, verify

from tests.plan.small_plans import branch, carry, decoder_plan, emit, invoke, join, keep, loop, plan

SOUND: list[Plan] = [
    plan(),
    plan(invoke("f", "a", "c"), emit("c")),
    plan(invoke("f", "a", "c d"), invoke("g", "c d", "e"), Release(("c", "d")), emit("e")),
    plan(loop((invoke("f", "s", "s.next"),), (carry("s", "a", "s.next"),)), keep("s", "s"), emit("s")),
    plan(branch((invoke("f", "a", "c"),), (invoke("f", "b", "d"),), join("e", "c", "d")), emit("e")),
    plan(
        loop((loop((invoke("f", "t", "t.next"),), (carry("t", "s", "t.next"),)),), (carry("s", "a", "t"),)), emit("s")
    ),
    decoder_plan(),
]
NOWHERE = Emit("a", "nowhere", "replace", "", "", 0, False, "steps[9]")
ONE_SIDED = branch((invoke("f", "a", "c"),), (), join("e", "c", "c"))
FAULTY: list[tuple[tuple[Op, ...], str]] = [
    ((emit("c"), invoke("f", "a", "c")), "emit of steps[9] reads %c before anything defines it"),
    ((invoke("f", "missing", "c"), emit("c")), "invoke of steps[0] reads %missing before anything defines it"),
    ((invoke("f", "a", "c"), invoke("f", "b", "c")), "invoke of steps[0] defines %c a second time"),
    ((invoke("f", "a", "a"),), "invoke of steps[0] defines %a a second time"),
    ((invoke("f", "a", "c"), Release(("c",)), emit("c")), "emit of steps[9] reads %c after its release"),
    ((invoke("f", "a", "c"), Release(("c",)), loop((emit("c"),))), "emit of steps[9] reads %c after its release"),
    ((invoke("f", "a b", "c"),), "invoke of steps[0] binds input 'y', which it lacks"),
    ((invoke("g", "a b", "c d"),), "invoke of steps[0] binds output 'z', which it lacks"),
    ((NOWHERE,), "emit of steps[9] emits into 'nowhere', which is not declared"),
    ((emit("a", when="later"),), "emit of steps[9] reads %later before anything defines it"),
    ((loop((), (carry("s", "c", "a"),)),), "loop of steps[1] reads %c before anything defines it"),
    ((loop((), (carry("s", "a", "c"),)),), "loop of steps[1] carries %c, which its body does not define"),
    ((loop((), live="gone"),), "loop of steps[1] carries %gone, which its body does not define"),
    ((loop((), limit="m"),), "loop of steps[1] reads %m before anything defines it"),
    ((loop((invoke("f", "a", "c"),)), emit("c")), "emit of steps[9] reads %c before anything defines it"),
    ((branch((invoke("f", "a", "c"),), ()), emit("c")), "emit of steps[9] reads %c before anything defines it"),
    ((ONE_SIDED,), "branch of steps[2] joins %c, which case false does not define"),
    ((branch((invoke("f", "a", "c"),), (invoke("f", "a", "c"),)),), "invoke of steps[0] defines %c a second time"),
    ((replace(loop((emit("a"),)), released_on_entry=("a",)),), "emit of steps[9] reads %a after its release"),
    ((replace(loop(()), released_on_entry=("a",)), emit("a")), "emit of steps[9] reads %a after its release"),
    ((replace(loop((), live="b"), released_on_entry=("b",)),), "loop of steps[1] carries %b after its release"),
    ((loop((invoke("f", "a", "c"),)), keep("s", "c")), "keep of steps[3] reads %c before anything defines it"),
]  # fmt: skip


@pytest.mark.parametrize("sound", SOUND, ids=range(len(SOUND)))
def test_a_sound_plan_has_no_fault(sound: Plan) -> None:
    assert verify(sound) == ()


@pytest.mark.parametrize(("body", "fault"), FAULTY, ids=[fault for _, fault in FAULTY])
def test_a_fault_is_named(body: tuple[Op, ...], fault: str) -> None:
    assert verify(plan(*body)) == (fault,)


def test_a_loop_of_the_runtimes_decoding_starts_from_defined_flags() -> None:
    whole = decoder_plan()
    fault = "loop of steps[0] reads %active.0 before anything defines it"
    assert verify(replace(whole, body=whole.body[1:])) == (fault,)


def test_all_faults_are_named_at_once() -> None:
    assert len(verify(plan(emit("c"), emit("d"), invoke("f", "e", "a")))) == 4


def test_a_value_needs_a_type() -> None:
    whole = plan(invoke("f", "a", "c"), emit("c"))
    assert verify(replace(whole, types={"a": whole.types["a"]})) == ("%c has no type",)


# ---- the order of effects (V273) -------------------------------------------------------------------------------------

EFFECT, F = invoke("effect", "a", "c"), invoke("f", "a", "d", "steps[4]")
FIRST, SECOND = emit("a"), replace(emit("b"), origin="steps[8]")
ORDERED = plan(EFFECT, FIRST, loop((SECOND, F)), branch((keep("s", "a"),), ()))
MOVED: list[tuple[tuple[Op, ...], str]] = [
    ((FIRST, EFFECT, loop((SECOND, F)), branch((keep("s", "a"),), ())), "emit of steps[9] into 'out' where invoke"),
    ((EFFECT, loop((SECOND, F)), branch((keep("s", "a"),), ())), "loop of steps[1] where emit of steps[9]"),
    ((EFFECT, FIRST, SECOND, loop((F,)), branch((keep("s", "a"),), ())), "emit of steps[8] into 'out' where loop"),
    ((EFFECT, FIRST, loop((SECOND, SECOND, F)), branch((keep("s", "a"),), ())), "into 'out' where its region's end"),
    ((EFFECT, FIRST, loop((SECOND, F)), branch((), (keep("s", "a"),))), "its region's end where keep of steps[3]"),
    ((EFFECT, FIRST, loop((SECOND, F))), "nothing where branch of steps[2]"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "fault"), MOVED, ids=[fault for _, fault in MOVED])
def test_an_effect_that_a_pass_moves_is_named(body: tuple[Op, ...], fault: str) -> None:
    (found,) = changed_effects(ORDERED, replace(ORDERED, body=body))
    assert fault in found


def test_what_has_no_effect_may_come_and_go() -> None:
    bodies = (EFFECT, F, FIRST, loop((F, SECOND)), loop(()), branch((keep("s", "a"), F), ()), Release(("b",)))
    assert changed_effects(ORDERED, replace(ORDERED, body=bodies)) == ()
