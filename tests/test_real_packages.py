"""Packages of the field's own exporters, compiled and run: the tokens and logits that other runtimes got from them.

Tokens count up to the first near-tie, as INDEX.md of the data advises; the rest are refused with the reason and the way
out, never with a crash.
"""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import errors
from genai_runtime import state
from genai_runtime.request import Request
from genai_runtime.values import to_value

from tests.data import needs_data
from tests.real_packages import (
    DRAWN,
    ENCODED,
    GREEDY,
    MEDIA,
    NAMES,
    PACKAGES,
    PAGED,
    RUN,
    SINGLE,
    Compiled,
    cases,
    encoder_case,
    once_each,
    reliable,
    rough,
)

pytestmark = needs_data
# name, code of the refusal, words that its reason or remedy must hold
REFUSED = [
    ("og-llama-nohead", "no-logits", "export it with its head"),
    ("og-llama-noembed", "no-embedding-stage", "no stage produces 'inputs_embeds'"),
    ("mobius-flux-meta", "untyped-port", "neither type nor shape"),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A package, compiled and loaded once."""
    return once_each(tmp_path_factory)


def prompt_logits(model: genai_runtime.Model, *prompts: list[int]) -> np.ndarray[Any, Any]:
    """float32 [rows, vocabulary]: what follows each prompt, right-padded together."""
    width = max(map(len, prompts))
    ids = np.array([each + [0] * (width - len(each)) for each in prompts])
    decoder: Any = model._executor
    request = Request({}, prompt_lengths=tuple(map(len, prompts)))
    decoding = decoder.decoder.start(to_value(ids), request, 1)
    decoding.prompt()
    logits: np.ndarray[Any, Any] = decoding.logits
    return logits


def decoded(model: genai_runtime.Model, prompt: list[int], steps: int) -> Any:
    """The decoding of one row, before its prompt has run."""
    decoder: Any = model._executor
    return decoder.decoder.start(to_value(np.array([prompt])), Request({}, prompt_lengths=(len(prompt),)), steps)


@pytest.mark.parametrize("name", RUN)
def test_greedy_tokens_are_the_expected_ones(compiled: Compiled, name: str) -> None:
    for case in cases(name):
        wanted = reliable(name, case)
        generation = compiled(name).generate(case["prompt"], max_new_tokens=16, **GREEDY)
        assert generation.tokens[: len(wanted)] == wanted
        assert (len(generation.tokens), generation.finish_reason) == (16, "length")


@pytest.mark.parametrize("name", RUN)
def test_logits_of_the_prompt_are_the_expected_ones(compiled: Compiled, name: str) -> None:
    """Largest difference over largest logit: 1e-3, and the near-tie bound of 0.05 for half and 4-bit values."""
    for case in cases(name):
        wanted = np.array(case["prompt_last_logits"], np.float32)
        difference = np.abs(prompt_logits(compiled(name), case["prompt"])[0] - wanted).max()
        assert difference <= (0.05 if rough(name) else 1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("name", RUN)
def test_every_expected_token_is_within_the_bound_of_the_best_at_its_step(compiled: Compiled, name: str) -> None:
    """Fed with the expected tokens, also past near-ties: at each step the expected one is the best, or as good as."""
    for case in cases(name):
        decoding = decoded(compiled(name), case["prompt"], steps=len(case["greedy"]))
        decoding.prompt()
        for at, token in enumerate(case["greedy"]):
            logits = decoding.logits[0]
            bound = 0.05 if rough(name) else max(1e-3 * np.abs(logits).max(), 1e-3)
            assert logits[token] >= logits.max() - bound, f"step {at}"
            decoding.tokens[:] = token
            decoding.advance()


@pytest.mark.parametrize("name", RUN)
def test_rows_of_a_batch_equal_their_solo_runs(compiled: Compiled, name: str) -> None:
    """In 4-bit and half precision a batch may pick other kernels: there rows are equal up to a near-tie."""
    prompts = [case["prompt"] for case in cases(name)]
    rows = compiled(name).generate(batch=prompts, max_new_tokens=16, **GREEDY).rows
    for row, case in zip(rows, cases(name), strict=True):
        wanted = reliable(name, case)
        assert row.tokens[: len(wanted)] == wanted
        solo = compiled(name).generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens
        assert row.tokens == solo or (rough(name) and row.tokens[: len(wanted)] == solo[: len(wanted)])


@pytest.mark.parametrize("name", ["og-llama", "og-hunyuan", "mobius-llama-og-cpu"])
def test_shared_buffers_that_move_change_nothing(
    compiled: Compiled, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = compiled(name).generate([5, 9, 30], max_new_tokens=100, **GREEDY).tokens
    monkeypatch.setattr(state, "FIRST_ROOM", 3)
    assert compiled(name).generate([5, 9, 30], max_new_tokens=100, **GREEDY).tokens == wanted
    rows = compiled(name).generate(batch=[[5, 9, 30], [7] * 9], max_new_tokens=100, **GREEDY).rows
    assert rows[0].tokens == wanted


@pytest.mark.parametrize("name", RUN)
def test_the_context_ends_a_row(compiled: Compiled, name: str) -> None:
    """Filling the whole context works, beside a row that has much less to go.

    Also for the exporter that states 4096 positions for tables of 128 or 256 rows: the table ends the row there.
    """
    context = compiled(name).describe()["context_length"]
    long, short = [7] * (context - 6), [5, 9, 30]
    rows = compiled(name).generate(batch=[long, short], max_new_tokens=12, **GREEDY).rows
    assert [(len(row.tokens), row.finish_reason) for row in rows] == [(6, "context"), (12, "length")]
    assert rough(name) or rows[1].tokens == compiled(name).generate(short, max_new_tokens=12, **GREEDY).tokens


def test_end_tokens_stop_where_the_exporter_says(compiled: Compiled) -> None:
    found = 0
    for name in RUN:
        for case in cases(name):
            until = case.get("greedy_until_eos")
            if until and len(reliable(name, case)) >= len(until):
                generation = compiled(name).generate(case["prompt"], max_new_tokens=16, temperature=0)
                assert generation.tokens[:-1] == until[: len(generation.tokens) - 1]
                assert generation.finish_reason == "stop"
                found += 1
    assert found or not any("greedy_until_eos" in case for name in RUN for case in cases(name))


# ---- LongRoPE (known trap E2) ----------------------------------------------------------------------------------------


def test_e2_a_length_switch_is_warned_of_with_its_threshold(tmp_path: Path) -> None:
    problems = compile_package(PACKAGES / "og-phi3long", out=tmp_path / "out").problems
    told = [each for each in problems if each.code == "length-switch"]
    assert len(told) == 1
    assert "64" in told[0].what


def test_e2_a_rows_tables_do_not_depend_on_its_neighbours(compiled: Compiled) -> None:
    """A 60-token row crosses the switch at 64; beside it, rows of 7 and 21 tokens keep the short tables."""
    model, every = compiled("og-phi3long"), cases("og-phi3long")
    assert sorted(len(case["prompt"]) for case in every)[-1] == 60
    for order in (every, every[::-1]):
        rows = model.generate(batch=[case["prompt"] for case in order], max_new_tokens=16, **GREEDY).rows
        for row, case in zip(rows, order, strict=True):
            assert row.tokens == model.generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens
            wanted = reliable("og-phi3long", case)
            assert row.tokens[: len(wanted)] == wanted


# ---- encoders alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SINGLE)
def test_an_encoder_alone_is_one_call(compiled: Compiled, name: str) -> None:
    """Its inputs and outputs by the graph's names; rows of a batch are what each is alone."""
    inputs, wanted = encoder_case(name)
    assert wanted
    result = compiled(name).run(inputs)
    for output, value in wanted.items():
        np.testing.assert_allclose(result[output], value, rtol=1e-4, atol=1e-5)
    two = {key: np.concatenate([value, value]) for key, value in inputs.items()}
    if "attention_mask" in inputs:  # this graph takes the mask's first axis for positions
        with pytest.raises(genai_runtime.RequestError, match="wrong-shape"):
            compiled(name).run(two)
        return
    result = compiled(name).run(two)
    for output, value in wanted.items():
        np.testing.assert_allclose(result[output], np.concatenate([value, value]), rtol=1e-4, atol=1e-5)


def test_a_mask_that_a_graph_misreads_is_warned_of(tmp_path: Path) -> None:
    told = {name: compile_package(PACKAGES / name, out=tmp_path / name).problems for name in SINGLE}
    assert [each.code for each in told["mobius-bert-og"]] == ["wrong-port"]
    assert "one row" in told["mobius-bert-og"][0].what
    assert told["mobius-vit-og"] == ()


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_provider_of_a_package_is_a_preference(compiled: Compiled) -> None:
    model = compiled("og-qwen2-fp16")
    present = "CUDAExecutionProvider" in model.describe()["providers"]["decoder"]
    assert present or any("CUDAExecutionProvider" in each for each in model.notices)


@pytest.mark.parametrize(("name", "code", "words"), REFUSED)
def test_refused_with_reason_and_remedy(name: str, code: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(PACKAGES / name, out=tmp_path / "out")
    found = [each for each in refused.value.problems if each.code == code and words in f"{each.what} {each.help}"]
    assert found, str(refused.value)
    assert found[0].help
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_package_is_compiled_or_refused_by_name(name: str, tmp_path: Path) -> None:
    """A refusal is a report: every error has a code, a place and words; nothing is written or changed."""
    before = {each: each.stat().st_mtime_ns for each in (PACKAGES / name).rglob("*")}
    try:
        compile_package(PACKAGES / name, out=tmp_path / "out")
        assert name in (*RUN, *ENCODED, *MEDIA, *SINGLE, *PAGED, *DRAWN), "it compiles now: give it a place above"
    except CompileError as refused:
        assert name not in (*RUN, *ENCODED, *MEDIA, *SINGLE, *PAGED, *DRAWN)
        found = errors(refused.problems)
        assert found
        assert all(each.code and each.what and each.where.file for each in found)
        assert not (tmp_path / "out").exists()
    assert {each: each.stat().st_mtime_ns for each in (PACKAGES / name).rglob("*")} == before


def test_the_set_is_the_one_that_is_described() -> None:
    assert len(NAMES) == 47
    assert {*RUN, *ENCODED, *MEDIA, *SINGLE, *PAGED, *DRAWN, *(name for name, _, _ in REFUSED)} <= set(NAMES)
