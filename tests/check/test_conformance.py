"""The structural check on the conformance data: verdicts, catalogue documents, documents with one fault."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.check.admission import check_admission
from genai_compiler.check.document import check_document
from genai_compiler.check.rules import CHECKED
from genai_compiler.problem import CompileError, Problem, errors
from genai_compiler.read.files import find_metadata, read_document
from genai_compiler.read.load import WORKFLOW, load_package
from genai_compiler.read.validate import parse_metadata

from tests.data import DATA, needs_data
from tests.read.documents import rule_of
from tests.wording import smells

pytestmark = needs_data

CONFORMANCE = DATA / "conformance"
NEGATIVE = CONFORMANCE / "negative"
# Bare decoders (no workflow packages) that this compiler refuses for what their graphs do, and the code.
GRAPH_REFUSED = {"tiny-deepseek-v2-qmoe-attention": "wrong-port", "tiny-native-sub4-engine": "custom-operators"}
# The other end of the relation that a negative document breaks: where it was changed, and where the standard (12.0)
# and this compiler place the problem.
OTHER_END = {
    "edge-dtype": "pipeline.workflow.steps[0].steps[0].inputs.logits",
    "edge-fixed-extent": "pipeline.workflow.steps[0].steps[0].inputs.logits",
    "adapter-abi-not-pinned": "pipeline.workflow.components.overlay.implementation",
    "branch-predicate-per-row": "pipeline.workflow.steps[0].predicate",
    "session-state-not-exported": "pipeline.workflow.steps[0].cases.true",
    "carry-contract": "pipeline.workflow.steps[0].carried[0]",
    "effect-not-described": "pipeline.workflow.components.kv_binding.effects[0]",
    "row-scope-wrong-axis": "pipeline.workflow.components.overlay.ports.inputs.input",
}


def _index() -> dict[str, Any]:
    file = NEGATIVE / "INDEX.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def _verdicts(kind: str) -> list[tuple[str, dict[str, Any]]]:
    file = CONFORMANCE / "expected" / "validation.json"
    return list(json.loads(file.read_text())[kind].items()) if file.is_file() else []


def _structural(file: Path) -> tuple[Problem, ...]:
    data, places = read_document(file, file.parent)
    return check_document(parse_metadata(data, places), places)


def _all(package: Path) -> tuple[Problem, ...]:
    try:
        loaded = load_package(package)
    except CompileError as refused:
        return refused.problems
    if loaded.dialect != WORKFLOW:
        what = f"the document is no workflow of its own, but {loaded.dialect}"
        return (Problem("no-workflow", loaded.places.find(()), "", what),)
    structural = check_document(loaded.metadata, loaded.places)
    return structural or check_admission(loaded)


def _negatives(level: str) -> list[Any]:
    return [pytest.param(name, each, id=name) for name, each in _index().items() if each["level"] == level]


@pytest.mark.parametrize(("name", "entry"), _negatives("structure"))
def test_a_document_with_one_fault_is_refused_at_its_place(name: str, entry: dict[str, Any]) -> None:
    problems = _structural(NEGATIVE / f"{name}.yaml")
    assert {rule_of(each) for each in problems} == {entry["rule"], *entry.get("also", ())}
    place = OTHER_END.get(name, entry["path"].removeprefix("$.").replace("'", '"'))
    (first, *_) = [each for each in problems if rule_of(each) == entry["rule"]]
    assert place.startswith(first.path)
    assert first.where.line > 0
    assert first.help
    assert smells(problems) == []


@pytest.mark.parametrize(("name", "entry"), _negatives("package"))
def test_a_package_with_one_fault_is_refused_at_its_place(name: str, entry: dict[str, Any], tmp_path: Path) -> None:
    package = shutil.copytree(CONFORMANCE / entry["base"], tmp_path / "package")
    shutil.copyfile(NEGATIVE / f"{name}.yaml", package / "inference_metadata.yaml")
    (problem,) = _all(package)
    assert problem.code == CHECKED[entry["rule"]].code
    assert problem.path == entry["path"].removeprefix("$.")
    assert smells([problem]) == []


@pytest.mark.parametrize("base", sorted({each["base"] for each in _index().values()}))
def test_the_base_is_accepted(base: str) -> None:
    assert _all(CONFORMANCE / base) == ()


@pytest.mark.parametrize("name", [name for name, _ in _verdicts("catalogue")])
def test_a_catalogue_document_has_no_structural_problem(name: str) -> None:
    assert _structural(CONFORMANCE / "catalogue" / name) == ()


@pytest.mark.parametrize(("name", "verdict"), _verdicts("documents"))
def test_a_loose_document_gets_its_verdict(name: str, verdict: dict[str, Any]) -> None:
    try:
        problems = _structural(CONFORMANCE / "documents" / name)
    except CompileError as refused:
        problems = refused.problems
    assert (problems == ()) == verdict["valid"]
    assert smells(problems) == []


@pytest.mark.parametrize(("name", "verdict"), _verdicts("packages"))
def test_a_package_gets_its_verdict(name: str, verdict: dict[str, Any]) -> None:
    problems = _all(CONFORMANCE / "packages" / name)
    assert (problems == ()) == verdict["valid"]
    assert smells(problems) == []
    if verdict.get("rule") == "V026":
        assert {each.code for each in problems} == {"missing-file"}
        assert all(each.path.endswith(".implementation.artifact") for each in problems)
    if verdict.get("rule") == "V025":
        assert [each.code for each in errors(problems)] == [GRAPH_REFUSED.get(name, "no-workflow")]


@pytest.mark.parametrize("name", [name for name, each in _verdicts("packages") if each.get("rule") == "V026"])
def test_a_package_without_its_graphs_has_a_sound_document(name: str) -> None:
    file = find_metadata(CONFORMANCE / "packages" / name)
    assert file is not None
    assert _structural(file) == ()
