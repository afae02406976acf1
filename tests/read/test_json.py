"""JSON text to plain data, against the json module."""

import json
from typing import Any

import pytest
from genai_compiler.problem import CompileError, Place
from genai_compiler.read.json_text import read_json
from genai_compiler.read.tree import Limits
from genai_compiler.read.yaml_text import read_yaml
from hypothesis import given, settings
from hypothesis import strategies as st

LIMITS = Limits()


def _codes(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(CompileError) as caught:
        read_json(text, "m.json", LIMITS)
    return [(each.code, each.where.line, each.where.column) for each in caught.value.problems]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="ascii")), inner),
    max_leaves=20,
)
ROOTS = st.dictionaries(st.text(st.characters(codec="ascii", exclude_characters="\0")), VALUES)


def _has_nul(value: Any) -> bool:
    return "\\u0000" in json.dumps(value)


@settings(deadline=None)
@given(ROOTS, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_what_json_writes_is_read(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if not _has_nul(value):
        assert read_json(text, "m.json", LIMITS)[0] == value


@settings(deadline=None)
@given(st.text(st.sampled_from('{}[]:,"\\ \n0123456789.eE+-truefalsn ab'), max_size=40))
def test_any_text_is_judged_as_json_judges_it(text: str) -> None:
    """Also with a mapping around it, so that the root is no reason to refuse."""
    wrapped = f'{{"a": {text}}}'
    repeats: list[bool] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeats.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    try:
        wanted = json.loads(wrapped, parse_constant=_refuse, object_pairs_hook=mapping)
    except ValueError:
        wanted = None
    try:
        read = read_json(wrapped, "m.json", LIMITS)[0]
    except CompileError as error:
        codes = {each.code for each in error.problems}
        assert wanted is None or any(repeats) or codes <= {"number-out-of-range", "forbidden-character"}
    else:
        assert not any(repeats)
        assert read == wanted


def _refuse(constant: str) -> object:
    raise ValueError(constant)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ('{"a": 1,}', 1, 9),
        ('{"a" 1}', 1, 6),
        ('{"a": 1]', 1, 8),
        ('{"a": [1,]}', 1, 10),
        ('{"a": 01}', 1, 7),
        ('{"a": .5}', 1, 7),
        ('{"a": NaN}', 1, 7),
        ('{"a": truely}', 1, 7),
        ("{'a': 1}", 1, 2),
        ('{"a": "\n"}', 1, 7),
        ('{"a": "\\x"}', 1, 7),
        ('{"a": "open}', 1, 7),
        ('{"a": 1} x', 1, 10),
        ('{"a": 1}{}', 1, 9),
        ('{"a": 1 // no\n}', 1, 9),
        ('{\r\n "a": 1,\r\n "b"; 2}', 3, 5),
        ("{1: 2}", 1, 2),
    ],
)
def test_broken_json_is_one_problem_at_its_place(text: str, line: int, column: int) -> None:
    assert _codes(text) == [("invalid-json", line, column)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "not-a-mapping"),
        ("4", "not-a-mapping"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "duplicate-key"),
        ('{"a": 18446744073709551616}', "number-out-of-range"),
        ('{"a": 1e400}', "number-out-of-range"),
        ('{"a": "\\u0000"}', "forbidden-character"),
        ('{"a": "\\ud800"}', "forbidden-character"),
        ('{"\\udfff": 1}', "forbidden-character"),
        ('{"a": ' + "[" * 100_000, "too-deep"),
    ],
)
def test_what_is_refused(text: str, code: str) -> None:
    assert [each[0] for each in _codes(text)] == [code]


def test_surrogate_pairs_and_escapes() -> None:
    text = r'{"a": "\ud83d\ude00 \" \\ \/ \b\f\n\r\t \u00e9"}'
    assert read_json(text, "m.json", LIMITS)[0] == {"a": '😀 " \\ / \b\f\n\r\t é'}


def test_places() -> None:
    text = '{\n  "a": [10,\r\n    {"b": true}],\r  "é": "x", "c": null}'
    places = read_json(text, "m.json", LIMITS)[1]
    assert places.find(("a", 0)) == Place("m.json", 2, 9)
    assert places.find(("a", 1, "b")) == Place("m.json", 3, 6)
    assert places.find_value(("a", 1, "b")) == Place("m.json", 3, 11)
    assert places.find(("c",)) == Place("m.json", 4, 13)


@settings(deadline=None)
@given(ROOTS)
def test_yaml_reads_json_alike(value: Any) -> None:
    """A JSON document named .yaml means the same (ASCII text; YAML knows no surrogate pairs)."""
    text = json.dumps(value, ensure_ascii=True, indent=1)
    if not _has_nul(value) and "\\ud" not in text and "\\u007f" not in text:
        assert read_yaml(text, "m.yaml", LIMITS)[0] == read_json(text, "m.json", LIMITS)[0]
