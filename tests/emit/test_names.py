"""Names, literals and comments: the only ways from a package's strings into code."""

import ast
import builtins
import keyword

import pytest
from genai_compiler.emit.names import BUILTINS, KEYWORDS, MAX_NAME, Names, comment, literal
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.recursive(
    st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("decoder.setup.logits", "decoder_setup_logits"),
        ("x", "x"),
        ("Prompt-Mask", "prompt_mask"),
        ("1st", "v_1st"),
        ("é", "value"),
        ("", "value"),
        ("...", "value"),
        ("__class__", "class_2"),
        ("lambda", "lambda_2"),
        ("print", "print_2"),
        ("match", "match_2"),
    ],
)
def test_a_name_keeps_what_is_readable(value: str, name: str) -> None:
    assert Names().of(value) == name


def test_names_do_not_collide_and_are_stable() -> None:
    names = Names(frozenset({"request"}))
    assert [names.of(each) for each in ("a.b", "a_b", "a-b", "a.b", "request")] == [
        "a_b",
        "a_b_2",
        "a_b_3",
        "a_b",
        "request_2",
    ]
    assert names.fresh("a b") == "a_b_4"
    assert names.constant("a.b") == "A_B"


def test_names_do_not_depend_on_the_interpreter_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "frozen_later", None, raising=False)
    monkeypatch.setattr(keyword, "softkwlist", [*keyword.softkwlist, "lazily"])
    assert [Names().of(each) for each in ("frozen_later", "lazily")] == ["frozen_later", "lazily"]


def test_every_lower_case_name_of_this_interpreter_is_reserved() -> None:
    own = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
    assert {each for each in own if each.islower() and not each.startswith("_")} <= KEYWORDS | BUILTINS


@given(st.lists(st.text(), max_size=30))
def test_any_strings_give_distinct_identifiers(values: list[str]) -> None:
    names = Names()
    given_names = {value: names.of(value) for value in values}
    assert len(set(given_names.values())) == len(given_names)
    for each in given_names.values():
        assert each.isascii()
        assert each.isidentifier()
        assert not keyword.iskeyword(each)
        assert not each.startswith("_")
        assert not hasattr(builtins, each)
        assert len(each) <= MAX_NAME + len("v_") + 4


@given(VALUES)
def test_a_literal_is_that_value(value: object) -> None:
    text = literal(value)
    assert text.isascii()
    assert "\n" not in text
    assert ast.literal_eval(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", '"plain"'),
        ('say "x"', "'say \"x\"'"),
        ("it's", '"it\'s"'),
        ("'\"", '"\'\\""'),
        ("a\nb", '"a\\nb"'),
        ("\\", '"\\\\"'),
        ((1,), "(1,)"),
        ((), "()"),
        (True, "True"),
        (1.5, "1.5"),
        (float("inf"), 'float("inf")'),
    ],
)
def test_literals_as_formatters_write_them(value: object, text: str) -> None:
    assert literal(value) == text


def test_other_objects_have_no_literal() -> None:
    with pytest.raises(TypeError):
        literal([1])


@given(st.text())
def test_a_comment_is_one_harmless_line(text: str) -> None:
    made = comment(text)
    assert made.isascii()
    assert made.isprintable()
    assert '"""' not in made
    assert "\\" not in made
    assert [type(node) for node in ast.parse(f"# {made}\n'x'").body] == [ast.Expr]
    assert isinstance(ast.parse(f'"""x {made} x"""').body[0], ast.Expr)
