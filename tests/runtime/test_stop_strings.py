"""Stop strings against a matcher that looks at the text character by character."""

from itertools import pairwise

import pytest
from genai_runtime.problem import RequestError
from genai_runtime.stop_strings import StopStrings, join_stops
from hypothesis import given, settings
from hypothesis import strategies as st


def run(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, int | None]:
    matcher = StopStrings(stops)
    out = ""
    for piece in pieces:
        text, stopped, which = matcher.push(piece)
        out += text
        if stopped:
            assert matcher.push("more") == ("", True, which)
            return out, which
        assert which is None
    return out + matcher.finish(), None


def slow(stops: tuple[str, ...], text: str) -> tuple[str, int | None]:
    """The definition: the shortest text that ends with a stop string, without the longest such one."""
    for end in range(1, len(text) + 1):
        found = [(-len(stop), i) for i, stop in enumerate(stops) if text[:end].endswith(stop)]
        if found:
            length, which = min(found)
            return text[: end + length], which
    return text, None


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


SMALL = st.text("ab\n", max_size=14)


@given(
    text=SMALL,
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4).map(tuple),
    places=st.lists(st.integers(0, 99), max_size=6),
)
@settings(max_examples=500, deadline=None)
def test_streamed_equals_whole_for_any_cut(text: str, stops: tuple[str, ...], places: list[int]) -> None:
    assert run(stops, cut(text, places)) == slow(stops, text)


@given(text=SMALL, stop=st.text("ab\n", min_size=1, max_size=5), places=st.lists(st.integers(0, 99), max_size=6))
@settings(max_examples=200, deadline=None)
def test_what_is_out_never_is_part_of_a_stop_string(text: str, stop: str, places: list[int]) -> None:
    matcher, out = StopStrings((stop,)), ""
    for piece in cut(text, places):
        text_out, stopped, _ = matcher.push(piece)
        out += text_out
        assert text.startswith(out)
        assert stop not in out
        if stopped:
            assert text.startswith(out + stop)
            return


def test_f3_stop_strings_are_first_class() -> None:
    assert run(("\n\n",), ["one\n", "\ntwo"]) == ("one", 0)


def test_f4_a_stop_string_over_several_tokens() -> None:
    assert run(("O P Q",), ["a", " O", " P", " Q", " R"]) == ("a ", 0)
    assert run(("O P Q",), ["a", " O", " P", " R"]) == ("a O P R", None)


def test_f5_text_before_the_stop_inside_one_token_stays() -> None:
    assert run(("\n",), ["ok", "?\n"]) == ("ok?", 0)


def test_f7_a_users_stop_joins_the_packages_own() -> None:
    stops = join_stops(["<|end|>"], "stop", None, ("<|end|>", "x"))
    assert stops == ("<|end|>", "stop", "x")
    assert run(stops, ["a<|e", "nd|>b"]) == ("a", 0)
    assert run(stops, ["a st", "op"]) == ("a ", 1)


def test_nothing_is_held_without_need() -> None:
    matcher = StopStrings(("stop",))
    assert [matcher.push(piece).text for piece in ("a", "s", "t", "a", "st", "x")] == ["a", "", "", "sta", "", "stx"]
    assert StopStrings(()).push("s").text == "s"


def test_bad_stops_are_refused() -> None:
    for stops in (("",), ("a", ""), "ab", (1,), ("x" * 5000,), tuple(map(str, range(65)))):
        with pytest.raises(RequestError, match="bad-stop"):
            StopStrings(stops)  # type: ignore[arg-type]
