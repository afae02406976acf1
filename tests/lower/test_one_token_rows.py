"""A decoder that takes one token of each row a run, its state's rows second, beside an encoder: version 1's own class.

Expected tokens come from a loop of bare ONNX Runtime sessions and numpy: the end id behind the source, zeros for the
state, `bos_token_id` first, the number of runs counted up.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_runtime.problem import RequestError

from tests.data import ROOT
from tests.lower.test_config_models import changed

CASE = "tiny-ssru-v1"
PACKAGE = ROOT / "fixtures" / CASE
LAYERS, HIDDEN, BOS, EOS, CONTEXT = 3, 16, 1, 2, 32
SOURCES = [[5, 9, 30, 11], [7], [3, 40, 41, 42, 43, 44, 5, 4], [12, 12]]
GREEDY: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}
Array = np.ndarray[Any, Any]
Choice = Callable[[Array], Array]
Models = Callable[[str], genai_runtime.Model]


def session(folder: Path, name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])


def best(logits: Array) -> Array:
    return logits.argmax(axis=-1)


def plain(
    folder: Path, sources: Sequence[Sequence[int]], count: int, choose: Choice = best, start: int = BOS, end: int = EOS
) -> tuple[Array, list[Array]]:
    """(tokens [rows, count], logits of each step), all rows in one loop. choose: logits [rows, 64] -> ids [rows]."""
    rows, width = len(sources), max(map(len, sources)) + 1
    ids, mask = np.zeros((rows, width), np.int64), np.zeros((rows, width), np.int64)
    for row, each in enumerate(sources):
        ids[row, : len(each) + 1], mask[row, : len(each) + 1] = [*each, end], 1
    (seen,) = session(folder, "encoder").run(None, {"input_ids": ids, "attention_mask": mask})
    decoder = session(folder, "decoder")
    token, state = np.full(rows, start), np.zeros((LAYERS, rows, HIDDEN), np.float32)
    made, scores = list[Array](), list[Array]()
    for at in range(count):
        feeds = {
            "input_ids": token,
            "encoder_hidden_states": seen,
            "encoder_attention_mask": mask,
            "rnn_states_prev": state,
            "past_key_values_length": np.array([at]),
        }
        logits, state = decoder.run(["logits", "rnn_states"], feeds)
        token = choose(logits)
        made.append(token)
        scores.append(logits)
    return np.stack(made, axis=1), scores


def alone(source: Sequence[int], count: int = 12, **options: Any) -> list[int]:
    return [int(each) for each in plain(PACKAGE, [source], count, **options)[0][0]]


def until_end(tokens: Sequence[int], ends: Sequence[int] = (EOS,)) -> list[int]:
    """The tokens up to the first end, that one included."""
    at = next((place for place, each in enumerate(tokens) if each in ends), len(tokens) - 1)
    return list(tokens[: at + 1])


def rows_of(made: genai_runtime.Result) -> list[list[int]]:
    return [row.reshape(-1).tolist() for row in made.rows("tokens") if row is not None]


def padded(sources: Sequence[Sequence[int]], width: int, pad: int = 17) -> tuple[Array, Array]:
    """(ids, mask), padded on the right with a token that would matter if it were read."""
    ids = np.array([[*each, *[pad] * (width - len(each))] for each in sources])
    return ids, np.array([[1] * len(each) + [0] * (width - len(each)) for each in sources])


# ---- tokens ----------------------------------------------------------------------------------------------------------


def test_the_state_the_count_the_end_and_the_start_all_matter() -> None:
    """What the loop below does is seen in its tokens: else the tests here would show nothing."""
    wanted = [alone(each) for each in SOURCES]
    assert len({tuple(each) for each in wanted}) == len(SOURCES)
    assert [alone(each, end=9) for each in SOURCES] != wanted
    assert [alone(each, start=9) for each in SOURCES] != wanted
    unpadded = plain(PACKAGE, SOURCES, 12)[0].tolist()
    assert unpadded == wanted


@pytest.mark.parametrize("source", SOURCES, ids=len)
def test_one_row(model: Models, source: list[int]) -> None:
    assert model(CASE).generate(source, max_new_tokens=12, **GREEDY).tokens == alone(source)


def test_rows_of_different_length(model: Models) -> None:
    rows = model(CASE).generate(batch=SOURCES, max_new_tokens=12, **GREEDY).rows
    assert [each.tokens for each in rows] == plain(PACKAGE, SOURCES, 12)[0].tolist()


@pytest.mark.parametrize("width", [8, 13])
def test_rows_of_different_length_in_one_run_by_their_mask(model: Models, width: int) -> None:
    ids, mask = padded(SOURCES, width)
    inputs = {"request.input_ids": ids, "attention_mask": mask, "request.max_iterations": [12]}
    made = model(CASE).run(inputs, stop_on_eos=False)
    assert rows_of(made) == plain(PACKAGE, SOURCES, 12)[0].tolist()


def test_a_source_without_a_mask_is_all_of_it(model: Models) -> None:
    sources = [SOURCES[0], SOURCES[0][::-1]]
    made = model(CASE).run({"request.input_ids": sources, "request.max_iterations": [7]}, stop_on_eos=False)
    assert rows_of(made) == plain(PACKAGE, sources, 7)[0].tolist()


def test_a_mask_with_holes_is_refused(model: Models) -> None:
    inputs = {"request.input_ids": [[5, 9, 30]], "attention_mask": [[1, 0, 1]]}
    with pytest.raises(RequestError, match="ones and then zeros") as refused:
        model(CASE).run(inputs)
    assert refused.value.code == "bad-value"


def test_rows_end_at_the_end_token_each_for_itself(model: Models, tmp_path: Path) -> None:
    """An end token that these sources come to at different steps: the rows that go on are not touched."""
    wanted = plain(PACKAGE, SOURCES, 20)[0].tolist()
    end = next(
        each
        for each in range(3, 64)
        if len({len(until_end(row, [each])) for row in wanted if each in row}) > 1 and any(each in r for r in wanted)
    )
    folder = changed(tmp_path / "p", PACKAGE, ("model.eos_token_id", [EOS, end]))
    compile_package(folder, out=tmp_path / "out")
    stopped = [until_end(row, [EOS, end]) for row in wanted]
    assert len({len(each) for each in stopped}) > 1
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        rows = loaded.generate(batch=SOURCES, max_new_tokens=20, temperature=0).rows
        assert [each.tokens for each in rows] == stopped
        assert {each.finish_reason for each in rows} == {"stop", "length"}
        ids, mask = padded(SOURCES, 8)
        made = loaded.run({"request.input_ids": ids, "attention_mask": mask, "request.max_iterations": [20]})
        assert rows_of(made) == stopped


def test_the_output_ends_where_the_context_does(model: Models) -> None:
    """The decoder's own tokens fill the context, its start among them; the source has no part in it."""
    source = [5] * 40
    made = model(CASE).generate(source, max_new_tokens=100, **GREEDY)
    assert made.tokens == alone(source, CONTEXT - 1)
    assert made.finish_reason == "context"


def test_the_start_may_be_another(model: Models) -> None:
    inputs = {"request.input_ids": [SOURCES[0]], "decoder_input_ids": [[9]], "request.max_iterations": [6]}
    assert model(CASE).run(inputs, stop_on_eos=False)["tokens"].tolist() == [alone(SOURCES[0], 6, start=9)]


def test_several_tokens_may_start_it_and_go_in_one_by_one(model: Models) -> None:
    start = [1, 12, 13]
    forced = iter([12, 13])
    _, scores = plain(PACKAGE, SOURCES[:1], 3, choose=lambda logits: np.array([next(forced, 0)]))
    inputs = {"request.input_ids": SOURCES[:1], "decoder_input_ids": [start], "request.max_iterations": [1]}
    assert model(CASE).run(inputs, stop_on_eos=False)["tokens"].tolist() == [[int(scores[-1].argmax())]]


# ---- sampling --------------------------------------------------------------------------------------------------------


def test_sampled_tokens_are_drawn_from_the_loop_s_logits(model: Models) -> None:
    """Forced through the plain loop, every sampled token is among its best four; the seed alone decides which."""
    options: dict[str, Any] = {"temperature": 1.3, "top_k": 4, "max_new_tokens": 10, "stop_on_eos": False}
    tiny = model(CASE)
    made = [tiny.generate(SOURCES[0], seed=seed, **options).tokens for seed in (3, 4, 3)]
    assert made[0] == made[2] != made[1]
    for tokens in made:
        forced = iter(tokens)
        _, scores = plain(PACKAGE, SOURCES[:1], 10, choose=lambda _, forced=forced: np.array([next(forced)]))  # type: ignore[misc]
        assert all(token in np.argsort(-each[0])[:4] for token, each in zip(tokens, scores, strict=True))


def test_first_tokens_are_as_frequent_as_they_are_likely(model: Models) -> None:
    (scores,) = plain(PACKAGE, SOURCES[1:2], 1)[1]
    kept = np.argsort(-scores[0])[:3]
    likely = np.exp(scores[0][kept] - scores[0].max())
    likely /= likely.sum()
    options: dict[str, Any] = {"temperature": 1.0, "top_k": 3, "max_new_tokens": 1, "stop_on_eos": False}
    drawn = [model(CASE).generate(SOURCES[1], seed=seed, **options).tokens[0] for seed in range(400)]
    for token, wanted in zip(kept, likely, strict=True):
        assert abs(drawn.count(int(token)) / 400 - wanted) < 4 * (wanted * (1 - wanted) / 400) ** 0.5 + 1e-9


def test_rows_are_sampled_as_they_are_alone(model: Models) -> None:
    options: dict[str, Any] = {"temperature": 1.2, "top_k": 8, "max_new_tokens": 8, "stop_on_eos": False}
    rows = model(CASE).generate(batch=SOURCES, seed=[1, 2, 3, 4], **options).rows
    solo = [model(CASE).generate(each, seed=at, **options).tokens for at, each in enumerate(SOURCES, start=1)]
    assert [each.tokens for each in rows] == solo


def test_penalties_count_the_output_and_not_the_source(model: Models) -> None:
    """Every token of the source would be held back if it counted: the reference keeps it in its sequence."""
    wanted = alone(SOURCES[0], 1)
    source = SOURCES[0]
    made = model(CASE).generate(source, max_new_tokens=1, repetition_penalty=1e6, **GREEDY).tokens
    assert made == wanted
    seen, tokens = [BOS], list[int]()

    def fresh(logits: Array) -> Array:
        scores = logits[0].copy()
        for each in set(seen):
            scores[each] = scores[each] * 1e6 if scores[each] < 0 else scores[each] / 1e6
        seen.append(int(scores.argmax()))
        return np.array([seen[-1]])

    tokens = plain(PACKAGE, [source], 8, choose=fresh)[0][0].tolist()
    assert model(CASE).generate(source, max_new_tokens=8, repetition_penalty=1e6, **GREEDY).tokens == tokens


# ---- other dialects, and text ----------------------------------------------------------------------------------------


def in_version_2(folder: Path) -> Path:
    sessions = {name: {"file": f"{name}.onnx"} for name in ("encoder", "decoder")}
    document: dict[str, Any] = {"version": 2, "pipeline": {"extends": "encoder-decoder", "sessions": sessions}}
    document |= {"tokens": {"eos": [EOS], "bos": BOS, "pad": 0}, "generation": {"max_length": CONTEXT}}
    (folder / "genai_config.json").write_text(json.dumps(document))
    return folder


def undeclared(folder: Path) -> Path:
    (folder / "genai_config.json").unlink()
    stated = {"vocab_size": 64, "max_position_embeddings": CONTEXT, "eos_token_id": EOS}
    (folder / "config.json").write_text(json.dumps({**stated, "decoder_start_token_id": BOS}))
    return folder


@pytest.mark.parametrize(("dialect", "ends"), [(in_version_2, True), (undeclared, False)])
def test_the_same_graphs_in_other_dialects(dialect: Callable[[Path], Path], ends: bool, tmp_path: Path) -> None:
    """The mask over the source and the count of runs are found there, too; only configurations put the end."""
    shutil.copytree(PACKAGE, tmp_path / "p")
    compile_package(dialect(tmp_path / "p"), out=tmp_path / "out")
    given = SOURCES if ends else [[*each, EOS] for each in SOURCES]
    ids, mask = padded(given, 9)
    inputs = {"request.input_ids": ids, "attention_mask": mask, "request.max_iterations": [12]}
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        assert rows_of(loaded.run(inputs, stop_on_eos=False)) == plain(PACKAGE, SOURCES, 12)[0].tolist()
        rows = loaded.generate(batch=given, max_new_tokens=12, **GREEDY).rows
        assert [each.tokens for each in rows] == plain(PACKAGE, SOURCES, 12)[0].tolist()


@pytest.mark.parametrize("adds", [False, True])
def test_an_end_that_the_tokenizer_adds_stands_once(adds: bool, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(PACKAGE, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    if adds:
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<eos>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<eos>": {"id": "<eos>", "ids": [EOS], "tokens": ["<eos>"]}},
        }
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        ids = loaded.tokenizer.encode("the hat", add_special_tokens=False)
        assert loaded.tokenizer.encode("the hat") == [*ids, *[EOS] * adds]
        assert loaded.generate("the hat", max_new_tokens=6, **GREEDY).tokens == alone(ids, 6)
        assert loaded.generate([*ids, EOS], max_new_tokens=6, **GREEDY).tokens == alone([*ids, EOS], 6)
