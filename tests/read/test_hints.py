"""Execution hints: rule V023."""

import copy
from typing import Any

import pytest
from genai_compiler.problem import CompileError
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_hints

from tests.read.documents import rule_of

HINTS: dict[str, Any] = {
    "placement": [
        {"selector": {"names": ["a"]}, "device": {"type": "gpu", "index": 0}, "strength": "force"},
        {"selector": {"layer_range": {"start": 0, "end": 3}}, "device": {"type": "cpu"}, "reason": "small"},
    ],
    "memory": [{"action": "arena_size", "bytes": 1024}, {"action": "pin", "selector": {"pattern": "*.weight"}}],
    "scheduling": [{"action": "chunk_size", "chunk_size": 64}],
}


def test_hints_are_read() -> None:
    hints = parse_hints(HINTS, Places("execution_hints.json"))
    assert hints.placement[1].strength == "prefer"
    assert hints.scheduling[0].chunk_size == 64


def _set(data: Any, path: list[Any], value: object) -> Any:
    changed = copy.deepcopy(data)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "code", "where", "rule"),
    [
        (["colocate"], [], "unknown-field", "colocate", "V023"),
        (["placement", 0, "selector"], {}, "empty-selector", "placement[0].selector", "V023"),
        (["placement", 0, "selector"], {"name": "a"}, "empty-selector", "placement[0].selector", "V023"),
        (["memory", 0, "action"], "free", "not-in-list", "memory[0].action", "V023"),
        (["scheduling", 0, "action"], "later", "not-in-list", "scheduling[0].action", "V023"),
        (["scheduling", 0, "chunk_size"], 0, "below-minimum", "scheduling[0].chunk_size", "V023"),
        (["placement", 0, "device", "type"], "tpu", "not-in-list", "placement[0].device.type", "V006"),
        (["memory", 0, "bytes"], -1, "below-minimum", "memory[0].bytes", "V008"),
        (["memory", 0, "reason"], None, "wrong-type", "memory[0].reason", "V005"),
        (["memory", 0, "why"], "x", "unknown-field", "memory[0].why", "V003"),
    ],
)
def test_one_fault(path: list[Any], value: object, code: str, where: str, rule: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_hints(_set(HINTS, path, value), Places("execution_hints.json"))
    (problem,) = caught.value.problems
    assert (problem.code, problem.path, rule_of(problem)) == (code, where, rule)
