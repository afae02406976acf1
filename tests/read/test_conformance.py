"""Every document of the conformance data: read or refused, by the rule and at the place it says."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.files import find_metadata, read_document
from genai_compiler.read.validate import parse_metadata

from tests.data import DATA, needs_data
from tests.read.documents import rule_of

pytestmark = needs_data

CONFORMANCE = DATA / "conformance"
# Rules this stage answers for; the verdicts on all others are for later stages.
PARSING = {f"V{number:03}" for number in range(1, 25)}


def _verdicts() -> list[Any]:
    file = CONFORMANCE / "expected" / "validation.json"
    if not file.is_file():
        return []
    found = json.loads(file.read_text())
    return [
        pytest.param(kind, name, verdict, id=f"{kind}-{name}")
        for kind in ("packages", "catalogue", "documents")
        for name, verdict in found[kind].items()
    ]


def _negatives() -> list[Any]:
    file = CONFORMANCE / "negative" / "INDEX.json"
    index = json.loads(file.read_text()) if file.is_file() else {}
    return [pytest.param(name, entry, id=name) for name, entry in index.items()]


def _real() -> list[Any]:
    files = sorted((DATA / "realpkgs").glob("*/inference_metadata.yaml"))
    return [pytest.param(file, id=file.parent.name) for file in files]


def _file(kind: str, name: str) -> Path:
    path = CONFORMANCE / kind / name
    return (find_metadata(path) or path) if path.is_dir() else path


def _rules(path: Path) -> set[str]:
    problems: tuple[Problem, ...] = ()
    try:
        parse_metadata(*read_document(path, path.parent))
    except CompileError as error:
        problems = error.problems
    assert all(each.where.line > 0 for each in problems)
    return {rule_of(each) for each in problems}


@pytest.mark.parametrize(("kind", "name", "verdict"), _verdicts())
def test_verdict(kind: str, name: str, verdict: dict[str, Any]) -> None:
    found = _rules(_file(kind, name))
    if verdict.get("rule") in PARSING:
        assert verdict["rule"] in found
    else:
        assert found == set()
    assert verdict["json_schema_accepts"] == (found == set())


@pytest.mark.parametrize(("name", "entry"), _negatives())
def test_negative_document(name: str, entry: dict[str, Any]) -> None:
    path = CONFORMANCE / "negative" / f"{name}.yaml"
    if entry["level"] != "parse":
        assert _rules(path) == set()
        return
    with pytest.raises(CompileError) as caught:
        parse_metadata(*read_document(path, path.parent))
    places = [each.path for each in caught.value.problems]
    assert [rule_of(each) for each in caught.value.problems] == [entry["rule"]]
    assert any(_same_place(entry["path"], place) for place in places)


def _same_place(wanted: str, path: str) -> bool:
    plain = wanted.removeprefix("$").removeprefix(".").replace("'", '"')
    return plain.startswith(path) or path.startswith(plain)


@pytest.mark.parametrize(("kind", "name", "verdict"), _verdicts())
def test_data_is_what_the_yaml_library_reads(kind: str, name: str, verdict: dict[str, Any]) -> None:
    if verdict.get("rule") == "V001":
        return
    path = _file(kind, name)
    text = path.read_text(encoding="utf-8")
    wanted = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    assert read_document(path, path.parent)[0] == _textual(wanted)


def _textual(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _textual(each) for key, each in value.items()}
    return [_textual(each) for each in value] if isinstance(value, list) else value


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


@pytest.mark.parametrize("path", _real())
def test_packages_of_the_field_are_judged_without_a_crash(path: Path) -> None:
    """Their exporter writes an older form of the document: retired fields, never an internal error."""
    assert _rules(path) <= PARSING
