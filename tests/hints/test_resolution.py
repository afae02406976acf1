"""Which hint counts: strength, source, order, and what a selector reaches (standard, section 9)."""

import json
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.plan.hints import resolve_hints
from genai_compiler.problem import CompileError
from genai_compiler.read.hint_sources import MAX_HINTS, caller_hints, file_hints
from genai_compiler.read.load import load_package

from tests.hints.packages import NODES, advice, codes, package, placing, where

BOTH = {"names": ["first", "second"]}


def said(found: Any, *words: str) -> str:
    """The one decision that holds all these words."""
    (line,) = [each for each in found.decisions if all(word in each for word in words)]
    return str(line)


# ---- selectors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "reached"),
    [
        ({"names": ["first"]}, {"first"}),
        (BOTH, {"first", "second"}),
        ({"names": ["nobody"]}, set()),
        ({"pattern": "f*t"}, {"first"}),
        ({"pattern": "*"}, {"first", "second"}),
        ({"pattern": "blocks.*"}, {"first", "second"}),  # every node
        ({"pattern": "blocks.[0-3].Neg"}, {"first", "second"}),
        ({"names": [f"blocks.{at}.Neg" for at in range(NODES)]}, {"first", "second"}),
        ({"names": ["mid.1", "mid.2", "mid.3", "y"]}, {"first", "second"}),  # nodes by the tensors they make
        ({"op_types": ["Neg"]}, {"first", "second"}),
        ({"op_types": ["MatMul"]}, set()),
        ({"names": ["first"], "op_types": ["Neg"]}, {"first"}),  # every property must hold
        ({"names": ["first"], "op_types": ["MatMul"]}, set()),
        ({"pattern": "sec*", "names": ["first"]}, set()),
    ],
)
def test_what_a_selector_reaches(selector: dict[str, Any], reached: set[str], tmp_path: Path) -> None:
    assert set(where(advice(tmp_path, {"placement": [placing(selector, "gpu")]}))) == reached


@pytest.mark.parametrize("selector", [{"names": ["blocks.1.Neg"]}, {"pattern": "blocks.[01].*"}, {"names": ["mid.1"]}])
def test_a_part_of_a_component_is_named_and_left_alone(selector: dict[str, Any], tmp_path: Path) -> None:
    found = advice(tmp_path, {"placement": [placing(selector, "gpu")]})
    assert where(found) == {}
    assert f"of {NODES} nodes" in said(found, "left alone for 'first'")


def test_layers_come_from_nodes_or_from_the_pattern(tmp_path: Path) -> None:
    told = {"nodes": {at: {"onnx_runtime.layer": str(at // 2)} for at in range(NODES)}}
    named = {"model": {"onnx_runtime.layer_pattern": "blocks.{}"}}
    hints = {"placement": [placing({"layer_range": {"start": 0, "end": 3}}, "gpu:1")]}
    assert where(advice(tmp_path / "told", hints, first=told)) == {"first": "gpu:1"}
    assert where(advice(tmp_path / "named", hints, second=named)) == {"second": "gpu:1"}
    half = {"placement": [placing({"layer_range": {"start": 0, "end": 0}}, "gpu")]}
    assert "2 of 4 nodes" in said(advice(tmp_path / "half", half, first=told), "left alone for 'first'")
    none = advice(tmp_path / "none", hints)
    assert where(none) == {}
    assert "onnx_runtime.layer" in said(none, "selects nothing")


# ---- which one counts ------------------------------------------------------------------------------------------------


def test_the_stronger_source_counts(tmp_path: Path) -> None:
    root = package(tmp_path / "package", first={"model": {"onnx_runtime.device": "npu"}})
    file = tmp_path / "execution_hints.json"
    file.write_text(json.dumps({"placement": [placing({"names": ["first"]}, "gpu")]}, indent=1))
    caller, user = caller_hints({"placement": [placing({"names": ["first"]}, "cpu")]}), file_hints(file)
    loaded = load_package(root)
    assert where(resolve_hints(loaded, [])) == {"first": "npu"}
    assert where(resolve_hints(loaded, [user])) == {"first": "gpu"}
    found = resolve_hints(loaded, [user, caller])  # the order they are given in says nothing
    assert where(found) == {"first": "cpu"}
    assert found.problems == ()
    assert "stronger source" in said(found, "execution_hints.json:", "(gpu)", "left alone")
    assert "stronger source" in said(found, "first.onnx", "(npu)", "left alone")


def test_force_beats_prefer_of_a_stronger_source(tmp_path: Path) -> None:
    own = {"model": {"onnx_runtime.device": "npu", "onnx_runtime.device.strength": "force"}}
    found = advice(tmp_path, {"placement": [placing({"names": ["first"]}, "cpu")]}, first=own)
    assert where(found) == {"first": "npu"}
    assert "forced" in said(found, "Options.hints placement[0]", "(cpu)", "left alone")


def test_in_one_source_the_earlier_counts(tmp_path: Path) -> None:
    hints = {"placement": [placing(BOTH, "gpu"), placing({"names": ["second"]}, "cpu")]}
    found = advice(tmp_path, hints)
    assert where(found) == {"first": "gpu", "second": "gpu"}
    assert "said before it" in said(found, "placement[1]", "left alone")


def test_a_number_joins_a_device_without_one(tmp_path: Path) -> None:
    hints = {"placement": [placing({"names": ["first"]}, "gpu", "force"), placing(BOTH, "gpu:1", "force")]}
    found = advice(tmp_path, hints)
    assert found.problems == ()
    assert where(found) == {"first": "gpu:1", "second": "gpu:1"}


def test_any_decides_nothing(tmp_path: Path) -> None:
    hints = {"placement": [placing(BOTH, "any", "force"), placing(BOTH, "gpu")]}
    found = advice(tmp_path, hints)
    assert found.problems == ()
    assert where(found) == {}


# ---- contradictions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "against"),
    [
        (placing({"names": ["first"]}, "gpu", "force"), placing({"names": ["first"]}, "cpu", "force"), True),
        (placing({"names": ["first"]}, "gpu:0", "force"), placing({"pattern": "f*"}, "gpu:1", "force"), True),
        (placing({"names": ["mid.1"]}, "gpu", "force"), placing({"op_types": ["Neg"]}, "cpu", "force"), True),
        (placing({"names": ["mid.1"]}, "gpu", "force"), placing({"names": ["mid.2"]}, "cpu", "force"), False),
        (placing({"names": ["first"]}, "gpu", "force"), placing({"names": ["second"]}, "cpu", "force"), False),
        (placing({"names": ["first"]}, "gpu", "force"), placing({"names": ["first"]}, "cpu"), False),
        (placing({"names": ["first"]}, "gpu", "force"), placing({"names": ["first"]}, "any", "force"), False),
        (placing({"names": ["first"]}, "gpu", "force"), placing({"names": ["first"]}, "gpu:1", "force"), False),
    ],
)
def test_forces_that_contradict_each_other(one: Any, other: Any, against: bool, tmp_path: Path) -> None:
    found = advice(tmp_path, {"placement": [one, other]})
    assert codes(found.problems) == (["conflicting-hints"] if against else [])
    if against:
        (problem,) = found.problems
        assert problem.path == "placement[1]"
        assert "placement[0]" in problem.what


def test_no_more_contradictions_are_told_than_anybody_reads(tmp_path: Path) -> None:
    """200 hints of one source contradict each other in 19,900 ways."""
    forces = [placing({"names": ["first"]}, f"gpu:{at}", "force") for at in range(MAX_HINTS)]
    assert len(advice(tmp_path, {"placement": forces}).problems) == 100


def test_both_places_are_named_across_sources(tmp_path: Path) -> None:
    root = package(tmp_path / "package", second={"nodes": {2: {
        "onnx_runtime.device": "cpu", "onnx_runtime.device.strength": "force"}}})  # fmt: skip
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"placement": [placing({"names": ["second"]}, "gpu", "force")]}, indent=1))
    (problem,) = resolve_hints(load_package(root), [file_hints(file)]).problems
    text = str(problem)
    assert "second.onnx" in text
    assert "onnx_runtime.device = cpu on 1 of 4 nodes" in text
    assert "mine.json:3 placement[0]" in text


# ---- bounds and faults -----------------------------------------------------------------------------------------------


def test_a_file_of_hints_is_checked_like_any_document(tmp_path: Path) -> None:
    file = tmp_path / "execution_hints.json"
    file.write_text('{"placement": [{"selector": {}, "device": {"type": "tpu"}}],\n "colocate": []}')
    with pytest.raises(CompileError) as refused:
        file_hints(file)
    assert {each.code for each in refused.value.problems} == {"empty-selector", "not-in-list", "unknown-field"}
    assert {each.where.line for each in refused.value.problems} == {1, 2}
    file.unlink()
    with pytest.raises(CompileError) as refused:
        file_hints(file)
    assert codes(refused.value.problems) == ["unreadable-file"]


def test_too_many_hints_are_refused() -> None:
    with pytest.raises(CompileError) as refused:
        caller_hints({"scheduling": [{"action": "overlap"}] * (MAX_HINTS + 1)})
    assert codes(refused.value.problems) == ["too-many-hints"]


def test_without_hints_there_is_nothing_to_say(tmp_path: Path) -> None:
    found = advice(tmp_path)
    assert (found.placements, found.decisions, found.problems) == ((), (), ())


# ---- memory and scheduling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action", ["pin", "low_priority", "allow_alias", "prefetch", "overlap", "cuda_graph_region", "no_cuda_graph"]
)
def test_what_can_not_be_followed_is_said(action: str, tmp_path: Path) -> None:
    kind = "memory" if action in ("pin", "low_priority", "allow_alias", "prefetch") else "scheduling"
    found = advice(tmp_path, {kind: [{"action": action, "selector": {"pattern": "*"}}]})
    assert found.placements == ()
    assert f"({action})" in said(found, f"{kind}[0]")


def test_an_arena_of_a_gpu_gets_a_limit_and_the_cpu_may_go_without(tmp_path: Path) -> None:
    arenas = [{"action": "arena_size", "device": {"type": "gpu"}, "bytes": 4096, "selector": {"names": ["first"]}},
              {"action": "arena_size", "device": {"type": "gpu"}, "bytes": 8192},
              {"action": "arena_size", "device": {"type": "cpu"}, "bytes": 0, "selector": {"names": ["second"]}},
              {"action": "arena_size", "device": {"type": "cpu"}, "bytes": 4096},
              {"action": "arena_size"}]  # fmt: skip
    found = advice(tmp_path, {"memory": arenas})
    assert {(each.component, each.memory, each.cpu_arena) for each in found.placements} == {
        ("first", 4096, True),
        ("second", 8192, False),
    }
    assert "stronger hint" in said(found, "memory[1]", "'first'")
    for number in (3, 4):
        assert "left alone" in said(found, f"memory[{number}]")


def test_a_chunk_size_is_left_alone(tmp_path: Path) -> None:
    found = advice(tmp_path, {"scheduling": [{"action": "chunk_size", "chunk_size": 64}]})
    assert "one run" in said(found, "(chunk_size)", "left alone")
