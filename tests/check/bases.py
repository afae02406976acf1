"""Valid documents of one topic each, for tests that break one thing of them; no graph stands behind them."""

import functools
import json
from pathlib import Path
from typing import Any

import yaml
from genai_compiler.check.document import check_document
from genai_compiler.problem import Problem
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

from tests.read.documents import DELETE, rule_of

VALID = Path(__file__).parent / "valid"
BASES = ("flow", "served", "session", "io", "tasks", "pictures", "audio", "lora", "drafts")


@functools.cache
def _text(name: str) -> str:
    data = yaml.safe_load("".join((VALID / f"{each}.yaml").read_text() for each in ("contracts", name)))
    return json.dumps({key: value for key, value in data.items() if not key.startswith(".")})


def base(name: str) -> Any:
    """A fresh copy of a base as plain data, nothing in it shared."""
    return json.loads(_text(name))


def broken(name: str, changes: dict[str, object]) -> Any:
    """A base with values replaced, added or taken out, in order (steps apart by `/`; one past a list appends)."""
    data = base(name)
    for path, value in changes.items():
        _change(data, path.split("/"), json.loads(json.dumps(value)) if isinstance(value, dict | list) else value)
    return data


def _change(holder: Any, steps: list[str], value: object) -> None:
    key = int(steps[0]) if isinstance(holder, list) else steps[0]
    if len(steps) > 1:
        _change(holder[key], steps[1:], value)
    elif value is DELETE:
        del holder[key]
    elif isinstance(holder, list) and key == len(holder):
        holder.append(value)
    else:
        holder[key] = value


def problems(data: Any) -> tuple[Problem, ...]:
    """What the structural check says about plain data."""
    places = Places("m.yaml")
    return check_document(parse_metadata(data, places), places)


def found(data: Any) -> list[tuple[str, str]]:
    """(rule, path) of every problem."""
    return [(rule_of(each), each.path) for each in problems(data)]
