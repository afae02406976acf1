"""How a generation ends (known traps F), end to end: scripted logits, compiled, loaded, generated."""

from pathlib import Path
from typing import Any

import genai_runtime
import pytest

from tests.traps.toy import toy

GO = [0]


def streamed(model: genai_runtime.Model, **options: Any) -> tuple[str, genai_runtime.Generation]:
    """The streamed text of a script, after holding it against the text of a second, whole generation."""
    generation = model.generate(GO, **{"max_new_tokens": 30, **options})
    text = "".join(generation)
    whole = model.generate(GO, **{"max_new_tokens": 30, **options})
    assert text == generation.text == whole.text
    assert generation.tokens == whole.tokens
    assert generation.finish_reason == whole.finish_reason
    return text, generation


@pytest.mark.parametrize("emitted", ["<end>", "<turn>"])
def test_f1_any_of_two_end_ids_stops(tmp_path: Path, emitted: str) -> None:
    model = toy(
        tmp_path,
        ["<go>", "Hi", emitted, " more", "<x>"],
        specials=("<go>", "<end>", "<turn>", "<x>"),
        ends=(emitted, "<x>"),
    ).model
    text, generation = streamed(model)
    assert (text, generation.finish_reason, generation.tokens) == ("Hi", "stop", [1, 2])


def test_f1_end_ids_of_every_file_count_and_are_told(tmp_path: Path) -> None:
    """The model says the end token that only generation_config.json names."""
    more = {"generation_config.json": '{"eos_token_id": [2]}'}
    made = toy(tmp_path, ["<go>", "Hi", "<turn>", " more", "<end>"], specials=("<go>", "<turn>", "<end>"), files=more)
    assert streamed(made.model)[1].tokens == [1, 2]
    assert sorted(made.model.describe()["end_ids"]) == [2, 4]
    told = "\n".join((*made.compiled.notes, *map(str, made.compiled.problems)))
    assert "generation_config.json" in told


def test_f2_each_token_comes_once_and_the_end_token_is_no_text(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "a", "b", "<end>"]).model
    for keep in (True, False):
        generation = model.generate(GO, max_new_tokens=9, skip_special_tokens=keep)
        assert list(generation) == ["a", "b"]
        assert generation.tokens == [1, 2, 3]
        assert list(generation) == [], "what was handed out is not handed out again"
        assert generation.text == "ab"
    events = [each.value.item() for each in model.stream({"request.input_ids": _row(GO)})]
    assert events == [1, 2, 3]


def test_f3_stop_strings_are_strings(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "one", "\n\n", "two", "<end>"]).model
    for stop in ("\n\n", ["\n\n"], ("x", "\n\n")):
        text, generation = streamed(model, stop=stop)
        assert (text, generation.finish_reason) == ("one", "stop_string")


def test_f4_a_stop_string_over_several_tokens(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "say", " O", " P", " Q", " R", "<end>"]).model
    text, generation = streamed(model, stop=["O P Q"])
    assert (text, generation.finish_reason) == ("say ", "stop_string")
    assert generation.tokens == [1, 2, 3, 4]


def test_f4_the_start_of_a_stop_string_that_never_ends_is_text(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "say", " O", " P", "<end>"]).model
    text, generation = streamed(model, stop=["O P Q"])
    assert (text, generation.finish_reason) == ("say O P", "stop")
    text, generation = streamed(model, stop=["O P Q"], max_new_tokens=2)
    assert (text, generation.finish_reason) == ("say O", "length")


def test_f5_text_before_the_stop_inside_one_token_is_streamed(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "Who", "?\n", "Me", "<end>"]).model
    text, generation = streamed(model, stop=["\n"])
    assert (text, generation.finish_reason, generation.tokens) == ("Who?", "stop_string", [1, 2])


def test_f5_no_token_comes_after_the_stop_string(tmp_path: Path) -> None:
    """Asking for tokens only must not read on past the stop string."""
    model = toy(tmp_path, ["<go>", "a", "\n", "b", "c", "<end>"]).model
    generation = model.generate(GO, stop="\n", max_new_tokens=30)
    assert generation.tokens == [1, 2]
    assert (generation.text, generation.finish_reason, generation.stats.new_tokens) == ("a", "stop_string", 2)


def test_f7_a_users_stop_joins_the_packages_own(tmp_path: Path) -> None:
    model = toy(tmp_path, ["<go>", "Hi", "<end>", "###", "<go2>"], specials=("<go>", "<end>", "<go2>")).model
    text, generation = streamed(model, stop=["###"])
    assert (text, generation.finish_reason) == ("Hi", "stop")
    text, generation = streamed(model, stop=["###"], stop_on_eos=False, skip_special_tokens=False)
    assert (text, generation.finish_reason) == ("Hi<end>", "stop_string")


def test_a_row_that_stops_leaves_its_neighbours_running(tmp_path: Path) -> None:
    """Row 0 ends by a stop string, row 1 by its end token, row 2 by the limit."""
    model = toy(tmp_path, ["<go>", "a", "!", "b", "c", "d", "<end>", "x", "y", "z", "w", "v", "u", "t"]).model
    batch = model.generate(batch=[[0], [3], [7]], stop=["!"], max_new_tokens=5)
    assert [row.tokens for row in batch.rows] == [[1, 2], [4, 5, 6], [8, 9, 10, 11, 12]]
    assert [row.text for row in batch.rows] == ["a", "cd", "yzwvu"]
    assert [row.finish_reason for row in batch.rows] == ["stop_string", "stop", "length"]


def _row(ids: list[int]) -> Any:
    import numpy as np

    return np.array([ids], np.int64)
