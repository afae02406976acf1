"""The text level: one generation seen in every way, its ends, its options, and several at once."""

import inspect
import shutil
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import Generation, Model, Piece, RequestError, SamplingOptions, Stats

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy
from tests.traps.toy import toy

Models = Callable[[str], genai_runtime.Model]
DECODERS = ["tiny-gqa-v1", "tiny-concat-v1", "tiny-runtime-policy", "tiny-decoder"]
RUNTIME = DECODERS[:3]
"""Packages whose tokens the runtime selects; tiny-decoder does so with its own graphs."""
PROMPT = [1, 10, 20, 30]
ENDS = {"tiny-gqa-v1": (2, 5), "tiny-concat-v1": (2,), "tiny-runtime-policy": (2, 5), "tiny-decoder": (2,)}


def plain(case: str, count: int, prompt: list[int] = PROMPT, stop: bool = True) -> list[int]:
    """The bare loop's tokens."""
    return greedy(FIXTURES / case / "model.onnx", prompt, count, ENDS[case] if stop else ())


# ---- one generation, many views --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DECODERS)
@pytest.mark.parametrize("stop", [None, ["e"]])
def test_every_view_of_a_generation_is_the_same(model: Models, case: str, stop: list[str] | None) -> None:
    def started() -> Generation:
        return model(case).generate(PROMPT, max_new_tokens=20, temperature=0, stop=stop)

    iterated, whole, paired = started(), started(), started()
    text = "".join(iterated)
    pieces = list(paired.pieces())
    assert text == iterated.text == whole.text == "".join(each.text for each in pieces)
    assert {each.row for each in pieces} == {0}
    assert iterated.tokens == whole.tokens == paired.tokens == whole.rows[0].tokens
    assert iterated.finish_reason == whole.finish_reason == whole.rows[0].finish_reason
    if stop is None:
        assert whole.tokens == plain(case, 20)


@pytest.mark.parametrize(
    "order", [("text", "tokens"), ("tokens", "text"), ("stats", "finish_reason", "text", "tokens")]
)
def test_results_may_be_asked_for_in_any_order(model: Models, order: tuple[str, ...]) -> None:
    wanted = model("tiny-gqa-v1").generate(PROMPT, max_new_tokens=12, temperature=0)
    asked = model("tiny-gqa-v1").generate(PROMPT, max_new_tokens=12, temperature=0)
    for name in order:
        getattr(asked, name)
    assert (asked.text, asked.tokens, asked.finish_reason) == (wanted.text, wanted.tokens, wanted.finish_reason)


def test_text_and_ids_as_prompts(model: Models) -> None:
    tiny = model("tiny-gqa-v1")
    ids = tiny.tokenizer.encode("then hello")
    prompts: tuple[Any, ...] = (ids, tuple(ids), np.array(ids))
    for prompt in prompts:
        assert tiny.generate(prompt, max_new_tokens=5, temperature=0).tokens == plain("tiny-gqa-v1", 5, ids)
    assert tiny.generate("then hello", max_new_tokens=5, temperature=0).tokens == plain("tiny-gqa-v1", 5, ids)


def test_a_half_read_generation_still_has_its_whole_text(model: Models) -> None:
    wanted = model("tiny-gqa-v1").generate(PROMPT, max_new_tokens=12, temperature=0).text
    generation = model("tiny-gqa-v1").generate(PROMPT, max_new_tokens=12, temperature=0)
    first = next(iter(generation))
    assert generation.text == wanted
    assert first + "".join(generation) == wanted, "the iteration goes on where it was"


def test_nothing_runs_before_it_is_asked_for(model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, started = model("tiny-gqa-v1"), list[Any]()
    run = tiny._executor.run

    def noted(request: Any) -> Any:
        started.append(request)
        return run(request)

    monkeypatch.setattr(tiny._executor, "run", noted)
    generation = tiny.generate(PROMPT, max_new_tokens=3, temperature=0)
    assert not started
    assert len(generation.tokens) == 3
    assert len(started) == 1


@pytest.mark.parametrize("case", DECODERS)
def test_rows_interleave_as_they_run(model: Models, case: str) -> None:
    batch = [PROMPT, [5], [3, 40, 41]]
    generation = model(case).generate(batch=batch, max_new_tokens=8, temperature=0)
    pieces = list(generation.pieces())
    assert all(isinstance(each, Piece) for each in pieces)
    for at, row in enumerate(generation.rows):
        assert row.tokens == plain(case, 8, batch[at])
        assert row.text == "".join(each.text for each in pieces if each.row == at)


# ---- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DECODERS)
@pytest.mark.parametrize("way", ["close", "cancel", "with"])
def test_a_cancelled_generation_keeps_what_it_had(model: Models, case: str, way: str) -> None:
    generation = model(case).generate(PROMPT, max_new_tokens=20, temperature=0, stop_on_eos=False)
    with generation if way == "with" else _unmanaged():
        for _ in zip(range(3), generation, strict=False):
            pass
    if way != "with":
        getattr(generation, way)()
    assert generation.finish_reason == "cancelled"
    assert 3 <= len(generation.tokens) < 20
    assert generation.tokens == plain(case, 20, stop=False)[: len(generation.tokens)]
    assert generation.text == model(case).tokenizer.decode(generation.tokens)
    assert list(generation) == []
    generation.close()


class _unmanaged:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_closing_before_anything_ran_and_after_the_end(model: Models) -> None:
    generation = model("tiny-gqa-v1").generate(PROMPT, max_new_tokens=4, temperature=0)
    generation.close()
    assert (generation.tokens, generation.text, generation.finish_reason) == ([], "", "cancelled")
    done = model("tiny-gqa-v1").generate(PROMPT, max_new_tokens=4, temperature=0)
    assert done.finish_reason == "length"
    done.close()
    assert done.finish_reason == "length"


def test_every_finish_reason(model: Models) -> None:
    """Against the bare loop: where its end token comes, how far the context of 64 goes."""
    tiny = model("tiny-gqa-v1")
    prompt = [3, 40, 41, 42, 43, 44, 5, 4]
    to_the_end = plain("tiny-gqa-v1", 60, prompt)
    assert to_the_end[-1] in (2, 5)
    by_token = tiny.generate(prompt, max_new_tokens=60, temperature=0)
    assert (by_token.tokens, by_token.finish_reason) == (to_the_end, "stop")
    shorter = tiny.generate(prompt, max_new_tokens=len(to_the_end) - 1, temperature=0)
    assert (shorter.tokens, shorter.finish_reason) == (to_the_end[:-1], "length")
    full = tiny.generate(PROMPT, max_new_tokens=1000, temperature=0, stop_on_eos=False)
    assert (full.tokens, full.finish_reason) == (plain("tiny-gqa-v1", 60, stop=False), "context")
    character = by_token.text[2]
    by_text = tiny.generate(prompt, max_new_tokens=60, temperature=0, stop=character)
    assert by_text.finish_reason == "stop_string"
    assert by_text.text == by_token.text[: by_token.text.index(character)]


def test_a_context_that_a_workflow_package_declares_ends_its_rows(tmp_path: Path) -> None:
    """The graph's tables have 64 positions and the document says so: a longer request ends there, it does not fail."""
    shutil.copytree(FIXTURES / "tiny-decoder", tmp_path / "package")
    document = tmp_path / "package" / "inference_metadata.yaml"
    facts = "model:\n  max_sequence_length: 64\n  vocab_size: 64\n"
    document.write_text(facts + document.read_text("utf-8"), encoding="utf-8")
    compile_package(tmp_path / "package", out=tmp_path / "compiled")
    loaded = genai_runtime.load(tmp_path / "compiled", threads=1)
    generation = loaded.generate(PROMPT, max_new_tokens=500, temperature=0)
    assert (generation.tokens, generation.finish_reason) == (plain("tiny-decoder", 60), "context")
    with pytest.raises(RequestError, match="holds 64"):
        loaded.generate([9] * 64)


@pytest.mark.parametrize("case", DECODERS)
@pytest.mark.parametrize("count", [0, 1])
def test_no_token_and_one_token(model: Models, case: str, count: int) -> None:
    generation = model(case).generate(PROMPT, max_new_tokens=count, temperature=0)
    assert (generation.tokens, generation.finish_reason) == (plain(case, count), "length")
    assert generation.stats.new_tokens == count
    rows = model(case).generate(batch=[PROMPT, [5]], max_new_tokens=count, temperature=0).rows
    assert [row.tokens for row in rows] == [plain(case, count), plain(case, count, [5])]


@pytest.mark.parametrize("case", DECODERS)
def test_end_tokens_may_be_passed_over(model: Models, case: str) -> None:
    prompt = [3, 40, 41, 42, 43, 44, 5, 4]
    wanted = plain(case, 20, prompt, stop=False)
    generation = model(case).generate(prompt, max_new_tokens=20, temperature=0, stop_on_eos=False)
    assert (generation.tokens, generation.finish_reason) == (wanted, "length")


def test_special_tokens_are_shown_on_request(model: Models) -> None:
    prompt = [3, 40, 41, 42, 43, 44, 5, 4]
    tiny = model("tiny-gqa-v1")
    shown, hidden = (
        tiny.generate(prompt, max_new_tokens=20, temperature=0, stop_on_eos=False, skip_special_tokens=each)
        for each in (False, True)
    )
    assert shown.text == tiny.tokenizer.decode(shown.tokens, skip_special_tokens=False)
    assert hidden.text == tiny.tokenizer.decode(hidden.tokens)
    assert "<" in shown.text
    assert "<" not in hidden.text


# ---- stats -----------------------------------------------------------------------------------------------------------


def test_stats_count_all_rows(model: Models) -> None:
    generation = model("tiny-gqa-v1").generate(batch=[PROMPT, [5]], max_new_tokens=6, temperature=0, stop_on_eos=False)
    stats = generation.stats
    assert (stats.prompt_tokens, stats.new_tokens) == (5, 12)
    assert 0 < stats.ttft <= stats.seconds
    assert stats.rate > 0
    assert Stats(4, 1, 0.5, 0.5).rate == 0
    assert Stats(4, 11, 0.5, 2.5).rate == 5
    assert Stats(4, 8, 0.5, 0.6, rows=8).rate == 0, "one token of each row is none behind a first"
    assert Stats(4, 24, 0.5, 2.5, rows=4).rate == 10


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", RUNTIME)
def test_all_bad_options_are_named_at_once(model: Models, case: str) -> None:
    bad: dict[str, Any] = {
        "temperature": -1.0,
        "top_p": 2.0,
        "top_k": -3,
        "min_p": float("nan"),
        "repetition_penalty": 0,
        "seed": -1,
    }
    with pytest.raises(RequestError) as refused:
        model(case).generate(PROMPT, **bad)
    assert refused.value.code == "bad-sampling-options"
    assert all(f"{name} must be" in refused.value.what for name in bad)


@pytest.mark.parametrize("case", DECODERS)
def test_an_unknown_option_is_named_with_the_known_ones(model: Models, case: str) -> None:
    with pytest.raises(RequestError, match="no such option: beams, temprature") as refused:
        model(case).generate(PROMPT, temprature=1.0, beams=4)
    assert refused.value.code == "unknown-option"
    assert refused.value.help.startswith("did you mean temperature?")


def test_the_help_of_an_unknown_option_has_every_argument(model: Models) -> None:
    with pytest.raises(RequestError, match="no such option: max_tokens") as refused:
        model("tiny-gqa-v1").generate(PROMPT, max_tokens=8)
    assert refused.value.help.startswith("did you mean max_new_tokens? options: ")
    arguments = set(inspect.signature(Model.generate).parameters) - {"self", "prompt", "batch", "sampling"}
    arguments |= {each.name for each in fields(SamplingOptions)}
    assert set(refused.value.help.partition("options: ")[2].split(", ")) == arguments


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "no-prompt"),
        ({"prompt": [1], "batch": [[1]]}, "no-prompt"),
        ({"prompt": []}, "empty-prompt"),
        ({"batch": []}, "empty-prompt"),
        ({"batch": [[1], []]}, "empty-prompt"),
        ({"prompt": [1, 64]}, "bad-token"),
        ({"prompt": [-1]}, "bad-token"),
        ({"prompt": [1], "max_new_tokens": -1}, "bad-length"),
        ({"prompt": [1], "max_new_tokens": 2.5}, "bad-length"),
        ({"prompt": [1], "max_new_tokens": True}, "bad-length"),
        ({"prompt": [1], "max_new_tokens": 2**63}, "bad-length"),
        ({"prompt": [1] * 64}, "context-exceeded"),
        ({"batch": [[1], [2]], "temperature": [0.5]}, "wrong-row-count"),
        ({"prompt": [1], "stop": ""}, "bad-stop"),
        ({"prompt": [1], "stop": [3]}, "bad-stop"),
        ({"prompt": [1], "logit_bias": {64: 1.0}}, "bad-logit-bias"),
    ],
    ids=str,
)
def test_what_a_request_may_not_ask(model: Models, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestError) as refused:
        model("tiny-gqa-v1").generate(**arguments).tokens  # noqa: B018
    assert refused.value.code == code


def test_a_list_gives_one_value_a_row(model: Models) -> None:
    tiny = model("tiny-gqa-v1")
    options: dict[str, Any] = {
        "temperature": [0, 1.3, 0.9],
        "seed": [1, 2, 3],
        "top_k": [0, 5, 0],
        "min_new_tokens": [0, 4, 0],
    }
    batch = [PROMPT, [5], [3, 40, 41]]
    rows = tiny.generate(batch=batch, max_new_tokens=10, **options).rows
    for at, prompt in enumerate(batch):
        alone = {name: values[at] for name, values in options.items()}
        assert rows[at].tokens == tiny.generate(prompt, max_new_tokens=10, **alone).tokens
    assert rows[0].tokens == plain("tiny-gqa-v1", 10)


def test_end_tokens_wait_for_min_new_tokens(tmp_path: Path) -> None:
    """The end token is by far the likeliest; the next best comes until enough tokens are there."""
    table = np.zeros((6, 6), np.float32)
    table[:, 5], table[:, 2] = 9, 4
    made = toy(tmp_path, ["<go>", "a", "b", "c", "d", "<end>"], table=table)
    assert made.model.generate([0], max_new_tokens=9).tokens == [5]
    held = made.model.generate([0], max_new_tokens=9, min_new_tokens=3)
    assert (held.tokens, held.finish_reason) == ([2, 2, 2, 5], "stop")


def test_biased_logits(tmp_path: Path) -> None:
    table = np.zeros((4, 4), np.float32)
    table[:, 1], table[:, 2] = 3, 2
    made = toy(tmp_path, ["<go>", "a", "b", "<end>"], table=table)
    assert made.model.generate([0], max_new_tokens=2).text == "aa"
    assert made.model.generate([0], max_new_tokens=2, logit_bias={2: 1.5}).text == "bb"
    assert made.model.generate([0], max_new_tokens=2, logit_bias={1: -100.0, 2: -100.0, 3: 1.0}).tokens == [3]


@pytest.mark.parametrize("case", DECODERS)
def test_a_seed_repeats_and_another_differs(model: Models, case: str) -> None:
    def drawn(seed: int) -> list[int]:
        return model(case).generate(PROMPT, max_new_tokens=16, temperature=1.8, top_k=0, seed=seed).tokens

    assert drawn(5) == drawn(5)
    assert len({tuple(drawn(seed)) for seed in range(5)}) > 1


def test_what_a_packages_own_sampler_cannot_do_is_refused(model: Models) -> None:
    with pytest.raises(RequestError) as refused:
        model("tiny-decoder").generate(PROMPT, repetition_penalty=1.2, no_repeat_ngram_size=2)
    assert refused.value.code == "unsupported-option"
    assert "no_repeat_ngram_size, repetition_penalty" in refused.value.what
    assert "sampling_temperature" in refused.value.help


def test_a_model_describes_itself(model: Models) -> None:
    told = model("tiny-gqa-v1").describe()
    assert [each["name"] for each in told["outputs"]] == ["tokens"]
    assert (told["policy"], told["context_length"], told["end_ids"]) == ("runtime", 64, [2, 5])
    assert told["state_groups"][0]["bytes_per_token"] == 2 * 2 * 2 * 16 * 4
    assert told["providers"] == {"decoder": ["CPUExecutionProvider"]}
    assert told["threads"] == 1
    assert model("tiny-decoder").describe()["policy"] == "workflow"


# ---- several at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DECODERS)
def test_s1_threads_share_a_model(model: Models, case: str) -> None:
    """Eight threads, one model, different requests: each gets what it gets alone."""
    shared = model(case)
    prompts = [[at + 6, 10, 20, at + 7] for at in range(8)]
    alone = [shared.generate(each, max_new_tokens=24, temperature=0).tokens for each in prompts]
    got: list[list[int]] = [[] for _ in prompts]
    start = threading.Barrier(len(prompts))

    def work(at: int) -> None:
        start.wait()
        for _ in range(3):
            got[at] = shared.generate(prompts[at], max_new_tokens=24, temperature=0).tokens

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(prompts))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert got == alone
