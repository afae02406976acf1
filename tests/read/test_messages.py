"""What the messages of wrong documents say, and that hostile ones stay short, printable and bounded."""

from collections.abc import Callable
from typing import Any

import pytest
from genai_compiler.problem import CompileError
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

from tests.read.documents import EMIT, STEP, W, change, faults, full, rule_of


def test_a_newer_document_is_called_so() -> None:
    data = change(full(), f"{W}/outputs/tokens/family", "x")
    with pytest.raises(CompileError) as caught:
        parse_metadata(data, Places("m.yaml"))
    assert "newer revision" in caught.value.problems[0].help


@pytest.mark.parametrize(
    ("path", "value", "wanted"),
    [
        (f"{STEP}/componnent", 1, "did you mean component?"),
        (f"{EMIT}/mode", "apend", "did you mean append?"),
        (f"{STEP}/kind", "Invoke", "did you mean invoke?"),
        (f"{W}/inputs/seed/role/kind", "zzz", "one of: runtime, opaque"),
        ("schema_version", 1, "put it in quotes"),
        ("required_capabilities", "x", 'write ["x"]'),
    ],
)
def test_the_way_out(path: str, value: object, wanted: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_metadata(change(full(), path, value), Places("m.yaml"))
    assert wanted in caught.value.problems[0].help


@pytest.mark.parametrize("value", [[float("inf")], [float("nan")], [1e300], "٣"])
def test_no_number_is_proposed_that_nobody_meant(value: object) -> None:
    with pytest.raises(CompileError) as caught:
        parse_metadata(change(full(), f"{W}/inputs/seed/contract/rank", value), Places("m.yaml"))
    assert [(each.code, each.help) for each in caught.value.problems] == [("wrong-type", "write an integer")]


@pytest.mark.parametrize("path", ["model/future", "generation/defaults/future", "preprocessing/image/future"])
def test_open_structs_ignore_what_they_do_not_know(path: str) -> None:
    assert faults(change(full(), path, {"deep": [1]})) == []


@pytest.mark.parametrize("data", [None, [], "text", 4])
def test_the_root_must_be_a_mapping(data: object) -> None:
    assert faults(data) == [("not-a-mapping", "", "V001")]


def test_a_key_that_is_no_text() -> None:
    assert [each[0] for each in faults({3: 4})] == ["wrong-type"]
    assert [each[0] for each in faults({"profiles": {3: {"kind": "a", "version": "b"}}})] == ["wrong-type"]


def test_the_number_of_problems_is_bounded() -> None:
    data = change(full(), "required_capabilities", [1] * 1000)
    found = faults(data)
    assert len(found) == 201
    assert found[0][0] == "too-many-problems"


def _renamed(name: str) -> Callable[[], Any]:
    def build() -> Any:
        data = full()
        data["pipeline"]["workflow"]["components"] = {name: {"ports": 1}}
        return data

    return build


@pytest.mark.parametrize("name", ["invoke", "[key]", "kind", "\n\x1b[31m", "a.b", "x" * 5000, "\u202eabc", "é"])
def test_hostile_names_stay_on_one_printable_line(name: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_metadata(_renamed(name)(), Places("m.yaml"))
    assert sorted(rule_of(each) for each in caught.value.problems) == ["V005", "V013"]
    for problem in caught.value.problems:
        assert (problem.path + problem.what + problem.help).isprintable()
        assert len(problem.path) < 300
