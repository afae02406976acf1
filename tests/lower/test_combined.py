"""Caches that hold keys and values together: tokens equal those of prompts run whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.lower.packages import Layer, Recipe, decoder, write_package
from tests.lower.pipelines import named, package

CONFIG = {
    "model": {
        "decoder": {
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "inputs": {"past_names": "past_%d"},
            "outputs": {"present_names": "present_%d"},
        }
    }
}
LAYERS = (Layer(0, heads=2), Layer(1, heads=2))


def combined(shape: list[Any], length: str | int = "past_sequence_length") -> ModelProto:
    """A decoder of two layers whose caches are split and joined inside. shape: of heads and head size."""
    model = decoder(Recipe(layers=LAYERS, op="attention"))
    graph = model.graph
    graph.initializer.extend(
        numpy_helper.from_array(np.array(each, np.int64), name) for each, name in (([0], "front"), ([1, 1], "halves"))
    )
    caches = {each.name for each in (*graph.input, *graph.output) if each.name.startswith(("past_", "present."))}
    for ports in (graph.input, graph.output):
        kept = [each for each in ports if each.name not in caches]
        del ports[:]
        ports.extend(kept)
    heads, size = shape
    for at in range(len(LAYERS)):
        past, present = (
            [f"{stem}.{at}.{half}" for half in ("key", "value")] for stem in ("past_key_values", "present")
        )
        split = [
            helper.make_node("Split", [f"past_{at}", "halves"], [f"{each}.whole" for each in past], axis=0),
            *(helper.make_node("Squeeze", [f"{each}.whole", "front"], [each]) for each in past),
        ]
        for place, node in enumerate(split):
            graph.node.insert(place, node)
        graph.node.extend(helper.make_node("Unsqueeze", [each, "front"], [f"{each}.whole"]) for each in present)
        graph.node.append(helper.make_node("Concat", [f"{each}.whole" for each in present], [f"present_{at}"], axis=0))
        value = helper.make_tensor_value_info
        graph.input.append(value(f"past_{at}", TensorProto.FLOAT, [2, "batch", heads, length, size]))
        graph.output.append(value(f"present_{at}", TensorProto.FLOAT, [2, "batch", heads, "total_length", size]))
    return model


@pytest.mark.parametrize("shape", [[2, 8], ["heads", "size"]])
def test_tokens_equal_those_of_prompts_run_whole(tmp_path: Path, shape: list[Any]) -> None:
    package = write_package(tmp_path / "package", combined(shape), CONFIG)
    compile_package(package, out=tmp_path / "out")
    session = ort.InferenceSession(package / "model.onnx", providers=["CPUExecutionProvider"])
    asked: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0, "stop_on_eos": False}
    prompts = [[3], [5, 9, 3, 4], [7] * 6]
    wanted = [_tokens(session, each, 20) for each in prompts]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert [model.generate(each, **asked).tokens for each in prompts] == wanted
        assert [each.tokens for each in model.generate(batch=prompts, **asked).rows] == wanted


def _tokens(session: ort.InferenceSession, prompt: list[int], count: int) -> list[int]:
    """Each token from a run over everything so far, with empty caches."""
    ids = list(prompt)
    for _ in range(count):
        feeds: dict[str, Any] = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        feeds |= {f"past_{at}": np.zeros((2, 1, 2, 0, 8), np.float32) for at in range(2)}
        ids.append(int(session.run(["logits"], feeds)[0][0, -1].argmax()))
    return ids[len(prompt) :]


def test_the_bytes_of_a_position_count_both_halves(tmp_path: Path) -> None:
    facts = lower_genai_config(write_package(tmp_path, combined([2, 8]), CONFIG)).decoder
    assert facts.cache_bytes_per_token == 2 * 2 * 2 * 8 * 4


def test_a_fixed_length_cant_grow(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="fixed-cache-appends"):
        lower_genai_config(write_package(tmp_path, combined([2, 8], length=5), CONFIG))


def test_a_past_without_its_present(tmp_path: Path) -> None:
    model = combined([2, 8])
    model.graph.output[-1].name = "elsewhere"
    model.graph.node[-1].output[0] = "elsewhere"
    with pytest.raises(CompileError, match="'past_1' has no output"):
        lower_genai_config(write_package(tmp_path, model, CONFIG))


# ---- said in version 2 -----------------------------------------------------------------------------------------------


def again(folder: Path, graph: ModelProto, state: dict[str, Any], **more: Any) -> Path:
    """The package in words of version 2; `more`: blocks beside the pipeline."""
    pipeline = {"extends": "autoregressive-decoder", "sessions": {"decoder": {"file": "model.onnx"}}, "state": state}
    document = {"version": 2, "pipeline": pipeline, "tokens": {"eos": [2]}, "generation": {"max_length": 64}, **more}
    return package(folder, document, {"model.onnx": graph})


PATTERNS = {"past_key_pattern": "past_{layer}", "present_key_pattern": "present_{layer}"}
SIZES = {"model": {"decoder": {"num_key_value_heads": 2, "head_size": 8}}}


@pytest.mark.parametrize("cache", [{}, {"format": "auto"}, {"format": "combined"}, {"format": "combined", **PATTERNS}])
@pytest.mark.parametrize("rename", [False, True], ids=["named", "by number"])
def test_version_2_runs_them_too(tmp_path: Path, cache: dict[str, str], rename: bool) -> None:
    """By patterns, or by what the ports are; the form's word for it changes nothing."""
    model = combined([2, 8])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    if rename and "past_key_pattern" not in cache:
        model = named(
            model, {f"{stem}_{at}": f"{stem[:3]}.layer{at}.kv" for stem in ("past", "present") for at in (0, 1)}
        )
    folder = again(tmp_path / "p", model, {"kv_cache": cache})
    made = compile_package(folder, out=tmp_path / "out")
    assert "config-contradicts-graph" not in {each.code for each in made.problems}
    asked: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0, "stop_on_eos": False}
    prompts = [[3], [5, 9, 3, 4]]
    wanted = [_tokens(session, each, 20) for each in prompts]
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        assert [loaded.generate(each, **asked).tokens for each in prompts] == wanted
        assert [each.tokens for each in loaded.generate(batch=prompts, **asked).rows] == wanted


def test_both_versions_are_one_document(tmp_path: Path) -> None:
    old = lower_genai_config(write_package(tmp_path / "v1", combined(["heads", "size"]), CONFIG))
    new = lower_pipeline_config(again(tmp_path / "v2", combined(["heads", "size"]), {"kv_cache": PATTERNS}, **SIZES))
    assert new.decoder == replace(old.decoder, artifact=new.decoder.artifact, signature=new.decoder.signature)
    assert new.document["pipeline"] == old.document["pipeline"]


def told(folder: Path) -> dict[str, str]:
    try:
        problems = lower_pipeline_config(folder).problems
    except CompileError as refused:
        problems = tuple(refused.problems)
    return {each.code: f"{each.path}: {each.what}" for each in problems}


def test_a_word_that_the_graph_contradicts_is_said(tmp_path: Path) -> None:
    lone = decoder(Recipe(layers=LAYERS))
    found = told(again(tmp_path / "lone", lone, {"kv_cache": {"format": "combined"}}))
    assert "no input of the decoder holds keys and values together" in found["config-contradicts-graph"]
    found = told(again(tmp_path / "both", combined([2, 8]), {"kv_cache": {"format": "separate"}}))
    assert "format is separate here" in found["config-contradicts-graph"]


def test_what_version_2_cannot_pair_or_size_is_said_in_its_words(tmp_path: Path) -> None:
    model = combined([2, 8])
    model.graph.output[-1].name = "elsewhere_7"
    model.graph.node[-1].output[0] = "elsewhere_7"
    assert "past_1" in told(again(tmp_path / "a", model, {}))["unpaired-state"]
    found = told(
        again(tmp_path / "b", combined([2, 8]), {"kv_cache": {**PATTERNS, "past_key_pattern": "post_{layer}"}})
    )
    assert found["unpaired-state"].startswith("pipeline.state.kv_cache: ")
    assert "model.decoder.num_key_value_heads" in told(again(tmp_path / "c", combined(["heads", "size"]), {}))[
        "unknown-state-shape"]  # fmt: skip
    assert "past_key_pattern" in told(again(tmp_path / "d", combined([2, 8], length=5), {}))["fixed-cache-appends"]
