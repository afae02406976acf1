"""Packages of the field's own exporters, compiled and run: the tokens and logits that other runtimes got from them.

Tokens count up to the first near-tie, as INDEX.md of the data advises; the rest are refused with the reason and the way
out, never with a crash.
"""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import errors
from genai_runtime import state
from genai_runtime.policy import TokenPolicy
from genai_runtime.request import Request
from genai_runtime.values import to_value

from tests.data import DATA, needs_data

pytestmark = needs_data
PACKAGES = DATA / "realpkgs"
NAMES = sorted(each.name for each in PACKAGES.iterdir() if each.is_dir()) if PACKAGES.is_dir() else []
_RUN = """
    og-llama og-llama-hidden og-llama-int4 og-llama-prune og-qwen2-fp16 og-hunyuan og-phi3long og-mistral-int4
    og092-gemma2 mobius-llama-og mobius-llama-og-cpu mobius-gpt2-og mobius-qwen2_moe-og
    og-lfm2-int4 og-qwen3_5 og-qwen2_5_vl-int4 mobius-qwen3_5_text-og mobius-qwen3_next-og mobius-jamba-og
    mobius-llama-meta mobius-bloom-meta mobius-bamba-meta mobius-deepseek_v2-meta mobius-llama-f16
    mobius-llama-static mobius-gemma4-static
"""
RUN = _RUN.split()
ENCODED = ["mobius-t5-meta", "mobius-marian-meta", "mobius-whisper-meta"]
"""Decoders beside an encoder that runs once: run at the workflow's level."""
# name, code of the refusal, words that its reason or remedy must hold
REFUSED = [
    ("og-llama-nohead", "no-logits", "export it with its head"),
    ("og-llama-noembed", "no-embedding-stage", "no stage produces 'inputs_embeds'"),
    ("og-gemma2", "unsupported-package-class", "drop what leaves their window"),
    ("og-gpt_oss", "unsupported-package-class", "drop what leaves their window"),
    ("og-qwen2-paged", "unsupported-package-class", "'state_groups'"),
    ("mobius-bert-og", "no-logits", "last_hidden_state"),
    ("mobius-gemma3_vl-og", "unsupported-package-class", "'vision'"),
    ("mobius-sd-euler", "unsupported-package-class", "'iterative'"),
    ("mobius-sd-ddim", "unsupported-package-class", "'iterative'"),
    ("mobius-flux-meta", "unsupported-package-class", "'iterative'"),
]
GREEDY: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}
Compiled = Callable[[str], genai_runtime.Model]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A package, compiled and loaded once."""

    @cache
    def get(name: str) -> genai_runtime.Model:
        out = tmp_path_factory.mktemp("real") / name
        compile_package(PACKAGES / name, out=out)
        return genai_runtime.load(out, threads=1)

    return get


@cache
def cases(name: str) -> list[dict[str, Any]]:
    """The text cases of a package."""
    expected = json.loads((PACKAGES / name / "expected.json").read_text("utf-8"))
    return [each for each in expected["cases"] if each["kind"] in ("text", "audio")]


def rough(name: str) -> bool:
    """Whether kernels may differ by rounding of half-precision or 4-bit values."""
    return any(each in name for each in ("int4", "fp16", "f16"))


def reliable(name: str, case: dict[str, Any]) -> list[int]:
    """Expected tokens up to the first margin that another kernel may turn over (INDEX.md)."""
    bound = 0.05 if rough(name) else 0.01
    close = next((at for at, margin in enumerate(case["margins"]) if margin < bound), len(case["greedy"]))
    return list(case["greedy"][:close])


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


@pytest.mark.parametrize("name", [each for each in RUN if each.startswith("og")])
def test_the_context_ends_a_row(compiled: Compiled, name: str) -> None:
    """Filling the whole context works, beside a row that has much less to go.

    Not for the other exporter, which states 4096 positions for tables of 128 or 256.
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


# ---- decoders beside an encoder --------------------------------------------------------------------------------------


def encoder_inputs(case: dict[str, Any]) -> dict[str, Any]:
    """A case's inputs at the workflow's level: the source and what starts the output."""
    if case["kind"] == "audio":
        return {"request.input_ids": [case["prompt"]], "input_features": sound()}
    return {"request.input_ids": [case["prompt"]], "decoder_input_ids": [[case["decoder_start"]]]}


@cache
def sound() -> np.ndarray[Any, Any]:
    """float32 [1, 80, 3000]: the features that expected.json gives as a formula (`audio`)."""
    bin, frame = np.meshgrid(np.arange(80), np.arange(3000), indexing="ij")
    wave = np.sin(0.05 * frame * (1 + bin % 5) + 0.3 * bin) * np.cos(0.002 * frame)
    return np.round(wave, 4).astype(np.float32)[None]


@pytest.mark.parametrize("name", ENCODED)
def test_tokens_beside_an_encoder_are_the_expected_ones(compiled: Compiled, name: str) -> None:
    for case in cases(name):
        wanted = reliable(name, case)
        inputs = {**encoder_inputs(case), "request.max_iterations": [16]}
        rows = compiled(name).run(inputs, stop_on_eos=False).rows("tokens")
        made = [int(token) for each in rows if each is not None for token in each.reshape(-1)]
        assert made[: len(wanted)] == wanted
        assert len(made) == 16


@pytest.mark.parametrize("name", ENCODED)
def test_logits_beside_an_encoder_are_the_expected_ones(
    compiled: Compiled, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt's logits within 1e-3 of their largest; each expected token is as good as the best at its step."""
    for case in cases(name):
        seen = forced(compiled(name), encoder_inputs(case), case["greedy"], monkeypatch)
        first = np.array(case["prompt_last_logits"], np.float32)
        assert np.abs(seen[0] - first).max() <= 1e-3 * np.abs(first).max()
        for logits, token in zip(seen, case["greedy"], strict=True):
            assert logits[token] >= logits.max() - 1e-3 * np.abs(logits).max()


def forced(
    model: genai_runtime.Model, inputs: dict[str, Any], tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> list[np.ndarray[Any, Any]]:
    """The logits of every pass of a run whose policy takes the given tokens, whatever it is offered."""
    seen: list[np.ndarray[Any, Any]] = []

    def choose(policy: TokenPolicy) -> list[int]:
        policy._tokens[0, 0] = tokens[len(seen)]
        seen.append(held[0].copy())
        return [0]

    held: list[Any] = []

    def made(policy: TokenPolicy, request: Request, decoding: Any) -> None:
        original(policy, request, decoding)
        held[:] = [decoding.logits[0]]

    original = TokenPolicy.__init__
    with monkeypatch.context() as patched:
        patched.setattr(TokenPolicy, "__init__", made)
        patched.setattr(TokenPolicy, "choose", choose)
        model.run({**inputs, "request.max_iterations": [len(tokens)]}, stop_on_eos=False)
    return seen


def test_a_name_that_the_encoder_lacks_is_reported_and_the_only_fitting_output_taken(tmp_path: Path) -> None:
    for name in ("mobius-t5-meta", "mobius-marian-meta"):
        problems = compile_package(PACKAGES / name, out=tmp_path / name).problems
        told = {each.path: each.what for each in problems if each.code == "config-contradicts-graph"}
        assert "'last_hidden_state', is taken" in told["pipeline.dataflow[0].from"]
        assert "no node of the graph reads" in told["pipeline.models.decoder.io.cross_kv_inputs"]


def test_text_level_of_an_encoder_decoder_needs_to_know_what_starts_the_output(
    compiled: Compiled, tmp_path: Path
) -> None:
    """The prompt goes to the encoder; a side file names the first token, or else nobody does."""
    prompt, wanted = cases("mobius-t5-meta")[0]["prompt"], cases("mobius-t5-meta")[0]["greedy"]
    with pytest.raises(genai_runtime.RequestError, match="decoder_input_ids"):
        _ = compiled("mobius-t5-meta").generate(prompt, max_new_tokens=4).tokens
    package = shutil.copytree(PACKAGES / "mobius-t5-meta", tmp_path / "package")
    (package / "generation_config.json").write_text('{"decoder_start_token_id": 0, "eos_token_id": 2}')
    compile_package(package, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(prompt, max_new_tokens=16, **GREEDY).tokens == wanted
        rows = model.generate(batch=[each["prompt"] for each in cases("mobius-t5-meta")], max_new_tokens=16, **GREEDY)
        assert [each.tokens for each in rows.rows] == [each["greedy"] for each in cases("mobius-t5-meta")]


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
        assert name in (*RUN, *ENCODED), "it compiles now: give it a place above"
    except CompileError as refused:
        assert name not in (*RUN, *ENCODED)
        found = errors(refused.problems)
        assert found
        assert all(each.code and each.what and each.where.file for each in found)
        assert not (tmp_path / "out").exists()
    assert {each: each.stat().st_mtime_ns for each in (PACKAGES / name).rglob("*")} == before


def test_the_set_is_the_one_that_is_described() -> None:
    assert len(NAMES) == 47
    assert {*RUN, *(name for name, _, _ in REFUSED)} <= set(NAMES)
