"""Caches that hold keys and values together: tokens equal those of prompts run whole."""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.lower.packages import Layer, Recipe, decoder, write_package

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
