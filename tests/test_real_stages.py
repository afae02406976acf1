"""Packages of several models by the field's own exporters: encoders that run once, embeddings of every token, images.

Expected tokens and logits are other runtimes' (INDEX.md of the data).
"""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
import yaml
from genai_compiler import compile_package
from genai_runtime.policy import TokenPolicy
from genai_runtime.request import Request

from tests.data import needs_data
from tests.real_packages import ENCODED, GREEDY, MEDIA, PACKAGES, Compiled, cases, once_each, reliable

pytestmark = needs_data


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A package, compiled and loaded once."""
    return once_each(tmp_path_factory)


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

    def made(policy: TokenPolicy, request: Request, decoding: Any, *more: Any) -> None:
        original(policy, request, decoding, *more)
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


# ---- decoders behind an embedding model, with images -----------------------------------------------------------------

TENSORS = ("pixel_values", "image_grid_thw", "pixel_position_ids", "position_ids")


def media_inputs(name: str, case: dict[str, Any]) -> dict[str, Any]:
    """A case's inputs: token ids, and the image's tensors where it has one."""
    inputs: dict[str, Any] = {"request.input_ids": np.array([case["prompt"]])}
    if case["kind"] == "image":
        with np.load(PACKAGES / name / case["inputs"]) as held:
            inputs |= {each: held[each] for each in TENSORS if each in held}
        inputs["pixel_values"] = inputs["pixel_values"].astype(np.float32)
    return inputs


@pytest.mark.parametrize("name", MEDIA)
def test_tokens_with_and_without_an_image_are_the_expected_ones(compiled: Compiled, name: str) -> None:
    assert cases(name, "image")
    for case in cases(name, "text", "image"):
        wanted = reliable(name, case)
        inputs = {**media_inputs(name, case), "request.max_iterations": np.array([16])}
        rows = compiled(name).run(inputs, stop_on_eos=False).rows("tokens")
        made = [int(token) for each in rows if each is not None for token in each.reshape(-1)]
        assert made[: len(wanted)] == wanted
        assert len(made) == 16
        if case["kind"] == "text":
            assert compiled(name).generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens == made


@pytest.mark.parametrize("name", MEDIA)
def test_logits_with_and_without_an_image_are_the_expected_ones(
    compiled: Compiled, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 1e-3 of the largest logit; each expected token is as good as the best at its step."""
    for case in cases(name, "text", "image"):
        seen = forced(compiled(name), media_inputs(name, case), case["greedy"], monkeypatch)
        first = np.array(case["prompt_last_logits"], np.float32)
        bound = 1e-2 if "float16" in str(case.get("notes")) else 1e-3  # the pixels were rounded to half precision
        assert np.abs(seen[0] - first).max() <= bound * np.abs(first).max()
        for logits, token in zip(seen, case["greedy"], strict=True):
            assert logits[token] >= logits.max() - bound * np.abs(logits).max()


def test_an_embedding_model_that_is_said_to_run_once_is_reported_and_runs_at_every_step(tmp_path: Path) -> None:
    problems = compile_package(PACKAGES / "mobius-gemma3_vl-comp", out=tmp_path / "out").problems
    told = [each.path for each in problems if "runs at every step" in each.what]
    assert told == ["pipeline.strategy.stages[1].run_on", "pipeline.phases.embedding.run_on"]


def test_an_axis_more_than_the_next_model_takes_is_reported(tmp_path: Path) -> None:
    problems = compile_package(PACKAGES / "mobius-llava-comp", out=tmp_path / "out").problems
    assert [each.path for each in problems if "go in as one" in each.what] == ["pipeline.dataflow[0]"]


def test_an_image_without_its_grid_is_refused(compiled: Compiled) -> None:
    (case,) = cases("mobius-qwen3_5-meta", "image")
    inputs = media_inputs("mobius-qwen3_5-meta", case)
    for left_out in ("image_grid_thw", "pixel_values"):
        rest = {name: each for name, each in inputs.items() if name != left_out}
        with pytest.raises(genai_runtime.RequestError) as refused:
            compiled("mobius-qwen3_5-meta").run(rest)
        assert refused.value.code == "missing-input"
        assert f"{left_out} not" in refused.value.what


@pytest.mark.parametrize("change", [lambda each: each[:, :, 1:], lambda each: each - 2])
def test_positions_that_fit_no_prompt_are_refused(compiled: Compiled, change: Callable[[Any], Any]) -> None:
    (case,) = cases("mobius-qwen3_5-meta", "image")
    inputs = media_inputs("mobius-qwen3_5-meta", case)
    with pytest.raises(genai_runtime.RequestError, match=r"wrong-shape|bad-value"):
        compiled("mobius-qwen3_5-meta").run({**inputs, "position_ids": change(inputs["position_ids"])})


def test_what_needs_a_front_end_for_images_is_said_where_there_is_none(tmp_path: Path) -> None:
    """With the document's program nothing is missing; without it, and without a file, everything that needs one is."""
    package = shutil.copytree(PACKAGES / "mobius-qwen3_5-meta", tmp_path / "package")
    assert not [each for each in compile_package(package, out=tmp_path / "out").problems if "capability" in each.code]
    document = yaml.safe_load((package / "inference_metadata.yaml").read_text())
    del document["preprocessing"]
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    (package / "preprocessor_config.json").unlink()
    problems = compile_package(package, out=tmp_path / "bare").problems
    told = {each.what.split("'")[1] for each in problems if each.code == "capability-missing"}
    assert told == {
        "image_preprocessing_program", "packed_image_outputs", "position_program", "multi_axis_positions"
    }  # fmt: skip
