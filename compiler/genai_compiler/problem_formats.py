"""Problems for people and machines: text, JSON, and SARIF 2.1.0 that code hosts show beside the lines."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from genai_compiler.problem import Missing, Problem, Severity

FORMATS = ("text", "json", "sarif")
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(problems: Sequence[Problem], memory: Mapping[str, Any] | None = None) -> str:
    """`problems`: what is wrong; `missing`: what is asked for and not offered here. Both refuse the package.

    memory: what is predicted of it, where that was asked for.
    """
    faults, missing = separate(problems)
    lists = {"problems": [_as_data(each) for each in faults], "missing": [_as_missing(each) for each in missing]}
    return json.dumps({**lists, **({"memory": memory} if memory is not None else {})}, indent=2)


def separate(problems: Sequence[Problem]) -> tuple[tuple[Problem, ...], tuple[Missing, ...]]:
    """Faults of the package, and what is only missing here."""
    missing = tuple(each for each in problems if isinstance(each, Missing))
    return tuple(each for each in problems if not isinstance(each, Missing)), missing


def as_sarif(problems: Sequence[Problem], version: str) -> str:
    """One SARIF run. Files are relative to the package folder; lines and columns count from 1.

    What is not offered here is a result like any other, with a property `missing`.
    """
    codes = sorted({each.code for each in problems})
    driver = {"name": "genai-compile", "version": version, "rules": [{"id": code} for code in codes]}
    run = {"tool": {"driver": driver}, "results": [_sarif_result(each, codes) for each in problems]}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _as_data(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "severity": str(problem.severity),
        "file": problem.where.file,
        "line": problem.where.line,
        "column": problem.where.column,
        "path": problem.path,
        "what": problem.what,
        "help": problem.help,
    }


def _as_missing(missing: Missing) -> dict[str, Any]:
    return {"id": missing.id, "needed_by": missing.needed_by, **_as_data(missing)}


def _sarif_result(problem: Problem, codes: list[str]) -> dict[str, Any]:
    where = problem.where
    region = {"startLine": where.line, **({"startColumn": where.column} if where.column else {})} if where.line else {}
    place: dict[str, Any] = {
        "artifactLocation": {"uri": quote(where.file, errors="replace")},
        **({"region": region} if region else {}),
    }
    location: dict[str, Any] = {"physicalLocation": place}
    if problem.path:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.path}]
    text = problem.what + (f" Help: {problem.help}" if problem.help else "")
    level = "error" if problem.severity is Severity.ERROR else "warning"
    at = codes.index(problem.code)
    result = {
        "ruleId": problem.code,
        "ruleIndex": at,
        "level": level,
        "message": {"text": text},
        "locations": [location],
    }
    if isinstance(problem, Missing):
        result["properties"] = {"missing": problem.id, "neededBy": problem.needed_by}
    return result
