"""Public reports of what graphs contain (known traps A3, C, D, G), each as a tiny package."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.problem import CompileError
from onnx import TensorProto, helper

from tests.lower.packages import Layer, Recipe, decoder, lower, outcome, refused, warned, write_package


def test_a3_no_stage_produces_embeddings(tmp_path: Path) -> None:
    model = decoder(Recipe())
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("inputs_embeds", 1, ["batch", "sequence", 8]))
    model.graph.node[6].CopyFrom(helper.make_node("Identity", ["inputs_embeds"], ["x.0"]))
    write_package(tmp_path, model)
    with pytest.raises(CompileError) as caught:
        lower_genai_config(tmp_path)
    problem = next(each for each in caught.value.problems if each.code == "no-embedding-stage")
    assert "no stage produces 'inputs_embeds'" in problem.what
    assert "exclude_embeds" in problem.help


@pytest.mark.parametrize(
    ("elem_type", "name"),
    [(TensorProto.FLOAT16, "float16"), (TensorProto.BFLOAT16, "bfloat16"), (TensorProto.FLOAT, "float32")],
)
def test_c1_c2_every_dtype_is_the_graphs(tmp_path: Path, elem_type: int, name: str) -> None:
    lowered = lower(tmp_path, Recipe(dtype=elem_type, logits_dtype=TensorProto.FLOAT))
    cells = lowered.document["pipeline"]["workflow"]["state"]
    assert cells["decoder_kv.0000"]["contract"]["dtype"] == name
    assert lowered.decoder.logits.dtype == "float32"
    swapped = lower(tmp_path, Recipe(dtype=TensorProto.FLOAT, logits_dtype=elem_type))
    assert swapped.decoder.logits.dtype == name
    assert {each.dtype for each in swapped.decoder.states} == {"float32"}


def test_c4_head_size_is_the_graphs_and_a_conflict_is_named(tmp_path: Path) -> None:
    config = {"model": {"decoder": {"head_size": 4, "hidden_size": 8, "num_attention_heads": 2}}}
    lowered = lower(tmp_path, Recipe(layers=(Layer(0, head_dim=16),)), config)
    assert {each.head_dim for each in lowered.decoder.states} == {16}
    problem = warned(lowered)["config-contradicts-graph"]
    assert problem.path == "model.decoder.head_size"
    assert all(each in problem.what for each in ("4", "16", "the graph is taken"))


def test_c4_symbolic_extents_are_the_configs_and_never_guessed(tmp_path: Path) -> None:
    recipe = Recipe(layers=(Layer(0, heads=2, head_dim=8),), symbolic_heads=True)
    lowered = lower(tmp_path, recipe, {"model": {"decoder": {"num_key_value_heads": 2}}})
    assert {(each.heads, each.head_dim) for each in lowered.decoder.states} == {(2, 8)}
    unset = {"model": {"decoder": {"num_key_value_heads": 0, "hidden_size": 8, "num_attention_heads": 1}}}
    assert refused(tmp_path, recipe, unset)["unknown-state-shape"].path == "model.decoder.num_key_value_heads"


@pytest.mark.parametrize("stated", [3, 0, 8])
def test_c4_a_symbolic_head_size_is_what_the_weights_make(stated: int, tmp_path: Path) -> None:
    """Keys are as wide as the matrix that makes them; what the configuration says beside that is named."""
    recipe = Recipe(layers=(Layer(0, heads=2, head_dim=8),), symbolic_heads=True)
    lowered = lower(tmp_path, recipe, {"model": {"decoder": {"num_key_value_heads": 2, "head_size": stated}}})
    assert {(each.heads, each.head_dim) for each in lowered.decoder.states} == {(2, 8)}
    told = [each.path for each in lowered.problems if each.code == "config-contradicts-graph"]
    assert told == (["model.decoder.head_size"] if stated == 3 else [])


def test_c4_a_head_size_that_nothing_tells_is_refused(tmp_path: Path) -> None:
    model = decoder(Recipe(symbolic_heads=True))
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.input[1] = "keys"
    at = next(at for at, node in enumerate(model.graph.node) if node.op_type == "GroupQueryAttention")
    model.graph.node.insert(at, helper.make_node("Tanh", ["ks.0"], ["keys"]))
    write_package(tmp_path, model, {"model": {"decoder": {"head_size": 0}}})
    problems, _ = outcome(tmp_path)
    assert [each.path for each in problems if each.code == "unknown-state-shape"] == ["model.decoder.head_size"]


def test_c5_a_shape_per_layer(tmp_path: Path) -> None:
    layers = (Layer(0, heads=1, head_dim=8), Layer(1, heads=2, head_dim=16))
    lowered = lower(tmp_path, Recipe(layers=layers), {"model": {"decoder": {"num_hidden_layers": 2}}})
    assert [(each.heads, each.head_dim) for each in lowered.decoder.states] == [(1, 8), (1, 8), (2, 16), (2, 16)]
    inputs = lowered.document["pipeline"]["workflow"]["inputs"]
    seeds = {key: each["contract"]["shape"] for key, each in inputs.items() if "seed" in key}
    assert seeds == {
        "package.state_seed": ["batch", 1, "kv_sequence", 8],
        "package.state_seed.1": ["batch", 2, "kv_sequence", 16],
    }


def test_c6_layer_numbers_have_gaps(tmp_path: Path) -> None:
    lowered = lower(tmp_path, Recipe(layers=(Layer(0), Layer(2), Layer(5))))
    assert [each.layer for each in lowered.decoder.states] == [0, 0, 2, 2, 5, 5]
    assert lowered.decoder.states[-1].input == "past_key_values.5.value"
    assert "0, 2, 5" in warned(lowered)["config-contradicts-graph"].what


@pytest.mark.parametrize("template", ["%d", "%i"])
def test_templates_with_other_names(tmp_path: Path, template: str) -> None:
    recipe = Recipe(layers=(Layer(0), Layer(11)), past="cache[{}]/{}", present="new.{}.{}")
    names = {
        "inputs": {f"past_{half}_names": f"cache[{template}]/{half}" for half in ("key", "value")},
        "outputs": {f"present_{half}_names": f"new.{template}.{half}" for half in ("key", "value")},
    }
    lowered = lower(tmp_path, recipe, {"model": {"decoder": names}})
    assert [each.input for each in lowered.decoder.states][2:] == ["cache[11]/key", "cache[11]/value"]


def test_c7_one_symbol_for_past_and_present(tmp_path: Path) -> None:
    recipe = Recipe(op="attention", past_length="length", present_length="length")
    problem = refused(tmp_path, recipe)["shared-symbol"]
    assert all(each in problem.what for each in ("past_key_values.0.key", "present.0.key", "length"))
    in_place = lower(tmp_path, Recipe(past_length="length", present_length="length"))
    assert in_place.decoder.aliasing == "required"
    assert "present.0.key" in warned(in_place)["shared-symbol"].what


def test_c9_a_fixed_past_length_is_a_capacity(tmp_path: Path) -> None:
    lowered = lower(tmp_path, Recipe(past_length=16, present_length=16), {"search": {"max_length": 64}})
    assert lowered.decoder.fixed_capacity == 16
    assert lowered.decoder.aliasing == "required"
    assert lowered.document["model"]["max_sequence_length"] == 16
    assert lowered.document["pipeline"]["workflow"]["inputs"]["package.sequence_capacity"]["default"] == 16
    assert {each.path for each in lowered.problems} >= {"model.context_length", "search.max_length"}
    appends = refused(tmp_path, Recipe(op="attention", past_length=16))
    assert "16" in appends["fixed-cache-appends"].what


def test_c10_in_place_only_where_the_operator_allows(tmp_path: Path) -> None:
    """The operator that is said to write in place does: capacity 16, valid 5, equal to a past of exactly 5."""
    lowered = lower(tmp_path, Recipe())
    assert lowered.decoder.aliasing == "permitted"
    session = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    rng, ids, mask = np.random.default_rng(1), np.array([[3]]), np.ones((1, 6), np.int64)
    short = {f"past_key_values.0.{half}": rng.normal(size=(1, 1, 5, 8)).astype(np.float32) for half in ("key", "value")}
    wanted = session.run(["logits"], {"input_ids": ids, "attention_mask": mask, **short})[0]
    binding = session.io_binding()
    binding.bind_cpu_input("input_ids", ids)
    binding.bind_cpu_input("attention_mask", mask)
    for half in ("key", "value"):
        buffer = np.zeros((1, 1, 16, 8), np.float32)
        buffer[:, :, :5] = short[f"past_key_values.0.{half}"]
        value = ort.OrtValue.ortvalue_from_numpy(buffer)
        binding.bind_ortvalue_input(f"past_key_values.0.{half}", value)
        binding.bind_ortvalue_output(f"present.0.{half}", value)
    binding.bind_output("logits")
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.get_outputs()[2].numpy(), wanted, rtol=1e-5)
    flagged = lower(tmp_path, Recipe(op="attention"), {"search": {"past_present_share_buffer": True}})
    assert flagged.decoder.aliasing == "forbidden"
    assert "share-buffer-refused" in warned(flagged)


def test_d_windows_that_cut_the_prompt_are_refused(tmp_path: Path) -> None:
    bare = {"model": {"decoder": {"sliding_window": {"window_size": 4}}}}
    assert "slide_inputs" in refused(tmp_path, config=bare)["unsupported-package-class"].what


@pytest.mark.parametrize(
    ("port", "code", "word"),
    [
        (("past_sequence_length", TensorProto.INT32, [1]), "unsupported-package-class", "sequence-length"),
        (("cumulative_sequence_lengths", TensorProto.INT32, ["n"]), "unsupported-package-class", "without pages"),
        (("block_table_windowed", TensorProto.INT32, ["b", "n"]), "unsupported-package-class", "keeps a window"),
        (("past_key_values.0.conv_state", TensorProto.FLOAT, ["b", 8, 3]), "unpaired-state", "'present.0.conv_state'"),
        (("mystery", TensorProto.FLOAT, ["b"]), "unclaimed-input", "'mystery'"),
    ],
)
def test_inputs_that_nothing_feeds(tmp_path: Path, port: tuple[str, int, list[Any]], code: str, word: str) -> None:
    name, *kind = port
    assert word in refused(tmp_path, Recipe(extra_inputs={name: (kind[0], kind[1])}))[code].what


def test_the_number_of_logits_to_keep_is_fed_zero(tmp_path: Path) -> None:
    lowered = lower(tmp_path, Recipe(extra_inputs={"num_logits_to_keep": (TensorProto.INT64, [1])}))
    workflow = lowered.document["pipeline"]["workflow"]
    assert workflow["inputs"]["package.num_logits_to_keep"]["default"] == 0
    assert workflow["steps"][0]["steps"][0]["inputs"]["num_logits_to_keep"] == "package.num_logits_to_keep"


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_state_whose_output_is_named_falsely_is_paired_by_the_graph(tmp_path: Path, op: str) -> None:
    names = {"outputs": {"present_value_names": "next.%d.value"}}
    lowered = lower(tmp_path, Recipe(op=op), {"model": {"decoder": names}})
    assert [(each.input, each.output) for each in lowered.decoder.states] == [
        (f"past_key_values.0.{half}", f"present.0.{half}") for half in ("key", "value")
    ]
    assert warned(lowered)["config-contradicts-graph"].path == "model.decoder.outputs.present_value_names"


def test_state_without_its_output(tmp_path: Path) -> None:
    """The graph computes it, and nobody gets it."""
    model = decoder(Recipe())
    model.graph.output.remove(next(each for each in model.graph.output if each.name == "present.0.value"))
    write_package(tmp_path, model)
    with pytest.raises(CompileError) as caught:
        lower_genai_config(tmp_path)
    (problem,) = [each for each in caught.value.problems if each.code == "unpaired-state" and "no output" in each.what]
    assert all(each in problem.what for each in ("past_key_values.0.value", "present.0.value"))


def test_attention_without_a_cache_is_refused(tmp_path: Path) -> None:
    model = decoder(Recipe(op="attention"))
    del model.graph.output[1:]
    del model.graph.input[2:]
    for node in model.graph.node:
        if node.op_type == "Attention":
            del node.input[3:]
            del node.output[1:]
    write_package(tmp_path, model)
    with pytest.raises(CompileError) as caught:
        lower_genai_config(tmp_path)
    assert "no-state" in {each.code for each in caught.value.problems}


def test_g7_random_operators_are_named(tmp_path: Path) -> None:
    model = decoder(Recipe())
    noise = helper.make_node("RandomNormal", [], ["noise"], name="noise_source", shape=[1])
    model.graph.node.insert(0, noise)
    write_package(tmp_path, model)
    assert "noise_source" in warned(lower_genai_config(tmp_path))["random-in-graph"].what
