"""YAML text to plain data: scalars, keys, what is refused, and the bounds."""

import pytest
import yaml
from genai_compiler.problem import CompileError, Place
from genai_compiler.read import yaml_text
from genai_compiler.read.tree import Limits
from genai_compiler.read.yaml_text import read_yaml

LIMITS = Limits()


@pytest.fixture(params=["fast", "plain"], autouse=True)
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs on libyaml (where PyYAML has it) and on the pure Python parser."""
    if request.param == "plain":
        monkeypatch.setattr(yaml_text, "_LOADER", yaml.SafeLoader)


def _read(text: str, limits: Limits = LIMITS) -> object:
    return read_yaml(text, "m.yaml", limits)[0]


def _codes(text: str, limits: Limits = LIMITS) -> list[tuple[str, int, int]]:
    with pytest.raises(CompileError) as caught:
        _read(text, limits)
    return [(each.code, each.where.line, each.where.column) for each in caught.value.problems]


# The core schema of YAML 1.2 (section 10.3.2 of the YAML specification)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("nUll", "nUll"),
        ("true", True), ("False", False), ("TRUE", True), ("yes", "yes"), ("no", "no"), ("on", "on"),
        ("Off", "Off"), ("y", "y"),
        ("0", 0), ("-0", 0), ("+12", 12), ("017", 17), ("0o17", 15), ("0x1F", 31), ("1_000", "1_000"), ("0b1", "0b1"),
        ("18446744073709551615", 2**64 - 1), ("-9223372036854775808", -(2**63)),
        ("1e3", 1000.0), ("1.", 1.0), (".5", 0.5), ("-1.5E-2", -0.015), ("1.0", 1.0), ("1.0.0", "1.0.0"),
        (".", "."),
        (".inf", float("inf")), ("-.INF", float("-inf")), ("+.inf", float("inf")), ("inf", "inf"), ("nan", "nan"),
        ("12:30", "12:30"), ("2024-01-01", "2024-01-01"), ("'1'", "1"), ('"true"', "true"), ("''", ""), ("=", "="),
        ("|\n    a\n    b\n", "a\nb\n"), (">\n    a\n    b\n", "a b\n"), ('"\\u00e9\\U0001F600"', "é😀"), ("١٢", "١٢"),
    ],
)  # fmt: skip
def test_scalars(text: str, value: object) -> None:
    read = _read(f"a: {text}\n")
    assert read == {"a": value}
    assert isinstance(read, dict)
    assert type(read["a"]) is type(value)


def test_nan() -> None:
    read = _read("a: .NaN\n")
    assert isinstance(read, dict)
    assert read["a"] != read["a"]


def test_keys_are_texts() -> None:
    text = 'true: 1\nFalse: 2\n"True": 3\n1: 4\n1.0: 5\nnull: 6\n0x10: 7\nno: 8\n"": 9\n? long\n: 10\n'
    wanted = {"true": 1, "false": 2, "True": 3, "1": 4, "1.0": 5, "null": 6, "0x10": 7, "no": 8, "": 9, "long": 10}
    assert _read(text) == wanted


def test_numbers_no_field_can_hold() -> None:
    assert _codes("a: 18446744073709551616\nb: [1e999, -9223372036854775809]\n") == [
        ("number-out-of-range", 1, 4),
        ("number-out-of-range", 2, 5),
        ("number-out-of-range", 2, 12),
    ]
    assert _codes(f"a: {'9' * 5000}\n") == [("number-out-of-range", 1, 4)]


def test_repeated_keys_are_all_reported_with_both_places() -> None:
    text = "a: 1\nb: {x: 1, y: 2, x: 3}\na: 2\na: 3\ntrue: 1\n'true': 2\n"
    with pytest.raises(CompileError) as caught:
        _read(text)
    found = [(each.where.line, each.where.column, each.path) for each in caught.value.problems]
    assert found == [(2, 17, "b.x"), (3, 1, "a"), (4, 1, "a"), (6, 1, "true")]
    assert "first at m.yaml:2" in caught.value.problems[0].what
    assert all(each.code == "duplicate-key" and "(V001)" in each.what for each in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("a: !!python/object/apply:os.system ['true']\n", "yaml-tag", 1, 4),
        ("a: !!binary aGk=\n", "yaml-tag", 1, 4),
        ("a: !!str 1\n", "yaml-tag", 1, 4),
        ("a: ! 1\n", "yaml-tag", 1, 4),
        ("a: !local {}\n", "yaml-tag", 1, 4),
        ("x: &x {a: 1}\nb:\n  <<: *x\n", "merge-key", 3, 3),
        ("? [a]\n: 1\n", "odd-key", 1, 3),
        ("x: &x 1\n? *x\n: 1\n", "odd-key", 2, 3),
        ("a: *x\n", "bad-alias", 1, 4),
        ("a: &x [*x]\n", "bad-alias", 1, 8),
        ("a: 1\n---\nb: 2\n", "several-documents", 2, 1),
        ("- 1\n", "not-a-mapping", 1, 1),
        ("text\n", "not-a-mapping", 1, 1),
        ("", "not-a-mapping", 1, 1),
        ("# nothing\n", "not-a-mapping", 1, 1),
        ('a: "\\0"\n', "forbidden-character", 1, 4),
        ('"b\\0": 1\n', "forbidden-character", 1, 1),
    ],
)
def test_what_is_refused(text: str, code: str, line: int, column: int) -> None:
    assert _codes(text) == [(code, line, column)]


@pytest.mark.parametrize(
    "text", ["a: [1\n", "a: 'x\n", "a: b: c\n", "\ta: 1\n", "a: %\n", 'a: "\\q"\n', "a: \x07\n", "}\n"]
)
def test_broken_yaml_is_one_problem(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        _read(text)
    (problem,) = caught.value.problems
    assert problem.code == "invalid-yaml"
    assert "not valid YAML" in problem.what


def test_a_quoted_merge_key_is_a_plain_key() -> None:
    assert _read('"<<": 1\n') == {"<<": 1}


def test_aliases_are_shared_values() -> None:
    assert _read("a: &x {k: [1]}\nb: *x\nc: [*x, *x]\n") == {
        "a": {"k": [1]},
        "b": {"k": [1]},
        "c": [{"k": [1]}, {"k": [1]}],
    }
    assert _read("a: &x 1\nb: &x 2\nc: *x\n") == {"a": 1, "b": 2, "c": 2}


def test_alias_bomb() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert [each[0] for each in _codes("\n".join(lines))] == ["too-many-values"]


def test_a_long_text_is_counted_as_often_as_aliases_write_it() -> None:
    """Sharing costs nothing here, but whatever speaks of the values writes each of them out."""
    limits = Limits(size=1000, text=100)
    shared = f"a: &a {'x' * 100}\nb: [{'*a, ' * 8}]\n"
    assert _read(shared, limits) is not None
    for more in ("c: *a\n", "c: &c [*a]\nd: *c\n", f"{'k' * 99}: 1\n", "c: {k: *a}\n"):
        assert [each[0] for each in _codes(shared + more, limits)] == ["too-many-values"]
    bomb = [f"a0: &a0 {'x' * 60_000}", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 7)}]" for n in range(1, 6))]
    assert [each[0] for each in _codes("\n".join(bomb))] == ["too-many-values"]


def test_one_text_is_bounded() -> None:
    limits = Limits(text=10)
    assert _read("aaaaaaaaaa: bbbbbbbbbb\n", limits) == {"a" * 10: "b" * 10}
    for text in ("aaaaaaaaaaa: 1\n", "a: bbbbbbbbbbb\n", "a: >\n  bbbbbb\n  bbbbbb\n", "a: ['bbbbbbbbbbb']\n"):
        assert [each[0] for each in _codes(text, limits)] == ["too-long"]


def test_alias_chain_counts_its_depth() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [[[*a{n - 1}]]]" for n in range(1, 40))]
    assert [each[0] for each in _codes("\n".join(lines))] == ["too-deep"]


def test_depth_is_bounded() -> None:
    assert _read("a: " + "[" * 63 + "]" * 63) is not None
    assert [each[0] for each in _codes("a: " + "[" * 64 + "]" * 64)] == ["too-deep"]
    for bomb in ("a: " + "[" * 100_000, "{a: " * 100_000, "- " * 100_000):
        assert {each[0] for each in _codes(bomb)} <= {"too-deep", "invalid-yaml"}  # libyaml has a bound of its own


def test_values_are_bounded() -> None:
    limits = Limits(values=100)
    assert _codes("a: [" + "1," * 200 + "]", limits)[0][0] == "too-many-values"
    assert _read("a: [" + "1," * 97 + "]", limits) is not None


def test_the_number_of_problems_is_bounded() -> None:
    codes = [each[0] for each in _codes("a: 1\n" * 1000)]
    assert codes.count("duplicate-key") == LIMITS.problems
    assert codes.count("too-many-problems") == 1


def test_line_endings_and_unicode() -> None:
    text = "b: é\r\na: [日本, ' 😀']\r\nc: |\r\n  x\r\n  y\r\n"
    data, places = read_yaml(text, "m.yaml", LIMITS)
    assert data == {"b": "é", "a": ["日本", " 😀"], "c": "x\ny\n"}
    assert places.find(("a", 1)) == Place("m.yaml", 2, 9)
    assert places.find(("c",)) == Place("m.yaml", 3, 1)


def test_yaml_reads_what_the_library_reads() -> None:
    text = "a: {b: [1, 2.5, 'x'], c: ~}\nd:\n- e: f\n  g: >-\n    one\n    two\n- - 1\n  - 2\n"
    assert _read(text) == yaml.safe_load(text)
