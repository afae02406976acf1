"""Choosing tokens (known traps A8 and G), end to end: scripted logits under a package's or a caller's options."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler import CompileError, check_package, compile_package
from genai_compiler.problem import Severity
from genai_compiler.read.config_keys import SEARCH
from genai_compiler.summary import summary
from onnx import helper

from tests.lower.packages import Recipe, decoder, write_package
from tests.traps.toy import Made, Table, toy

LETTERS = ["<go>", *"abcdefghijklmn", "<end>"]
END = len(LETTERS) - 1


def scores(rows: dict[str, dict[str, float]]) -> Table:
    """Logits by letter: what follows what. Unnamed rows are flat."""
    table = np.zeros((len(LETTERS), len(LETTERS)), np.float32)
    table[:, END] = -20
    for row, entries in rows.items():
        for column, score in entries.items():
            table[LETTERS.index(row), LETTERS.index(column)] = score
    return table


def ids(text: str) -> list[int]:
    return [LETTERS.index(each) for each in text]


# ---- A8: every search key --------------------------------------------------------------------------------------------

LOOPING = scores({"<go>": {"a": 9, "d": 7.5}, "a": {"b": 9, "c": 8}, "b": {"a": 9, "c": 8.5}, "c": {"<end>": 9, "a": 8},
                  "d": {"<end>": 9}})  # fmt: skip
"""Greedy from <go>: a b a b ... for ever; c and d end it."""


def text_of(made: Made, **options: Any) -> str:
    return made.model.generate([0], **{"max_new_tokens": 8, **options}).text


def test_a8_no_repeat_ngram_of_the_package_breaks_the_loop(tmp_path: Path) -> None:
    """After a b a b, neither bigram may come again: b must be followed by its second choice."""
    assert text_of(toy(tmp_path / "plain", LETTERS, table=LOOPING)) == "abababab"
    config = {"search": {"no_repeat_ngram_size": 3}}
    made = toy(tmp_path / "set", LETTERS, table=LOOPING, config=config)
    assert text_of(made) == "ababc"
    assert text_of(made, no_repeat_ngram_size=0) == "abababab", "the caller's value beats the package's"


SAMPLING = {"do_sample": True, "random_seed": 3, "temperature": 5.0}  # so hot that the scripts' second choices come
VALUES: dict[str, dict[str, Any]] = {
    "do_sample": {"do_sample": True, "temperature": 5.0},
    "temperature": {**SAMPLING, "temperature": 0.2},
    "top_k": {**SAMPLING, "top_k": 2},
    "top_p": {**SAMPLING, "top_p": 0.5},
    "random_seed": {**SAMPLING, "random_seed": 4},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "min_length": {"min_length": 12},
    "max_length": {"max_length": 5},
}
"""A value of each key that should change what a toy says, with the keys it needs beside it."""
BESIDE = {"do_sample": {"random_seed": 3}, "random_seed": {"random_seed": 3}}


@pytest.mark.parametrize("key", sorted(SEARCH))
def test_a8_every_search_key_changes_the_tokens_or_is_spoken_of(tmp_path: Path, key: str) -> None:
    if key in VALUES:
        wanted = VALUES[key]
        plain = {name: value for name, value in wanted.items() if name != key} | BESIDE.get(key, {})
        assert tokens_under(tmp_path / "with", {**plain, **wanted}) != tokens_under(tmp_path / "without", plain)
        return
    stated = {"early_stopping": False, "past_present_share_buffer": True, "audio_interleaved": True}
    config = {"search": {key: stated.get(key, 5)}}
    package = write_package(tmp_path / "p", Recipe(op="attention"), config)
    if key == "chunk_size":  # it changes no token
        compiled = compile_package(package, out=tmp_path / "out")
        assert any("prompt      by runs of 5 tokens" in each for each in summary(compiled, package))
        return
    problems = check_package(package)
    assert any(each.path == f"search.{key}" for each in problems)


def tokens_under(folder: Path, search: dict[str, Any]) -> list[list[int]]:
    """What a toy says under a package's search section: a script that loops, one that ends early, and a flat one."""
    ending = scores({"<go>": {"a": 9}, "a": {"<end>": 9, "b": 8}, "b": {"<end>": 9, "c": 8.5}, "c": {"<end>": 9}})
    said = []
    for name, table in (("looping", LOOPING), ("ending", ending)):
        model = toy(folder / name, LETTERS, table=table, config={"search": search}).model
        said += [model.generate([0], max_new_tokens=None if "max_length" in search else 24).tokens]
        said += [model.generate(ids("e"), max_new_tokens=6).tokens]
    return said


# ---- G1, G3, G4 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("times", "fact", "said"), [(5, 2.2, "a"), (1, 2.2, "a"), (5, 2.0, "b"), (1, 2.0, "b")])
def test_g1_a_repetition_penalty_counts_a_token_once(tmp_path: Path, times: int, fact: float, said: str) -> None:
    """2.2 / 1.1 = 2.0 stays above 1.9 however often the token stood in the prompt; 2.0 / 1.1 = 1.82 does not."""
    model = toy(tmp_path, LETTERS, table=scores({"n": {"a": fact, "b": 1.9}})).model
    generation = model.generate([*ids("a" * times), *ids("n")], repetition_penalty=1.1, max_new_tokens=1)
    assert generation.text == said


def test_g1_the_window_is_optional(tmp_path: Path) -> None:
    model = toy(tmp_path, LETTERS, table=scores({"n": {"a": 2.0, "b": 1.9}})).model
    prompt = [*ids("a"), *ids("cdefn")]
    assert model.generate(prompt, repetition_penalty=1.1, max_new_tokens=1).text == "b"
    assert model.generate(prompt, repetition_penalty=1.1, penalty_window=3, max_new_tokens=1).text == "a"


FLAT: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "do_sample": True, "max_new_tokens": 12, "stop_on_eos": False}


def test_g3_a_seed_holds_beside_requests_without_one(tmp_path: Path) -> None:
    model = toy(tmp_path, LETTERS, table=scores({})).model
    alone = model.generate(ids("a"), seed=7, **FLAT).tokens
    for _ in range(3):
        rows = model.generate(batch=[ids("b"), ids("a"), ids("ccc")], seed=[None, 7, None], **FLAT).rows
        assert rows[1].tokens == alone
    assert len({tuple(model.generate(ids("a"), seed=seed, **FLAT).tokens) for seed in range(6)}) == 6


def test_g3_requests_interleaved_keep_their_own_generators(tmp_path: Path) -> None:
    model = toy(tmp_path, LETTERS, table=scores({})).model
    alone = [model.generate(ids("a"), seed=seed, **FLAT).text for seed in (7, 8)]
    streams = [iter(model.generate(ids("a"), seed=seed, **FLAT)) for seed in (7, 8)]
    mixed = ["", ""]
    for _ in range(12):
        for at, stream in enumerate(streams):
            mixed[at] += next(stream, "")
    assert mixed == alone
    assert alone[0] != alone[1]


def test_g4_penalties_stay_with_their_row(tmp_path: Path) -> None:
    """Rows with and without penalties, in every order: each says what it says alone."""
    model = toy(tmp_path, LETTERS, table=LOOPING).model
    requests: list[tuple[list[int], dict[str, Any]]] = [
        ([0], {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "seed": 1}),
        ([0], {"repetition_penalty": 1.6, "frequency_penalty": 0.0, "seed": 2}),
        (ids("ab"), {"repetition_penalty": 1.0, "frequency_penalty": 0.9, "seed": 3}),
    ]
    solo = [model.generate(prompt, max_new_tokens=8, temperature=0.7, **each).tokens for prompt, each in requests]
    assert len({tuple(each) for each in solo}) == 3
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)):
        lists: dict[str, Any] = {name: [requests[at][1][name] for at in order] for name in requests[0][1]}
        rows = model.generate(batch=[requests[at][0] for at in order], max_new_tokens=8, temperature=0.7, **lists).rows
        assert [row.tokens for row in rows] == [solo[at] for at in order]


# ---- G6, G7 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 3.0, "seed": 1}, {"repetition_penalty": 1.2}])
def test_g6_rows_of_the_head_without_a_token_are_never_chosen(tmp_path: Path, options: dict[str, Any]) -> None:
    """256 logits, 250 ids, row 253 highest everywhere."""
    pieces = ["<go>", *(chr(0x100 + at) for at in range(248)), "<end>"]
    table = np.zeros((256, 256), np.float32)
    table[:, 253], table[:, 251], table[:, 40] = 30, 20, 9
    model = toy(tmp_path, pieces, table=table).model
    batch = model.generate(batch=[[0], [1, 2], [3]], max_new_tokens=20, stop_on_eos=False, **options)
    assert all(token < 250 for row in batch.rows for token in row.tokens)
    if options == {"temperature": 0}:
        assert {token for row in batch.rows for token in row.tokens} == {40}


def test_g6_also_at_the_workflow_level(tmp_path: Path) -> None:
    table = np.zeros((8, 8), np.float32)
    table[:, 7], table[:, 3] = 30, 9
    model = toy(tmp_path, ["<go>", "a", "b", "c", "<end>"], table=table).model
    out = model.run({"request.input_ids": np.array([[0]]), "request.max_iterations": np.array([3])})
    assert out["tokens"].tolist() == [[3, 3, 3]]


def test_g7_a_random_operator_in_a_graph_is_warned_of_when_compiled(tmp_path: Path) -> None:
    graph = decoder(Recipe())
    graph.graph.node.insert(0, helper.make_node("RandomNormal", [], ["noise"], name="noise_source", shape=[1]))
    write_package(tmp_path / "package", graph)
    warned = compile_package(tmp_path / "package", out=tmp_path / "compiled").problems
    told = next(each for each in warned if each.code == "random-in-graph")
    assert told.severity is Severity.WARNING
    assert "noise_source" in told.what
    assert "seed" in told.what
    assert "noise as an input" in told.help


def test_bad_values_of_a_package_refuse_it(tmp_path: Path) -> None:
    search = {"temperature": -1, "top_p": 7, "repetition_penalty": 0}
    with pytest.raises(CompileError) as refused:
        toy(tmp_path, LETTERS, config={"search": search})
    assert {each.path for each in refused.value.problems if each.code == "bad-value"} == {
        f"search.{key}" for key in search
    }
