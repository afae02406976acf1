"""Unknown model types and unusual graphs (known traps B): what a graph is for is read from its ports."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from genai_compiler.problem import Severity
from onnx import ModelProto, TensorProto, helper, save

from tests.lower.hybrids import State, hybrid, recomputed
from tests.lower.packages import HIDDEN, Layer, Recipe, decoder
from tests.traps.loop import plain_tokens
from tests.traps.packages import FREE, PROMPTS, gives_plain_tokens, loaded, package, problems, told

# ---- B1, B2: types ---------------------------------------------------------------------------------------------------

SPARSE = Recipe(
    layers=(Layer(0), Layer(2, heads=2), Layer(5, head_dim=16)),
    past="cache_{}_{}_in",
    present="cache_{}_{}_out",
    extra_inputs={"num_logits_to_keep": (TensorProto.INT64, [1])},
)


@pytest.mark.parametrize("kind", ["never_seen", "Qwen99ForCausalLM", "", ..., "whisper", "gpt2", "phi3v"])
def test_b1_b2_any_type_of_an_ordinary_decoder_runs(tmp_path: Path, kind: object) -> None:
    """Sparse caches of different shapes under names of their own, an extra input, and a type nobody waits for."""
    names = {
        "inputs": {f"past_{half}_names": f"cache_%d_{half}_in" for half in ("key", "value")},
        "outputs": {f"present_{half}_names": f"cache_%d_{half}_out" for half in ("key", "value")},
    }
    decoders = {"num_hidden_layers": ..., "head_size": ..., "num_key_value_heads": ..., **names}
    folder = package(tmp_path / "p", {"model": {"type": kind, "decoder": decoders}}, SPARSE)
    assert told(folder) == []
    plain = Recipe(layers=SPARSE.layers)
    save(decoder(plain), tmp_path / "plain.onnx")
    gives_plain_tokens(loaded(folder), tmp_path / "plain.onnx")


# ---- B3, B4: graphs without a head -----------------------------------------------------------------------------------


def headless(op: str = "attention", cached: bool = True) -> ModelProto:
    """The decoder without its head: `hidden_states` float32 [batch, sequence, 8], with or without caches."""
    model = decoder(Recipe(op=op, layers=(Layer(0), Layer(1), Layer(2), Layer(3))))
    graph = model.graph
    for node in [each for each in graph.node if {"logits", "raw_logits"} & set(each.output)]:
        graph.node.remove(node)
    graph.node.append(helper.make_node("Identity", ["x.4"], ["hidden_states"]))
    kept = [each for each in graph.output if "present" in each.name] if cached else []
    del graph.output[:]
    graph.output.extend([hidden("hidden_states"), *kept])
    if not cached:
        for port in [each for each in graph.input if "past" in each.name]:
            graph.input.remove(port)
        for node in graph.node:
            if node.op_type == "Attention":
                del node.input[3:], node.output[1:]
    return model


def hidden(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "sequence", HIDDEN])


def test_b3_a_decoder_without_logits_is_refused_in_words(tmp_path: Path) -> None:
    """The reference's process ends at the first run."""
    errors = [each for each in problems(package(tmp_path, {}, headless())) if each.severity is Severity.ERROR]
    assert [each.code for each in errors] == ["no-logits"]
    assert "no stage produces logits" in errors[0].what
    assert "exclude_lm_head" in errors[0].help


def test_b3_as_features_of_one_call_it_runs(tmp_path: Path) -> None:
    """Without caches there is nothing to go on with: what it gives are features."""
    folder = package(tmp_path / "p", {}, headless(cached=False))
    ids = np.array([[3, 7, 11, 4], [9, 1, 1, 2]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    wanted = session.run(["hidden_states"], feeds)[0]
    made = loaded(folder).run(feeds)["hidden_states"]
    np.testing.assert_array_equal(np.asarray(made), np.asarray(wanted))


def test_b4_chosen_hidden_layers_come_out_of_one_pass(tmp_path: Path) -> None:
    """A text encoder of a diffusion model: no caches, the values of layers 2 and 4 as outputs."""
    model = headless(cached=False)
    model.graph.node.append(helper.make_node("Identity", ["x.2"], ["layer_2"]))
    model.graph.node.append(helper.make_node("Identity", ["x.4"], ["layer_4"]))
    del model.graph.output[:]
    model.graph.output.extend([hidden("layer_2"), hidden("layer_4")])
    folder = package(tmp_path / "p", {"model": {"type": "some_text_encoder"}}, model)
    feeds = {"input_ids": np.array([[3, 7, 11]]), "attention_mask": np.ones((1, 3), np.int64)}
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    made = loaded(folder).run(feeds)
    for name, wanted in zip(("layer_2", "layer_4"), session.run(["layer_2", "layer_4"], feeds), strict=True):
        np.testing.assert_array_equal(np.asarray(made[name]), np.asarray(wanted))


# ---- B7: state beside the cache --------------------------------------------------------------------------------------


def test_b7_convolution_and_recurrent_state_beside_a_cache(tmp_path: Path) -> None:
    """Three groups, each with its own rule; a request starts from zeros, whatever ran before it."""
    states = (State(), State(("past_key_values.3.recurrent_state", "present.3.recurrent_state"), width=3))
    folder = package(tmp_path / "p", {"model": {"decoder": {"num_hidden_layers": ...}}}, hybrid(Recipe(), *states))
    model = loaded(folder)
    for prompt in (*PROMPTS, PROMPTS[0]):
        wanted = recomputed(folder / "model.onnx", prompt, 10)
        assert model.generate(prompt, max_new_tokens=10, **FREE).tokens == wanted
    kinds = {each["name"]: each["storage"] for each in model.describe()["state_groups"]}
    assert len(kinds) >= 2


def test_b7_without_the_state_the_tokens_are_others(tmp_path: Path) -> None:
    """So that the test above can fail: the same weights without the state's share."""
    save(hybrid(Recipe(), State()), tmp_path / "hybrid.onnx")
    save(decoder(Recipe()), tmp_path / "plain.onnx")
    assert recomputed(tmp_path / "hybrid.onnx", [3, 7], 10) != plain_tokens(tmp_path / "plain.onnx", [3, 7], 10)


V2 = {
    "version": 2,
    "model": {"context_length": 64, "eos_token_id": 2},
    "pipeline": {"extends": "autoregressive-decoder", "sessions": {"decoder": {"file": "model.onnx"}}},
}
BARE = {"model": {"max_sequence_length": 64, "io": {"token_input": "input_ids", "logits_output": "logits"}}}
DIALECTS: dict[str, dict[str, str]] = {
    "version 1": {},
    "version 2": {"genai_config.json": json.dumps(V2)},
    "model.io": {"inference_metadata.yaml": json.dumps(BARE)},
    "plain folder": {"config.json": json.dumps({"max_position_embeddings": 64})},
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_b2_state_of_any_name_is_found_in_every_dialect(tmp_path: Path, dialect: str, op: str) -> None:
    """Caches and a state whose names no file gives and no release has had: what the graph computes from what."""
    recipe = Recipe(op=op, layers=(Layer(0), Layer(1)), past="before{}{}", present="after{}{}")
    folder = package(tmp_path / "p", {"model": {"decoder": {"num_hidden_layers": ...}}},
                     hybrid(recipe, State(("memory", "remembered"))), DIALECTS[dialect])  # fmt: skip
    if dialect in ("model.io", "plain folder"):
        (folder / "genai_config.json").unlink()
    model = loaded(folder)
    for prompt in PROMPTS:
        wanted = recomputed(folder / "model.onnx", prompt, 10)
        assert model.generate(prompt, max_new_tokens=10, **FREE).tokens == wanted
