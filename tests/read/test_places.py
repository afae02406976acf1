"""Places: the source text itself says what stands where."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from genai_compiler.problem import CompileError, Place
from genai_compiler.read.files import read_document
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.validate import parse_metadata

from tests.read.documents import FULL, change, full

BLOCK = """\
# comment
pipeline:
  workflow:
    manifest: &m
      capabilities: [a,
        b]
    steps:
    - kind: invoke
      component: x
    -
      kind: emit
    - {kind: emit, "quoted key": 1, deep: {a: [1, 2]}}
again: *m
list:
  - *m
"""


def _every_path(value: Any, path: DocPath = ()) -> Iterator[tuple[DocPath, Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _every_path(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _every_path(each, (*path, index))


def _text_at(source: str, place: Place) -> str:
    return source.splitlines()[place.line - 1][place.column - 1 :]


def _read(tmp_path: Path, name: str, text: str) -> tuple[Any, Places]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_document(tmp_path / name, tmp_path)


def test_block_and_flow(tmp_path: Path) -> None:
    places = _read(tmp_path, "m.yaml", BLOCK)[1]
    steps: DocPath = ("pipeline", "workflow", "steps")
    found = {
        path: (places.find(path).line, places.find(path).column)
        for path in [(), steps, (*steps, 0), (*steps, 0, "component"), (*steps, 1), (*steps, 2, "deep", "a", 1)]
    }
    last = BLOCK.splitlines()[11].index("2]}") + 1
    assert list(found.values()) == [(2, 1), (7, 5), (8, 7), (9, 7), (11, 7), (12, last)]
    assert places.find_value(steps) == Place("m.yaml", 8, 5)
    assert places.find(("pipeline", "workflow", "manifest", "capabilities", 1)) == Place("m.yaml", 6, 9)


def test_what_stands_behind_an_alias(tmp_path: Path) -> None:
    places = _read(tmp_path, "m.yaml", BLOCK)[1]
    assert places.find(("again",)) == Place("m.yaml", 13, 1)
    assert places.find_value(("again",)) == Place("m.yaml", 13, 8)
    assert places.find(("again", "capabilities")) == Place("m.yaml", 5, 7)
    assert places.find(("list", 0)) == Place("m.yaml", 15, 5)


def test_the_nearest_enclosing_place(tmp_path: Path) -> None:
    places = _read(tmp_path, "m.yaml", BLOCK)[1]
    assert places.find(("pipeline", "workflow", "steps", 0, "inputs", "x")) == Place("m.yaml", 8, 7)
    assert places.find(("pipeline", "workflow", "steps", 9, "kind")) == Place("m.yaml", 7, 5)
    assert places.find(("nothing",)) == Place("m.yaml", 2, 1)
    assert Places("m.yaml").find(("pipeline",)) == Place("m.yaml", 0, 0)


def test_every_key_stands_where_it_is_said_to_in_yaml(tmp_path: Path) -> None:
    data, places = _read(tmp_path, "m.yaml", FULL)
    assert data == full()
    for path, value in _every_path(data):
        if path and isinstance(path[-1], str):
            assert _text_at(FULL, places.find(path)).startswith(path[-1] + ":"), path
        if isinstance(value, str):
            assert _text_at(FULL, places.find_value(path)).lstrip('"').startswith(value), path


@pytest.mark.parametrize("indent", [None, 2])
def test_every_key_stands_where_it_is_said_to_in_json(tmp_path: Path, indent: int | None) -> None:
    text = json.dumps(full(), indent=indent)
    data, places = _read(tmp_path, "m.json", text)
    assert data == full()
    for path, value in _every_path(data):
        if path and isinstance(path[-1], str):
            assert _text_at(text, places.find(path)).startswith(json.dumps(path[-1])), path
        if not isinstance(value, dict | list):
            assert _text_at(text, places.find_value(path)).startswith(json.dumps(value)), path


@pytest.mark.parametrize("name", ["m.yaml", "m.json"])
def test_problems_carry_the_line(tmp_path: Path, name: str) -> None:
    data = change(full(), "pipeline/workflow/steps/2/mode", "append ")
    text = json.dumps(data, indent=1) if name == "m.json" else yaml.safe_dump(data, sort_keys=False)
    with pytest.raises(CompileError) as caught:
        parse_metadata(*_read(tmp_path, name, text))
    (problem,) = caught.value.problems
    assert "append " in _text_at(text, problem.where)
    assert _text_at(text, problem.where).lstrip('"').startswith("mode")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("pipeline", "workflow", "steps", 0, "steps", 3), "pipeline.workflow.steps[0].steps[3]"),
        (("inputs", "request.ids", "x"), 'inputs["request.ids"].x'),
        (("a-b", "_c", "d e", "1", ""), 'a-b._c["d e"]["1"][""]'),
        (('q"\\', "é"), '["q\\"\\\\"]["é"]'),
        (("a\nb\u202e",), '["a\\nb\\u202e"]'),
        (("x" * 1000,), '["' + "x" * 119 + '…"]'),
    ],
)
def test_paths_as_text(path: DocPath, text: str) -> None:
    assert format_path(path) == Places.format_path(path) == text
