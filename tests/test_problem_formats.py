"""Problems as data: JSON with what is missing apart from what is wrong, and SARIF as its schema has it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main
from genai_compiler.driver import Options
from genai_compiler.problem import Missing, Place, Problem, Severity, ordered
from genai_compiler.problem_formats import as_json, as_sarif, separate
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.check.bases import BASES, base
from tests.check.test_rules import CASES

TEXT = {"type": "string", "minLength": 1}
URI = r"^[A-Za-z0-9._~/!$&'()*+,;=:@%-]+$"
"""Characters that RFC 3986 lets stand in a path."""
LINE = {"type": "integer", "minimum": 1}
SARIF: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "pattern": "^https://.*sarif-2.1.0"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {"$ref": "#/$defs/run"}},
    },
    "$defs": {
        "run": {
            "type": "object", "required": ["tool"], "additionalProperties": False,
            "properties": {
                "tool": {"type": "object", "required": ["driver"], "additionalProperties": False,
                         "properties": {"driver": {"$ref": "#/$defs/driver"}}},
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
        },
        "driver": {
            "type": "object", "required": ["name"], "additionalProperties": False,
            "properties": {"name": TEXT, "version": TEXT, "rules": {"type": "array", "uniqueItems": True, "items": {
                "type": "object", "required": ["id"], "additionalProperties": False, "properties": {"id": TEXT}}}},
        },
        "result": {
            "type": "object", "required": ["message"], "additionalProperties": False,
            "properties": {
                "ruleId": TEXT,
                "ruleIndex": {"type": "integer", "minimum": -1},
                "level": {"enum": ["none", "note", "warning", "error"]},
                "message": {"type": "object", "required": ["text"], "properties": {"text": TEXT},
                            "additionalProperties": False},
                "locations": {"type": "array", "items": {"$ref": "#/$defs/location"}},
                "properties": {"type": "object"},
            },
        },
        "location": {
            "type": "object", "additionalProperties": False,
            "properties": {
                "physicalLocation": {
                    "type": "object", "required": ["artifactLocation"], "additionalProperties": False,
                    "properties": {
                        "artifactLocation": {"type": "object", "required": ["uri"], "additionalProperties": False,
                                             "properties": {"uri": {"type": "string", "pattern": URI}}},
                        "region": {"type": "object", "required": ["startLine"], "additionalProperties": False,
                                   "properties": {"startLine": LINE, "startColumn": LINE}},
                    },
                },
                "logicalLocations": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False, "properties": {"fullyQualifiedName": TEXT}}},
            },
        },
    },
}  # fmt: skip
"""What section 3 of the SARIF 2.1.0 standard demands of the objects that are written here, and nothing else in them."""


def checked(problems: tuple[Problem, ...]) -> Any:
    """The log of some problems, held against the schema and against what a schema can't say."""
    log = json.loads(as_sarif(problems, "1.0"))
    Draft202012Validator(SARIF).validate(log)
    (run,) = log["runs"]
    rules = [each["id"] for each in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    assert len(run["results"]) == len(problems)
    for result, problem in zip(run["results"], problems, strict=True):
        assert rules[result["ruleIndex"]] == result["ruleId"] == problem.code
        assert problem.what in result["message"]["text"]
        assert problem.help in result["message"]["text"]
        assert result["level"] == ("error" if problem.severity is Severity.ERROR else "warning")
    return run


def refused(root: Path, data: Any) -> tuple[Problem, ...]:
    (root / "inference_metadata.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(CompileError) as caught:
        compile_package(root, options=Options(artifacts=False))
    return caught.value.problems


def test_sarif_of_every_rule() -> None:
    """Documents that break the rules one by one, all their problems in one log."""
    from tests.check.bases import broken, problems

    every = ordered(each for _, name, changes, _, _ in CASES for each in problems(broken(name, changes)))
    assert len(checked(every)["tool"]["driver"]["rules"]) > 100


def test_sarif_has_lines_of_the_file_and_the_paths_of_the_document(tmp_path: Path) -> None:
    data = base("flow")
    data["pipeline"]["workflow"]["steps"][0]["max_iterations"] = "nobody"
    problems = refused(tmp_path, data)
    run = checked(problems)
    (result,) = [each for each in run["results"] if "nobody" in each["message"]["text"]]
    place = result["locations"][0]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "inference_metadata.yaml"}
    line = place["physicalLocation"]["region"]["startLine"]
    assert "nobody" in (tmp_path / "inference_metadata.yaml").read_text().splitlines()[line - 1]
    assert place["logicalLocations"] == [{"fullyQualifiedName": "pipeline.workflow.steps[0].max_iterations"}]


NAMES = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=20)
"""Lone surrogates too: a name of bytes that are no UTF-8 has them."""


@given(NAMES, st.integers(0, 9), st.integers(0, 9), st.text(max_size=9), st.sampled_from(Severity))
def test_sarif_of_any_place(file: str, line: int, column: int, path: str, severity: Severity) -> None:
    checked((Problem("a-code", Place(file, line, column), path, "what", "help", severity),))


def test_what_is_missing_stands_apart_from_what_is_wrong(tmp_path: Path) -> None:
    data = base("flow")
    data["required_capabilities"] = ["time_travel"]
    data["pipeline"]["workflow"]["steps"][0]["max_iterations"] = "nobody"
    problems = refused(tmp_path, data)
    faults, missing = separate(problems)
    assert [each.id for each in missing] == ["time_travel"]
    assert len(faults) == len(problems) - 1 > 0
    said = json.loads(as_json(problems))
    assert len(said["problems"]) == len(faults)
    (lack,) = said["missing"]
    assert (lack["id"], lack["code"], lack["path"]) == ("time_travel", "capability-missing", "required_capabilities[0]")
    assert lack["needed_by"] == "the document lists it: required_capabilities[0]"
    (result,) = [each for each in checked(problems)["results"] if each["ruleId"] == "capability-missing"]
    assert result["properties"]["missing"] == "time_travel"


def test_the_text_says_both_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = base("flow")
    data["required_capabilities"] = ["time_travel"]
    data["pipeline"]["workflow"]["steps"][0]["max_iterations"] = "nobody"
    count = len(refused(tmp_path, data)) - 1
    assert main([str(tmp_path), "--no-artifacts"]) == 2
    err = capsys.readouterr().err
    assert err.index("nobody") < err.index("not offered here:") < err.index("time_travel")
    s = "s" if count > 1 else ""
    assert err.rstrip().endswith(f"{count} problem{s}, 1 missing capability; nothing was written")


def test_absent_files_hide_nothing_that_is_missing(tmp_path: Path) -> None:
    """Without the flag the graphs are missed, and what the document asks for is still said."""
    data = base("flow")
    data["required_capabilities"] = ["time_travel"]
    (tmp_path / "inference_metadata.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(CompileError) as caught:
        compile_package(tmp_path)
    assert {"missing-file", "capability-missing"} <= {each.code for each in caught.value.problems}


def test_a_capability_that_is_used_undeclared_and_not_offered_is_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest's gap is a fault of the document, the lack is ours: neither hides the other (standard, 8.2)."""
    from genai_compiler.check.document import check_document
    from genai_compiler.read import negotiate
    from genai_compiler.read.places import Places
    from genai_compiler.read.validate import parse_metadata

    monkeypatch.setattr(negotiate, "OFFERED", negotiate.OFFERED - {"nested_control_flow"})
    data = base("flow")
    data["pipeline"]["workflow"]["manifest"]["capabilities"].remove("nested_control_flow")
    metadata = parse_metadata(data, Places("m.yaml"))
    assert [each.code for each in check_document(metadata, Places("m.yaml"))] == ["capability-undeclared"]
    (lack,) = negotiate.missing_of(metadata, Places("m.yaml"))
    assert isinstance(lack, Missing)
    assert lack.id == "nested_control_flow"
    assert lack.needed_by.startswith(("a loop: pipeline.workflow.steps[", "a branch: pipeline.workflow.steps["))


@pytest.mark.parametrize("name", BASES)
def test_json_of_what_is_sound_is_two_empty_lists(name: str) -> None:
    from tests.check.bases import problems

    assert json.loads(as_json(problems(base(name)))) == {"problems": [], "missing": []}
