"""Public reports of what such packages contain (known traps A, B, C, D, E, R), each as a tiny package."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler.lower.genai_config_v1 import Lowered, lower_genai_config
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.config_keys import SEARCH
from onnx import TensorProto, helper

from tests.data import DATA, needs_data
from tests.lower.packages import Layer, Recipe, decoder, write_config, write_package


def lower(folder: Path, recipe: Recipe | None = None, config: dict[str, Any] | None = None) -> Lowered:
    return lower_genai_config(write_package(folder, recipe or Recipe(), config))


def refused(folder: Path, recipe: Recipe | None = None, config: dict[str, Any] | None = None) -> dict[str, Problem]:
    with pytest.raises(CompileError) as caught:
        lower(folder, recipe, config)
    return {each.code: each for each in caught.value.problems}


def outcome(folder: Path) -> tuple[tuple[Problem, ...], dict[str, Any] | None]:
    """(problems, the document if the package was not refused)."""
    try:
        lowered = lower_genai_config(folder)
    except CompileError as refusal:
        return refusal.problems, None
    return lowered.problems, lowered.document


def warned(lowered: Lowered) -> dict[str, Problem]:
    return {each.code: each for each in lowered.problems}


def eos_literal(lowered: Lowered) -> list[int]:
    default = lowered.document["pipeline"]["workflow"]["inputs"]["package.eos_token_ids"]["default"]
    assert isinstance(default, list)
    return default


@pytest.mark.parametrize(("stated", "ids"), [([7, 9, 7], [7, 9]), (7, [7]), ([7.0], [7]), ([], [0]), (..., [0])])
def test_a1_end_ids_are_one_or_many(tmp_path: Path, stated: object, ids: list[int]) -> None:
    """[] and nothing at all fall back to the pad id, as in the reference."""
    assert eos_literal(lower(tmp_path, config={"model": {"eos_token_id": stated}})) == ids


@pytest.mark.parametrize("key", ["pad_token_id", "bos_token_id"])
def test_a2_other_ids_may_be_lists_too(tmp_path: Path, key: str) -> None:
    lowered = lower(tmp_path, config={"model": {key: [1, 2]}})
    assert {"pad_token_id": lowered.text.pad, "bos_token_id": lowered.text.bos}[key] == 1
    problem = warned(lowered)["several-token-ids"]
    assert problem.path == f"model.{key}"
    assert "[1, 2]" in problem.what


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


@pytest.mark.parametrize("kind", ["lama", "never_seen", "", ...])
def test_a4_b1_the_type_decides_nothing(tmp_path: Path, kind: object) -> None:
    lowered = lower(tmp_path, config={"model": {"type": kind}})
    assert lowered.document == lower(tmp_path / "plain").document
    assert "decides nothing" in lowered.notes[0]


def test_a4_a_folder_is_never_parsed_as_a_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert refused(tmp_path, config={"model": {"decoder": {"filename": "model"}}})["not-a-file"].where.line == 1
    missing = refused(tmp_path, config={"model": {"decoder": {"filename": ...}}})["missing-key"]
    assert "model.onnx" in missing.help


def test_a5_cache_bytes_are_known_before_anything_is_allocated(tmp_path: Path) -> None:
    """131072 positions x 2 tensors x 1 head x 8 x 4 bytes."""
    lowered = lower(tmp_path, config={"model": {"context_length": 131072}})
    facts = lowered.decoder
    assert facts.cache_bytes_per_token * facts.max_sequence_length == 131072 * 2 * 1 * 8 * 4
    assert any("64 bytes a token" in note and "131072" in note for note in lowered.notes)


def test_a6_max_length_over_context_length(tmp_path: Path) -> None:
    config = {"model": {"context_length": 2176}, "search": {"max_length": 2347}}
    lowered = lower(tmp_path, config=config)
    problem = warned(lowered)["length-over-context"]
    assert all(each in problem.what for each in ("2347", "2176", "context_length"))
    assert "max_new_tokens" in problem.help
    assert lowered.document["generation"]["defaults"]["max_length"] == 2176
    assert lowered.document["model"]["max_sequence_length"] == 2176


def test_a8_no_repeat_ngram_size_reaches_the_defaults(tmp_path: Path) -> None:
    defaults = lower(tmp_path, config={"search": {"no_repeat_ngram_size": 3}}).document["generation"]["defaults"]
    assert defaults["no_repeat_ngram_size"] == 3


def _documented_search_keys() -> list[str]:
    text = (DATA / "reference" / "genai-config.md").read_text()
    section = text[text.index("### 1.12") : text.index("### 1.13")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [key for row in rows for key in re.findall(r"`(\w+)`", row)]


@needs_data
def test_a8_every_documented_search_key_is_known() -> None:
    assert sorted(_documented_search_keys()) == sorted(SEARCH)


@pytest.mark.parametrize("key", sorted(SEARCH))
def test_a8_every_search_key_has_an_effect_or_a_diagnostic(tmp_path: Path, key: str) -> None:
    values = {"do_sample": True, "early_stopping": False, "past_present_share_buffer": True, "audio_interleaved": True}
    fractions = {"repetition_penalty": 1.3, "top_p": 0.7, "temperature": 0.4}
    recipe = Recipe(op="attention")  # it appends, so that a shared buffer is something to speak of
    plain = lower(tmp_path / "plain", recipe)
    config = {"search": {key: values.get(key, fractions.get(key, 5))}}
    problems, document = outcome(write_package(tmp_path / "set", recipe, config))
    named = any(each.path == f"search.{key}" for each in problems)
    assert named or (document is not None and document != plain.document)


def test_a10_a_folder_without_a_config(tmp_path: Path) -> None:
    write_package(tmp_path, Recipe())
    (tmp_path / "genai_config.json").unlink()
    with pytest.raises(CompileError) as caught:
        lower_genai_config(tmp_path)
    missing = {each.where.file for each in caught.value.problems}
    assert missing == {"genai_config.json", "tokenizer.json", "tokenizer_config.json"}
    told = next(each.help for each in caught.value.problems if each.where.file == "genai_config.json")
    assert all(each in told for each in ("input_ids", "1 attention caches", "24 logits"))


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
    unset = {"model": {"decoder": {"head_size": 0, "hidden_size": 8, "num_attention_heads": 1}}}
    assert refused(tmp_path, recipe, unset)["unknown-state-shape"].path == "model.decoder.head_size"


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


@pytest.mark.parametrize("spelling", ["WebGpuExecutionProvider", "webgpu", "WebGPU", "web", "WEBGPUEXECUTIONPROVIDER"])
def test_r2_provider_spellings_are_one(tmp_path: Path, spelling: str) -> None:
    session = {"session_options": {"provider_options": [{spelling: {"a": "1"}}, {"WebGPU": {"b": 2}}, {}]}}
    lowered = lower(tmp_path, config={"model": {"decoder": session}})
    assert [(each.name, each.options) for each in lowered.providers] == [
        ("WebGpuExecutionProvider", (("a", "1"), ("b", "2")))
    ]


def test_r2_an_unknown_provider_is_an_error(tmp_path: Path) -> None:
    session = {"session_options": {"provider_options": [{"cudda": {}}]}}
    problem = refused(tmp_path, config={"model": {"decoder": session}})["unknown-provider"]
    assert "'cudda'" in problem.what
    assert "CUDAExecutionProvider" in problem.help


def test_a_package_names_no_file_of_the_machine(tmp_path: Path) -> None:
    session = {
        "custom_ops_library": "evil.so",
        "session.model_external_initializers_file_folder_path": "/etc",
        "session.disable_prepacking": True,
        "provider_options": [{"qnn": {"backend_path": "/tmp/evil.so", "htp_performance_mode": "burst"}}],
    }
    lowered = lower(tmp_path, config={"model": {"decoder": {"session_options": session}}})
    assert lowered.session_options.entries == (("session.disable_prepacking", "1"),)
    assert lowered.providers[0].options == (("htp_performance_mode", "burst"),)
    assert sum(each.code == "ignored-key" for each in lowered.problems) == 3


def test_vocabulary_conflicts_take_the_graph_as_width_and_the_config_as_limit(tmp_path: Path) -> None:
    lowered = lower(tmp_path, config={"model": {"vocab_size": 20}})
    assert (lowered.decoder.vocab_size, lowered.decoder.sampled_ids) == (24, 20)
    assert lowered.document["model"]["vocab_size"] == 24
    assert all(each in warned(lowered)["config-contradicts-graph"].what for each in ("20", "24"))


def test_end_ids_no_logit_can_reach_are_dropped(tmp_path: Path) -> None:
    lowered = lower(tmp_path, config={"model": {"eos_token_id": [-1, 2, 24]}})
    assert eos_literal(lowered) == [2]
    assert sum(each.code == "bad-token-id" for each in lowered.problems) == 2


def test_f1_end_ids_are_the_union_of_all_sources(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 5]}')
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end>"}}')
    (tmp_path / "tokenizer.json").write_text(
        '{"model": {"vocab": {"a": 3}}, "added_tokens": [{"id": 9, "content": "<end>"}]}'
    )
    lowered = lower(tmp_path)
    assert eos_literal(lowered) == [2, 5, 9]
    said = {each.id: each.said_by for each in lowered.text.end_ids}
    assert said[2] == ("genai_config.json model.eos_token_id", "generation_config.json eos_token_id")
    assert said[9] == ("tokenizer_config.json eos_token '<end>'",)


@pytest.mark.parametrize(
    ("port", "code", "word"),
    [
        (("past_sequence_length", TensorProto.INT32, [1]), "unsupported-package-class", "sequence-length"),
        (("block_table", TensorProto.INT32, ["b", "n"]), "unsupported-package-class", "paged"),
        (("past_key_values.0.conv_state", TensorProto.FLOAT, ["b", 8, 3]), "unsupported-package-class", "convolution"),
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


def test_state_without_its_output(tmp_path: Path) -> None:
    names = {"outputs": {"present_value_names": "next.%d.value"}}
    problem = refused(tmp_path, config={"model": {"decoder": names}})["unpaired-state"]
    assert all(each in problem.what for each in ("past_key_values.0.value", "next.0.value"))


def test_two_rows_of_trouble_are_told_at_once(tmp_path: Path) -> None:
    config = {
        "model": {"decoder": {"filename": "model.onnx", "outputs": {"logits": "scores"}}, "vocab_size": "many"},
        "search": {"num_beams": 4, "temperature": -1},
    }
    found = refused(tmp_path, config=config)
    assert {"no-logits", "wrong-type", "unsupported-search", "bad-value"} <= set(found)


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


def test_context_length_comes_from_elsewhere_when_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 48}')
    lowered = lower(tmp_path, config={"model": {"context_length": ...}})
    assert lowered.decoder.max_sequence_length == 48
    assert "config.json" in warned(lowered)["missing-context-length"].what


@pytest.mark.parametrize("name", ["../model.onnx", "/tmp/model.onnx", "a\\..\\..\\x.onnx", "C:\\x.onnx"])
def test_paths_stay_in_the_package(tmp_path: Path, name: str) -> None:
    assert refused(tmp_path, config={"model": {"decoder": {"filename": name}}})["outside-package"].help


def test_windows_made_paths_work(tmp_path: Path) -> None:
    write_package(tmp_path / "decoder", Recipe())
    write_config(tmp_path, {"model": {"decoder": {"filename": "decoder\\model.onnx"}}})
    assert lower_genai_config(tmp_path).decoder.artifact == "decoder/model.onnx"


def test_lowering_is_deterministic(tmp_path: Path) -> None:
    one, two = lower(tmp_path / "one"), lower(tmp_path / "two")
    assert str(one.document) == str(two.document)
