"""`model.io` documents over graphs made on the spot: what a name finds, what the graph tells, what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.lower.bare_decoder import lower_bare
from genai_compiler.lower.lowered import Lowered
from genai_compiler.problem import Problem
from genai_compiler.read.files import read_document
from genai_compiler.read.validate import parse_bare
from onnx import ModelProto, TensorProto, helper, save

from tests.lower.hybrids import State, hybrid, recomputed
from tests.lower.packages import Layer, Recipe, decoder, laid_over
from tests.reference.plain_loop import greedy

NAMED = {
    "token_input": "input_ids",
    "attention_mask_input": "attention_mask",
    "logits_output": "logits",
    "kv_inputs": ["past_key_values.0.key", "past_key_values.0.value"],
    "kv_outputs": ["present.0.key", "present.0.value"],
}


def package(folder: Path, model: ModelProto, io: Mapping[str, Any], over: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save(model, folder / "model.onnx")
    document = laid_over({"model": {"max_sequence_length": 64, "io": dict(io)}}, over or {})
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(document))
    return folder


def lower(folder: Path) -> Lowered:
    data, places = read_document(folder / "inference_metadata.yaml", folder)
    return lower_bare(folder, parse_bare(data, places), places)


def refused(folder: Path) -> dict[str, Problem]:
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.parent / "refused")
    return {each.code: each for each in caught.value.problems}


def with_positions(model: ModelProto, shape: list[str | int]) -> ModelProto:
    """The graph with one more integer input, which it reads without effect."""
    model.graph.node.append(helper.make_node("Shape", ["places"], ["places_shape"]))
    model.graph.input.append(helper.make_tensor_value_info("places", TensorProto.INT64, shape))
    return model


# ---- what the block leaves out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("left_out", [(), ("token_input",), ("logits_output",), ("kv_inputs", "kv_outputs"), (*NAMED,)])
def test_what_the_block_leaves_out_is_found_where_one_port_fits(left_out: tuple[str, ...], tmp_path: Path) -> None:
    """With everything named or almost nothing, the same tokens as a plain loop over the graph."""
    io = {key: value for key, value in NAMED.items() if key not in left_out} or {"sequence_source": "token_ids"}
    folder = package(tmp_path / "p", decoder(Recipe(layers=(Layer(0, 2, 16),))), io)
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate([3, 1, 7], max_new_tokens=8, temperature=0, stop_on_eos=False).tokens
    assert made == greedy(folder / "model.onnx", [3, 1, 7], 8)


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("names", [("memory", "remembered"), ("past_key_values.3.conv_state", "present.3.conv_state")])
def test_state_that_the_block_leaves_out_is_the_graphs(names: tuple[str, str], caches: bool, tmp_path: Path) -> None:
    """State of one size without state_pairs; with or without the caches' names."""
    io = {key: value for key, value in NAMED.items() if caches or not key.startswith("kv_")}
    folder = package(tmp_path / "p", hybrid(Recipe(op="attention"), State(names)), io)
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        for prompt in ([3, 1, 7], [5]):
            made = model.generate(prompt, max_new_tokens=8, temperature=0, stop_on_eos=False).tokens
            assert made == recomputed(folder / "model.onnx", prompt, 8)


def test_a_list_of_states_that_misses_one_is_refused(tmp_path: Path) -> None:
    """What the block lists is all there is, by its word."""
    model = hybrid(Recipe(), State(), State(("past_key_values.5.x", "present.5.x")))
    pair = {
        "input": "past_key_values.3.conv_state",
        "output": "present.3.conv_state",
        "init": "zeros",
        "update": "replace",
    }
    folder = package(tmp_path / "p", model, {**NAMED, "state_pairs": [pair]})
    assert "'past_key_values.5.x'" in refused(folder)["unclaimed-input"].what


def test_two_ports_that_could_be_the_tokens_are_an_error_that_names_the_field(tmp_path: Path) -> None:
    io = {key: value for key, value in NAMED.items() if key != "token_input"}
    folder = package(tmp_path, with_positions(decoder(Recipe()), ["batch", "sequence"]), io)
    told = refused(folder)["ambiguous-port"]
    assert told.path == "model.io.token_input"
    assert "'input_ids', 'places'" in told.what
    assert "model.io.token_input" in told.help


def test_positions_of_three_axes_are_told_by_their_shape(tmp_path: Path) -> None:
    io = {key: value for key, value in NAMED.items() if key != "token_input"}
    lowered = lower(package(tmp_path, with_positions(decoder(Recipe()), [3, "batch", "sequence"]), io))
    assert lowered.decoder.position_ids is not None
    assert lowered.decoder.position_ids.name == "places"
    assert lowered.decoder.token_ids.name == "input_ids"


# ---- names and the graph ---------------------------------------------------------------------------------------------


def test_a_name_that_the_graph_lacks_is_refused_with_the_near_one(tmp_path: Path) -> None:
    told = refused(package(tmp_path, decoder(Recipe()), {**NAMED, "attention_mask_input": "attention_masks"}))
    assert told["missing-input"].path == "model.io.attention_mask_input"
    assert told["missing-input"].where.line > 0
    assert "attention_mask" in told["missing-input"].help


def test_presents_in_another_order_than_the_pasts_are_refused(tmp_path: Path) -> None:
    """Key and value look alike; only the operator's edges tell that they were swapped."""
    io = {**NAMED, "kv_outputs": ["present.0.value", "present.0.key"]}
    assert refused(package(tmp_path, decoder(Recipe()), io))["wrong-port"].path == "model.io.kv_outputs[1]"


def test_lists_that_do_not_pair_are_refused(tmp_path: Path) -> None:
    told = refused(package(tmp_path, decoder(Recipe()), {**NAMED, "kv_outputs": ["present.0.key"]}))
    assert "2 ports and kv_outputs 1" in told["unpaired-state"].what


def test_an_input_that_nothing_feeds_is_refused(tmp_path: Path) -> None:
    model = decoder(Recipe(extra_inputs={"noise": (TensorProto.FLOAT, ["batch", 4])}))
    model.graph.node.append(helper.make_node("Shape", ["noise"], ["noise_shape"]))
    assert "'noise'" in refused(package(tmp_path, model, NAMED))["unclaimed-input"].what


@pytest.mark.parametrize(
    ("io", "code"),
    [
        ({"kv_ownership": "shared"}, "unsupported-package-class"),
        ({"kv_layout": "seq_major_bsnh"}, "unsupported-package-class"),
        ({"kv_inputs": [], "kv_outputs": [], "cross_kv_inputs": NAMED["kv_inputs"]}, "unsupported-package-class"),
        ({"optional_inputs": {"x": {"presence": "x", "absent": {"kind": "zeros", "shape": [1]}}}},
         "unsupported-package-class"),
        ({"token_input": None, "inputs_embeds_input": "input_ids"}, "no-embedding-stage"),
    ],
)  # fmt: skip
def test_forms_that_are_not_compiled_are_refused(io: dict[str, Any], code: str, tmp_path: Path) -> None:
    block = {key: value for key, value in {**NAMED, **io}.items() if value is not None}
    assert refused(package(tmp_path, decoder(Recipe()), block))[code].help


def test_several_graphs_and_none_of_them_named_are_refused(tmp_path: Path) -> None:
    package(tmp_path, decoder(Recipe()), NAMED)
    (tmp_path / "model.onnx").rename(tmp_path / "a.onnx")
    save(decoder(Recipe()), tmp_path / "b.onnx")
    assert "a.onnx, b.onnx" in refused(tmp_path)["missing-file"].what


def test_an_input_that_no_node_reads_needs_nothing_from_anyone(tmp_path: Path) -> None:
    model = decoder(Recipe(extra_inputs={"forgotten": (TensorProto.FLOAT, ["batch", 4, "length"])}))
    folder = package(tmp_path / "p", model, {**NAMED, "cross_kv_inputs": ["forgotten"]})
    problems = compile_package(folder, out=tmp_path / "out").problems
    assert [each.path for each in problems if "no node of the graph reads" in each.what] == ["model.io.cross_kv_inputs"]
    with genai_runtime.load(tmp_path / "out", threads=1) as model_of:
        assert len(model_of.generate([3, 1], max_new_tokens=4, stop_on_eos=False).tokens) == 4


# ---- false words -----------------------------------------------------------------------------------------------------


def test_false_statements_are_warnings_at_their_places(tmp_path: Path) -> None:
    notes = {
        "inputs": [
            {"name": "input_ids", "dtype": "fp32"},
            {"name": "attention_mask", "rank": 3},
            {"name": "gone"},
            {"name": "past_key_values.0.key", "dtype": "fp32", "shape": ["batch", 2, "past", "8"]},
        ]
    }
    over = {
        "kv_cache": {"native_dtype": "float16"},
        "model": {"vocab_size": 99, "attention": {"type": "multi_head", "num_kv_heads": 1, "head_dim": 4}},
    }
    problems = lower(package(tmp_path, decoder(Recipe()), {**NAMED, **notes}, over)).problems
    said = {each.path: each for each in problems if each.code == "config-contradicts-graph"}
    assert set(said) == {
        "model.io.inputs[0]",
        "model.io.inputs[1]",
        "model.io.inputs[2]",
        "model.io.inputs[3]",
        "kv_cache.native_dtype",
        "model.vocab_size",
        "model.attention.head_dim",
    }
    assert all(each.where.line > 0 for each in said.values())


def test_true_statements_are_not_warned_of(tmp_path: Path) -> None:
    notes = {"inputs": [{"name": "past_key_values.0.key", "dtype": "fp32", "rank": 4, "shape": ["b", 1, "p", "8"]}]}
    over = {"kv_cache": {"native_dtype": "fp32"}, "model": {"attention": {"type": "gqa", "num_kv_heads": 1}}}
    lowered = lower(package(tmp_path, decoder(Recipe()), {**NAMED, **notes}, over))
    assert not [each for each in lowered.problems if each.code == "config-contradicts-graph"]


# ---- storage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "aliasing", "wanted"),
    [
        (Recipe(), None, "permitted"),
        (Recipe(), "required", "permitted"),
        (Recipe(), "forbidden", "forbidden"),
        (Recipe(op="attention"), None, "forbidden"),
        (Recipe(op="attention"), "required", "forbidden"),
    ],
)
def test_one_buffer_where_the_graph_proves_it_and_the_document_does_not_forbid_it(
    recipe: Recipe, aliasing: str | None, wanted: str, tmp_path: Path
) -> None:
    lowered = lower(package(tmp_path, decoder(recipe), {**NAMED, **({"aliasing": aliasing} if aliasing else {})}))
    assert lowered.decoder.aliasing == wanted
    refusal = [each for each in lowered.problems if each.code == "share-buffer-refused"]
    assert bool(refusal) == (recipe.op == "attention" and aliasing == "required")


def test_layers_keep_the_order_of_the_lists(tmp_path: Path) -> None:
    recipe = Recipe(layers=(Layer(5), Layer(2, heads=2)))
    names = [f"{{}}.{number}.{half}" for number in (2, 5) for half in ("key", "value")]
    io = {
        **NAMED,
        "kv_inputs": [each.format("past_key_values") for each in names],
        "kv_outputs": [each.format("present") for each in names],
    }
    lowered = lower(package(tmp_path, decoder(recipe), io))
    assert [(each.layer, each.role, each.input) for each in lowered.decoder.states] == [
        (0, "key", "past_key_values.2.key"),
        (0, "value", "past_key_values.2.value"),
        (1, "key", "past_key_values.5.key"),
        (1, "value", "past_key_values.5.value"),
    ]
    assert [each.heads for each in lowered.decoder.states] == [2, 2, 1, 1]
