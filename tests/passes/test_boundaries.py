"""Every two neighbouring ONNX runs are one run, or the plan's text says why they are not.

Who is whose neighbour is found in the plan as it was built, before any pass: what is asked for does not come from what
answers.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler import CompileError, Options, compile_package
from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Branch, Copy, Decode, Fused, Invoke, Loop, Op, Plan, SpeculativeBlock
from genai_compiler.plan.text import plan_text
from genai_compiler.plan.uses import defines, walk

from tests.conftest import FIXTURES
from tests.emit.test_checked_graphs import FOLDERS
from tests.test_adversary_islands import X, component, port, save, write
from tests.test_adversary_islands import op as node
from tools.fixtures.document import application, invoke

_LINE = re.compile(r"^boundary (.+) \| (.+?): (.+)$", re.MULTILINE)
Pair = tuple[str, str]


def said(plan: Plan) -> dict[Pair, str]:
    """(first, second) -> a reason, from the text."""
    lines = _LINE.findall(plan_text(plan))
    return {(first, second): why for first, seconds, why in lines for second in seconds.split(", ")}


def sources(plan: Plan) -> Iterator[Pair]:
    """(a value, one that it is or may be)."""
    for op in walk(plan.body):
        match op:
            case Copy():
                yield from ((target, source) for source, target in op.pairs)
            case Loop():
                yield from ((each.cell, source) for each in op.carried for source in (each.initial, each.next))
            case Branch():
                for join in op.joins:
                    yield from ((join.name, source) for _, source in join.cases)
                    yield join.name, join.default
            case _:
                pass


def reads(op: Op, plan: Plan) -> list[Pair]:
    """(value, component that takes it) of a run."""
    if isinstance(op, Invoke):
        return [(value, op.component) for _, value in op.inputs]
    assert isinstance(op, Decode)
    front = plan.decoder.front.component if plan.decoder is not None and plan.decoder.front is not None else ""
    return [
        *((value, front or op.component) for value in (op.tokens, *(value for _, value in op.media))),
        *((value, op.component) for _, value in op.extras),
    ]


def neighbours(plan: Plan) -> set[Pair]:
    """(first, second) of ONNX components where the second reads what the first makes."""
    onnx = {each.name for each in plan.components if each.artifact and each.adapter is None}
    ops = [op for op in walk(plan.body) if isinstance(op, Invoke | Decode)]
    made = {value: op for op in ops for value in defines(op)}
    alias = dict[str, set[str]]()
    for value, source in sources(plan):
        alias.setdefault(value, set()).add(source)
    found = set[Pair]()
    for op in ops:
        if isinstance(op, Decode) and plan.decoder is not None and plan.decoder.front is not None:
            found.add((plan.decoder.front.component, op.component))
        for value, reader in reads(op, plan):
            reached, pending = {value}, [value]
            while pending:
                more = alias.get(pending.pop(), set()) - reached
                reached |= more
                pending += more
            found |= {(made[each].component, reader) for each in reached if each in made and made[each] is not op}
    return {pair for pair in found if set(pair) <= onnx}


def runs(plan: Plan) -> set[str]:
    """Every component that still runs, alone or inside another."""
    found = set[str]()
    for op in walk(plan.body):
        if isinstance(op, Invoke | Decode):
            found |= {op.component, *members(plan, op.component)}
        if isinstance(op, SpeculativeBlock):
            found.add(op.decode.component)
    if plan.decoder is not None and plan.decoder.front is not None:
        found.add(plan.decoder.front.component)
    return found


def members(plan: Plan, name: str) -> list[str]:
    edit = plan.component(name).edit
    return [each.component for each in edit.members] if isinstance(edit, Linked) else [name]


def together(plan: Plan, pair: Pair) -> bool:
    """Whether some run has both: twice the same component counts as two."""
    names = [members(plan, each.name) for each in plan.components]
    return any(set(pair) <= set(each) and (pair[0] != pair[1] or each.count(pair[0]) > 1) for each in names)


@pytest.mark.parametrize("package", FOLDERS, ids=lambda each: each.name)
def test_every_boundary_has_its_reason(package: Path) -> None:
    try:
        built = compile_package(package, options=Options(stop_after="build")).plan
    except CompileError:
        return
    plan = compile_package(package, options=Options(write=False)).plan
    assert built is not None
    assert plan is not None
    told, alive = said(plan), runs(plan)
    wanted = {pair for pair in neighbours(built) if set(pair) <= alive and not together(plan, pair)}
    assert sorted(wanted - told.keys()) == []
    assert all(told.values())


def test_pairs_of_many_kinds_are_among_them() -> None:
    """So that something is asked: packages in which there are such pairs, and islands."""
    asked = {each.name: neighbours(plan) for each in FOLDERS if (plan := built(each)) is not None}
    assert len([each for each in asked.values() if each]) > 12
    assert ("decoder_step_update", "model") in asked["tiny-held-state"]
    assert ("vision", "embedding") in asked["tiny-media-v2"]


def built(package: Path) -> Plan | None:
    try:
        return compile_package(package, options=Options(stop_after="build")).plan
    except CompileError:
        return None


def test_members_that_a_request_may_replace_are_fused_all_the_same(tmp_path: Path) -> None:
    """What keeps both forms has no boundary inside."""
    plan = compile_package(next(each for each in FOLDERS if each.name == "tiny-decoder"), tmp_path / "out").plan
    assert plan is not None
    fused = [op for op in walk(plan.body) if isinstance(op, Fused)]
    inside = {each.component for op in fused for each in op.members}
    same = {pair for pair, why in said(plan).items() if set(pair) <= inside and "between them" not in why}
    assert fused
    assert same == set()


def test_a_proposer_is_a_run_of_its_own() -> None:
    plan = compile_package(FIXTURES / "tiny-chained-drafts", options=Options(write=False)).plan
    assert plan is not None
    assert said(plan)["decoder", "draft"] == "the runtime runs both: what 'draft' drafts, a run of 'decoder' verifies"


def told_of(root: Path, components: dict[str, Any], steps: list[Any], outputs: dict[str, Any]) -> dict[Pair, str]:
    plan = compile_package(
        write(root, components, steps, {"in": application(X, "in")}, outputs), options=Options(write=False)
    ).plan
    assert plan is not None
    return said(plan)


def test_reasons_say_what_is_so(tmp_path: Path) -> None:
    """Weights of 80 kB (64 KiB may have a copy); a value that is made later; three entries that nothing promises.

    `c` and `d` are an island.
    """
    root = tmp_path / "package"
    for name, operator in (("a", "Exp"), ("c", "Add")):
        taken = [port("x", "n"), *([port("z", "n")] if name == "c" else [])]
        save(root / f"{name}.onnx", [node(operator, [each.name for each in taken], ["y"])], taken)
    heavy = [node("Gather", ["w", "zero"], ["g"]), node("Add", ["x", "g"], ["y"])]
    save(root / "b.onnx", heavy, w=np.ones(20_000, np.float32), zero=np.int64(0))
    save(root / "d.onnx", [node("Neg", ["x"], ["y"])], [port("x", 3)], [port("y", 3)])
    components = {each: component(f"{each}.onnx", {"x": X}, {"y": X}) for each in "abd"}
    components["c"] = component("c.onnx", {"x": X, "z": X}, {"y": X})
    steps = [
        invoke("a", {"x": "in"}, {"y": "of a"}),
        invoke("b", {"x": "of a"}, {"y": "of b"}),
        invoke("c", {"x": "of a", "z": "of b"}, {"y": "of c"}),
        invoke("d", {"x": "of a"}, {"y": "of d"}),
    ]
    weights = "'b' runs alone: its weights (0.1 MB) belong to one session"
    assert told_of(root, components, steps, {f"of {each}": X for each in "abcd"}) == {
        ("a", "b"): weights,
        ("a", "c"): "'c' also reads %of b, which is made later",
        ("a", "d"): "nothing proves that %of a has 3 entries on axis 0, as 'd' asks",
        ("b", "c"): "'c' is linked with others already",
    }
