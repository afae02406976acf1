"""Which components open in two sessions, and why others don't."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from genai_compiler import Options, compile_package
from genai_compiler.passes import split_opening
from genai_compiler.passes.profile import Profile, profile_of
from genai_compiler.plan.ir import Branch, Component, Invoke, Loop, Plan
from genai_compiler.plan.placement import Placement
from genai_compiler.read.load import load_package

from tests.conftest import FIXTURES
from tests.cut_packages import cut_anything, typed

Change = Callable[[Plan], Plan]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Plan, Profile]:
    cut_anything(monkeypatch)
    package = typed("tiny-gqa-v1", tmp_path)
    plan = compile_package(package, options=Options(stop_after="gather_columns")).plan
    assert plan is not None
    return plan, profile_of(load_package(package))


def decoder(plan: Plan) -> Component:
    return plan.component("decoder")


def with_decoder(plan: Plan, **changes: object) -> Plan:
    changed = replace(decoder(plan), **changes)  # type: ignore[arg-type]
    return replace(plan, components=tuple(changed if each.name == "decoder" else each for each in plan.components))


def twice(plan: Plan) -> Plan:
    """A loop that decodes twice."""
    loops = [replace(op, advance=(*op.advance, *op.advance)) if isinstance(op, Loop) else op for op in plan.body]
    return replace(plan, body=tuple(loops))


def adapted(plan: Plan) -> Plan:
    return replace(
        plan, body=tuple(replace(op, adapted="chosen") if hasattr(op, "adapted") else op for op in plan.body)
    )


def with_prompt(plan: Plan) -> Plan:
    assert plan.decoder is not None
    return replace(plan, decoder=replace(plan.decoder, prompt_component="other"))


def in_a_case(plan: Plan) -> Plan:
    """A loop that only some requests come to runs the graph."""
    loop = next(op for op in plan.body if isinstance(op, Loop))
    loop = replace(loop, body=(Invoke("decoder", (), (), ""),), advance=())
    return replace(plan, decoder=None, body=(Branch("chosen", (("true", (loop,)),), (), (), ""),))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: with_decoder(plan, overridable=True), "a request may put another component in its place"),
        (lambda plan: with_decoder(plan, pure=False), "it is more than a graph"),
        (lambda plan: replace(plan, placements=(Placement("decoder", "gpu"),)), "elsewhere than on the CPU"),
        (twice, "a token would then take more than 2 session runs"),
        (adapted, "adapters change it"),
        (with_prompt, "another graph runs with the prompt"),
        (in_a_case, "it opens when a request first comes to it"),
    ],
    ids=["overridable", "effects", "placed", "runs", "adapters", "prompt", "seldom"],
)
def test_what_stays_whole(given: tuple[Plan, Profile], change: Change, said: str) -> None:
    plan, profile = given
    assert decoder(split_opening(plan, profile)).parts is not None
    after = split_opening(change(plan), profile)
    assert decoder(after).parts is None
    assert "split_opening: decoder opens in one session: " in after.decisions[-1]
    assert said in after.decisions[-1]


def test_a_package_that_prefers_a_device_stays_whole(given: tuple[Plan, Profile]) -> None:
    plan, profile = given
    after = split_opening(plan, replace(profile, preferred="CUDAExecutionProvider"))
    assert decoder(after).parts is None
    assert "elsewhere than on the CPU" in after.decisions[-1]


def test_extents_that_nothing_tells_cross_nowhere(given: tuple[Plan, Profile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["genai_compiler.passes.split_opening"], "output_extents", lambda *_: {})
    after = split_opening(*given)
    assert decoder(after).parts is None
    assert after.decisions[-1].endswith("nothing tells the extents of what would cross")


def test_a_side_without_a_third_of_the_weights_is_none(
    given: tuple[Plan, Profile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["genai_compiler.passes.split_opening"], "LARGEST_SIDE", 0.5)
    after = split_opening(*given)
    assert decoder(after).parts is None
    assert "both sides a third" in after.decisions[-1]


def test_names_of_parts_are_free(given: tuple[Plan, Profile]) -> None:
    plan, profile = given
    plan = replace(plan, components=(*plan.components, replace(decoder(plan), name="decoder_first")))
    parts = decoder(split_opening(plan, profile)).parts
    assert parts is not None
    assert parts.names == ("decoder_first_", "decoder_second")


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder", "tiny-encoder-decoder-v1"])
def test_small_graphs_are_not_spoken_of(case: str) -> None:
    plan = compile_package(FIXTURES / case, options=Options(write=False)).plan
    assert plan is not None
    assert not [each for each in plan.decisions if each.startswith("split_opening")]
