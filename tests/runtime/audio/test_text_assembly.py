"""Text assembly: each transform against a regular expression that says the same, and texts made to keep it busy."""

import re
from typing import Any

import pytest
from genai_runtime import RequestError
from genai_runtime.text_assembly import (
    MAX_TEXT,
    TRANSFORMS,
    TextAssembly,
    keep_leading_bracket_tags,
    lowercase_bracket_tags,
    rewrite_delimited_tags,
    strip_markdown,
)
from hypothesis import given, settings
from hypothesis import strategies as st

S = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""White space, as a class."""


def trim(text: str) -> str:
    return re.sub(f"^{S}+|{S}+\\Z", "", text)


def rewritten(text: str, opening: str, closing: str) -> str:
    def inside(found: re.Match[str]) -> str:
        held = trim(found[1])
        parts = re.match(f"([^\\S]*?.*?){S}(.*)\\Z", held, re.DOTALL)
        return f"{parts[1]} is {trim(parts[2])}" if parts else held

    return re.sub(f"{re.escape(opening)}([^\n]*?){re.escape(closing)}", inside, text)


def stripped(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        line = re.sub(f"^{S}{{0,3}}#{{1,6}}{S}+", "", line)
        line = re.sub(f"^{S}*[*+-]{S}+", "", line)
        before = ""
        while before != line:
            before, line = line, re.sub(r"\*\*([^*]+)\*\*", r"\1", line)
        line = re.sub(r"(^|[^*])\*([^*]+)\*([^*]|\Z)", r"\1\2\3", line)
        line = re.sub(f"{S}+\\Z", "", line)
        if not re.match(f"{S}*[-*_]{{3,}}{S}*\\Z", line):
            lines.append(line)
    return "\n".join(lines).replace("\u2022 ", "").replace("    ", "")


def led(text: str) -> str:
    found = [(re.match(r"[ \t]*((?:\[[^\]]+\][ \t]*)+)", line), line) for line in text.split("\n")]
    return "\n".join(trim(each[1]) if each else line for each, line in found)


def lowered(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]", lambda found: found[0].lower(), text)


TEXTS = st.text(st.sampled_from("aB[]<>|*#-+_ \t\n\x85\x1c\u2003\u2022x"), max_size=60)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_transforms_are_the_expressions_that_say_the_same(text: str) -> None:
    assert strip_markdown(text) == stripped(text)
    assert keep_leading_bracket_tags(text) == led(text)
    assert lowercase_bracket_tags(text) == lowered(text)
    for opening, closing in (("<|", "|>"), ("<", ">"), ("*", "*"), ("a", "a"), ("<\n", ">"), ("<", "\n>")):
        assert rewrite_delimited_tags(text, opening, closing) == rewritten(text, opening, closing)


@pytest.mark.parametrize(
    ("kind", "given_text", "expected"),
    [
        ("rewrite_delimited_tags", "a <| tempo  96 bpm |> b <|x|>", "a tempo is 96 bpm b x"),
        ("rewrite_delimited_tags", "<|one\ntwo|> <||>", "<|one\ntwo|> "),
        ("strip_markdown", "## Title\n* one\n+ two\n-three\n####### x", "Title\none\ntwo\n-three\n####### x"),
        ("strip_markdown", "***both*** **a** *b* c*d\n * * *\n-----\n___", "both a b c*d\n"),
        ("strip_markdown", "\u2022 x        y", "xy"),
        ("keep_leading_bracket_tags", " [Verse] [2] la la\nla [x]\n[] y\n[open", "[Verse] [2]\nla [x]\n[] y\n[open"),
        ("replace", "a ^ b ^ c", "a\nb\nc"),
        ("lowercase_bracket_tags", "A [ÄB\nC] [] [D", "A [äb\nc] [] [D"),
        ("collapse_newlines", "a\n\n\nb\n \n\nc", "a\nb\n \nc"),
        ("prefix", "b", "[start]\nb"),
    ],
)
def test_a_transform(kind: str, given_text: str, expected: str) -> None:
    facts = {"open": "<|", "close": "|>", "from": " ^ ", "to": "\n", "value": "[start]\n"}
    assert TRANSFORMS[kind](given_text, facts) == expected


@pytest.mark.parametrize("kind", sorted(TRANSFORMS))
@pytest.mark.parametrize("unit", ["<|", "*", "**", "**a", "*a", "[", "[a]", "[]", "\n", "#", " ", "- ", "<|a", "|>"])
def test_the_longest_text_of_one_mark_is_done_with(kind: str, unit: str) -> None:
    facts = {"open": "<|", "close": "|>", "from": "a", "to": "b", "value": "x"}
    text = (unit * MAX_TEXT)[:MAX_TEXT]
    assert len(TRANSFORMS[kind](text, facts)) <= len(text) * 3  # it ends: a text that keeps it busy would hang here


@pytest.mark.parametrize("text", ["x", "x**y", "**x", "x**"])
def test_stars_around_a_text_are_taken_off_at_once(text: str) -> None:
    """One pass over the line a pair of stars would take minutes here; requests of this length come of `replace`."""
    stars = "*" * (1 << 17)
    assert strip_markdown(f"{stars}{text}{stars}") == stripped(f"****{text}****")


def program(**changes: Any) -> TextAssembly:
    held = {"max_input_tokens": 8, "max_output_units": 4, "state_advance_units": 1, "segments": [{"literal": "<"},
            {"field": "input", "transforms": [{"kind": "prefix", "value": "!"}]}, {"literal": "|"},
            {"field": "instructions", "transforms": []}]}  # fmt: skip
    return TextAssembly("assembly", {**held, **changes})


def test_segments_stand_one_behind_the_other() -> None:
    assert program().prompt("text", "how") == "<!text|how"


def test_a_text_or_what_grows_of_it_is_bounded() -> None:
    grow = [{"field": "input", "transforms": [{"kind": "replace", "from": "a", "to": "b" * 1000}]}]
    for made, text in ((program(), "x" * (MAX_TEXT + 1)), (program(segments=grow), "a" * 2000)):
        with pytest.raises(RequestError) as refused:
            made.prompt(text, "")
        assert refused.value.code == "text-too-long"


def test_guidance_makes_a_second_row() -> None:
    guided = program(guidance_rows={"unconditional_token_id": 9, "replace_from": 1, "preserve_trailing": 2})
    assert guided.rows([1, 2, 3, 4, 5]) == [[1, 2, 3, 4, 5], [1, 9, 9, 4, 5]]
    assert guided.rows([1, 2, 3]) == [[1, 2, 3], [1, 2, 3]]
    assert program().rows([1, 2]) == [[1, 2]]
    none_kept = program(guidance_rows={"unconditional_token_id": 9, "replace_from": 0, "preserve_trailing": 0})
    assert none_kept.rows([1, 2]) == [[1, 2], [9, 9]]
    for made, tokens, code in ((guided, [1, 2], "text-too-short"), (program(), [1] * 9, "text-too-long")):
        with pytest.raises(RequestError) as refused:
            made.rows(tokens)
        assert refused.value.code == code
