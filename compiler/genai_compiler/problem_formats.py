"""Problems for people and machines: text, JSON, and SARIF 2.1.0 that code hosts show beside the lines."""

import json
from collections.abc import Sequence
from typing import Any

from genai_compiler.problem import Problem, Severity

FORMATS = ("text", "json", "sarif")
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(problems: Sequence[Problem]) -> str:
    """A list of objects, one a problem."""
    return json.dumps([_as_data(each) for each in problems], indent=2)


def as_sarif(problems: Sequence[Problem], version: str) -> str:
    """One SARIF run. Files are relative to the package folder; lines and columns count from 1."""
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


def _sarif_result(problem: Problem, codes: list[str]) -> dict[str, Any]:
    where = problem.where
    region = {"startLine": where.line, **({"startColumn": where.column} if where.column else {})} if where.line else {}
    place: dict[str, Any] = {"artifactLocation": {"uri": where.file}, **({"region": region} if region else {})}
    location: dict[str, Any] = {"physicalLocation": place}
    if problem.path:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.path}]
    text = problem.what + (f" Help: {problem.help}" if problem.help else "")
    level = "error" if problem.severity is Severity.ERROR else "warning"
    at = codes.index(problem.code)
    return {"ruleId": problem.code, "ruleIndex": at, "level": level, "message": {"text": text}, "locations": [location]}
