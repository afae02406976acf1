"""Version 2 packages: what runs is what plain loops over the graphs give, and no name of a model has a say."""

import difflib
import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.plan.text import plan_text
from genai_compiler.read.pipeline_config import PipelineEntry
from genai_compiler.read.pipeline_presets import PRESETS
from onnx import TensorProto, load_from_string

from tests.data import ROOT
from tests.lower.packages import Layer, Recipe, decoder, laid_over, lower
from tests.lower.pipelines import (
    ENCODER_DECODER,
    MARK,
    MINIMAL,
    SIZE,
    SOUND_MARK,
    SPEECH_TOO,
    VISION,
    Document,
    by_hand,
    cross_by_hand,
    encoder_decoder,
    lone,
    masked,
    media_by_hand,
    named,
    package,
    pipeline,
    problems,
    speaking,
    speech_too,
    tokens,
    vision,
)
from tests.reference.plain_loop import greedy

PLAIN: Document = json.loads(MINIMAL)
IDS = "request.input_ids"


def said(folder: Path) -> dict[str, str]:
    """path -> what, of the warnings of a package that compiles."""
    return {each.path: each.what for each in lower_pipeline_config(folder).problems}


# ---- one decoder -----------------------------------------------------------------------------------------------------


def test_seven_lines_are_a_whole_package(tmp_path: Path) -> None:
    assert MINIMAL.count("\n") == 7
    assert f"```json\n{MINIMAL}```\n" in (ROOT / "docs" / "pipelines.md").read_text("utf-8")
    folder = package(tmp_path / "p", MINIMAL, lone())
    assert tokens(folder, 8, **{IDS: [[3, 1, 7]]}) == [by_hand(folder, "model.onnx", [3, 1, 7], 8)]


@pytest.mark.parametrize("fixture", ["tiny-gqa-v1", "tiny-concat-v1"])
def test_both_versions_of_a_package_have_one_plan_and_one_output(fixture: str, tmp_path: Path) -> None:
    """Side by side: the two plans line by line, and the tokens with those of a plain loop over the graph."""
    first, second = (tmp_path / version / "package" for version in ("v1", "v2"))
    for folder in (first, second):
        folder.mkdir(parents=True)
        for file in (ROOT / "fixtures" / fixture).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    old = json.loads((first / "genai_config.json").read_text())
    sampling = {key: old["search"][key] for key in ("do_sample", "temperature", "top_k", "top_p")}
    eos, pad, bos = (old["model"][f"{key}_token_id"] for key in ("eos", "pad", "bos"))
    new = {
        **PLAIN,
        "tokens": {"eos": eos, "pad": pad, "bos": bos},
        "generation": {"max_length": old["search"]["max_length"], "sampling": sampling},
    }
    (second / "genai_config.json").write_text(json.dumps(new))
    plans, made = [], []
    for folder in (first, second):
        out = folder.with_name("out")
        plan = compile_package(folder, out=out).plan
        assert plan is not None
        plans.append(
            plan_text(plan).replace("genai_config v1", "genai_config").replace("genai_config v2", "genai_config")
        )
        with genai_runtime.load(out, threads=1) as model:
            made.append(model.generate([1, 9, 14], max_new_tokens=12).tokens)
    beside = difflib.unified_diff(plans[0].splitlines(), plans[1].splitlines(), "version 1", "version 2", lineterm="")
    assert "\n".join(beside) == ""
    stop = eos if isinstance(eos, list) else [eos]
    assert made[0] == made[1] == greedy(first / "model.onnx", [1, 9, 14], 12, stop)


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(op="attention"), Recipe(layers=(Layer(1), Layer(4, 2, 4)))])
def test_both_versions_lower_to_one_document(recipe: Recipe, tmp_path: Path) -> None:
    """Layers of any number, caches that grow or are written in place: plans of equal documents are equal."""
    old = lower(tmp_path / "v1", recipe, {"model": {"vocab_size": ...}})
    new = {**PLAIN, "tokens": {"eos": 2, "pad": 0}, "generation": {"max_length": 64}}
    made = lower_pipeline_config(package(tmp_path / "v2", new, {"model.onnx": decoder(recipe)}))
    assert made.document == old.document


@pytest.mark.parametrize("kind", ["lama", "never_seen", "pixtral", ""])
def test_the_type_string_changes_nothing(kind: str, tmp_path: Path) -> None:
    plain = lower_pipeline_config(package(tmp_path / "plain", VISION, vision()))
    told = {**VISION, "metadata": {"model_type": kind, "architecture": kind}, "model": {"type": kind}}
    typed = lower_pipeline_config(package(tmp_path / "typed", told, vision()))
    assert (typed.document, typed.notes, typed.problems) == (plain.document, plain.notes, plain.problems)


def test_names_of_sessions_change_nothing_but_names(tmp_path: Path) -> None:
    """The last step that feeds no other session decodes, whatever it is called."""
    other = {**PLAIN, "pipeline": {"sessions": {"encoder": {"file": "model.onnx"}}}}
    documents = [
        lower_pipeline_config(package(tmp_path / name, each, lone())).document
        for name, each in (("a", PLAIN), ("b", other))
    ]
    assert documents[0] == documents[1]


def test_ports_of_any_name_are_told_by_the_graph(tmp_path: Path) -> None:
    names = {"input_ids": "a", "attention_mask": "b", "past_key_values.0.key": "c", "past_key_values.0.value": "d",
             "logits": "e", "present.0.key": "f", "present.0.value": "g"}  # fmt: skip
    folder = package(tmp_path / "p", PLAIN, {"model.onnx": named(decoder(Recipe()), names)})
    assert tokens(folder, 6, **{IDS: [[3, 1, 7]]}) == [by_hand(folder, "model.onnx", [3, 1, 7], 6)]


@pytest.mark.parametrize("slot", ["{layer}", "%d", "{i}", "{}"])
def test_patterns_name_caches_that_no_operator_tells(slot: str, tmp_path: Path) -> None:
    """Any spelling of the slot; the graph here appends with plain operators."""
    graph = (ROOT / "fixtures/tiny-concat-v1/model.onnx").read_bytes()
    patterns = {f"{when}_{half}_pattern": f"{when}_{half}_{slot}" for when in ("past", "present")
                for half in ("key", "value")}  # fmt: skip
    names = {f"past_key_values.{n}.{half}": f"past_{half}_{n}" for n in (0, 1) for half in ("key", "value")}
    names |= {f"present.{n}.{half}": f"present_{half}_{n}" for n in (0, 1) for half in ("key", "value")}
    document = {**PLAIN, "pipeline": {**PLAIN["pipeline"], "state": {"kv_cache": patterns}},
                "generation": {"max_length": 64}}  # fmt: skip
    folder = package(tmp_path / "p", document, {"model.onnx": named(load_from_string(graph), names)})
    wanted = greedy(ROOT / "fixtures/tiny-concat-v1/model.onnx", [1, 9, 14], 6)
    assert tokens(folder, 6, **{IDS: [[1, 9, 14]]}) == [wanted]


def test_a_dialect_may_leave_the_file_to_the_preset(tmp_path: Path) -> None:
    document = {"version": 2, "pipeline": {"extends": "autoregressive-decoder"}}
    folder = package(tmp_path / "p", document, lone())
    assert tokens(folder, 4, **{IDS: [[3, 1]]}) == [by_hand(folder, "model.onnx", [3, 1], 4)]


@pytest.mark.parametrize(
    ("state", "path", "words"),
    [
        ({"position_ids": {"strategy": "mrope_3d"}}, "position_ids.strategy", "the decoder takes no positions"),
        ({"position_ids": {"input_name": "places"}}, "position_ids.input_name", "no input 'places'"),
        ({"type": "recurrent"}, "type", "no state that each step replaces"),
    ],
)
def test_what_contradicts_the_graph_is_said(state: Any, path: str, words: str, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", pipeline(PLAIN, state=state), lone())
    assert words in said(folder)[f"pipeline.state.{path}"]
    assert (
        lower_pipeline_config(folder).document == lower_pipeline_config(package(tmp_path / "q", PLAIN, lone())).document
    )


def test_blocks_of_version_1_fill_what_version_2_leaves_open(tmp_path: Path) -> None:
    """Heads that the graph leaves symbolic; where both speak, version 2 is taken and the difference is said."""
    recipe = Recipe(symbolic_heads=True)
    block = {"context_length": 32, "eos_token_id": 5, "decoder": {"num_key_value_heads": 1, "head_size": 8}}
    mixed = {**PLAIN, "model": block, "tokens": {"eos": [2]}, "generation": {"sampling": {"top_k": 3}},
             "search": {"top_k": 4, "max_length": 16}}  # fmt: skip
    folder = package(tmp_path / "p", mixed, {"model.onnx": decoder(recipe)})
    lowered = lower_pipeline_config(folder)
    assert lowered.decoder.max_sequence_length == 32
    assert [(each.heads, each.head_dim) for each in lowered.decoder.states] == [(1, 8)] * 2
    assert lowered.text.eos == (2,)
    defaults = lowered.document["generation"]["defaults"]
    assert (defaults["top_k"], defaults["max_length"]) == (3, 16)
    assert said(folder)["tokens.eos"] == "eos is 2 here, but model.eos_token_id says 5; version 2 is taken"
    assert "search.top_k says 4" in said(folder)["generation.sampling.top_k"]
    mixed |= {"generation": {"sampling": {"do_sample": True}}, "search": {"do_sample": False}}
    both = said(package(tmp_path / "q", mixed, {"model.onnx": decoder(recipe)}))["generation.sampling.do_sample"]
    assert "do_sample is true here, but search.do_sample says false" in both


def test_a_temperature_alone_stays_greedy_and_is_said(tmp_path: Path) -> None:
    document = {**PLAIN, "generation": {"sampling": {"temperature": 0.7}}}
    folder = package(tmp_path / "p", document, lone())
    assert lower_pipeline_config(folder).document["generation"]["defaults"]["do_sample"] is False
    assert "greedily" in said(folder)["generation.sampling.temperature"]


@pytest.mark.parametrize(("more", "key"), [({}, "top_k"), ({"top_p": 0.0}, "top_p")])
def test_one_token_by_a_default_of_the_format_is_said_where_something_is_stated(
    more: dict[str, float], key: str, tmp_path: Path
) -> None:
    """Sampling of all tokens was wanted, one is kept: top_p is 0 where nobody says it."""
    sampling = {"do_sample": True, "temperature": 0.7, "top_k": 0, **more}
    folder = package(tmp_path / "p", {**PLAIN, "generation": {"sampling": sampling}}, lone())
    assert lower_pipeline_config(folder).document["generation"]["defaults"]["top_k"] == 1
    assert "keeps one token" in said(folder)[f"generation.sampling.{key}"]


def test_a_version_beside_a_plain_model_block_says_nothing(tmp_path: Path) -> None:
    """Exporters write it there, and no runtime reads it."""
    old = json.loads((ROOT / "fixtures/tiny-gqa-v1/genai_config.json").read_text())
    graph = (ROOT / "fixtures/tiny-gqa-v1/model.onnx").read_bytes()
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(graph)
    (folder / "genai_config.json").write_text(json.dumps({"version": 2, **old}))
    plan = compile_package(folder, out=tmp_path / "out").plan
    assert plan is not None
    assert plan_text(plan).startswith("plan p from genai_config v1")


# ---- presets are data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_pipeline_like_any_other(name: str) -> None:
    made = PipelineEntry.model_validate(PRESETS[name])
    assert made.flow is not None
    assert {each.run for each in made.flow} == set(made.sessions)
    assert PRESETS[name]["flow"][-1] == laid_over(PRESETS[name]["flow"][-1], {"run": "decoder", "when": "step"})


@pytest.mark.parametrize("name", ["vision-language", "encoder-decoder"])
def test_a_preset_written_out_is_the_preset(name: str, tmp_path: Path) -> None:
    short, graphs = (VISION, vision()) if name == "vision-language" else (ENCODER_DECODER, encoder_decoder())
    written = laid_over({"pipeline": PRESETS[name]}, short) | {"version": 2}
    del written["pipeline"]["extends"]
    documents = [
        lower_pipeline_config(package(tmp_path / key, each, graphs)).document
        for key, each in (("short", short), ("long", written))
    ]
    assert documents[0] == documents[1]


# ---- an encoder and a decoder ----------------------------------------------------------------------------------------


def source(ids: list[int]) -> dict[str, Any]:
    return {"input_ids": np.array([ids])}


@pytest.mark.parametrize("rows", [[[3, 1, 7]], [[3, 1, 7], [9, 9, 2]]])
def test_an_encoder_runs_once_before_its_decoder(rows: list[list[int]], tmp_path: Path) -> None:
    folder = package(tmp_path / "p", ENCODER_DECODER, encoder_decoder())
    wanted = [cross_by_hand(folder, source(each), 2, 6) for each in rows]
    assert tokens(folder, 6, **{IDS: rows}, decoder_input_ids=[[2]] * len(rows)) == wanted


def test_the_start_of_the_output_is_the_files(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", ENCODER_DECODER, encoder_decoder())
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate([3, 1, 7], max_new_tokens=6, stop_on_eos=False).tokens
    assert made == cross_by_hand(folder, source([3, 1, 7]), 2, 6)


def test_an_output_of_another_name_is_taken_where_only_one_fits(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", ENCODER_DECODER, encoder_decoder("last_hidden_state"))
    assert "only output that fits" in said(folder)["pipeline.extends"]
    assert tokens(folder, 5, **{IDS: [[3, 1]]}) == [cross_by_hand(folder, source([3, 1]), 2, 5)]


def test_a_mask_of_the_source_goes_to_both_graphs(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", ENCODER_DECODER, masked())
    rows, mask = [[3, 1, 7], [9, 2, 0]], [[1, 1, 1], [1, 1, 0]]
    wanted = [
        cross_by_hand(folder, source(row) | {"attention_mask": np.array([own])}, 2, 6,
                      encoder_attention_mask=np.array([own]))
        for row, own in zip(rows, mask, strict=True)
    ]  # fmt: skip
    assert tokens(folder, 6, **{IDS: rows}, attention_mask=mask) == wanted


@pytest.mark.parametrize("prompt", [None, [4, 1]])
def test_beside_an_encoder_of_sound_the_output_follows_the_prompt(prompt: list[int] | None, tmp_path: Path) -> None:
    """Without one it follows the token that the file says starts an output."""
    folder = package(tmp_path / "p", ENCODER_DECODER, speaking())
    sound = np.random.default_rng(4).normal(size=(1, 5, SIZE)).astype(np.float32)
    given = {} if prompt is None else {IDS: [prompt]}
    made = tokens(folder, 6, **given, audio_features=sound)[0]
    fed = [2] if prompt is None else prompt
    assert cross_by_hand(folder, {"audio_features": sound}, fed[0], len(fed) - 1 + 6, forced=fed[1:]) == [
        *fed[1:],
        *made,
    ]


def test_a_start_without_an_encoder_is_said_to_have_no_effect(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", {**PLAIN, "tokens": {"decoder_start": 2}}, lone())
    assert "no effect" in said(folder)["tokens.decoder_start"]


# ---- media before a decoder ------------------------------------------------------------------------------------------


def images(count: int) -> Any:
    return np.random.default_rng(9).normal(size=(count, 2, SIZE)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_images_come_with_the_prompt_and_the_embedding_with_every_token(count: int, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", VISION, vision())
    prompt = [3, *[MARK] * (2 * count), 5]
    given = {"pixel_values": images(count)} if count else {}
    wanted = media_by_hand(folder, prompt, 6, given.get("pixel_values"))
    assert tokens(folder, 6, **{IDS: [prompt]}, **given) == [wanted]


@pytest.mark.parametrize("heard", [0, 3])
@pytest.mark.parametrize("seen", [0, 1])
def test_images_and_sound_are_given_or_left_out_by_themselves(seen: int, heard: int, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", SPEECH_TOO, speech_too())
    prompt = [3, *[MARK] * (2 * seen), 5, *[SOUND_MARK] * heard, 1]
    sound = np.random.default_rng(4).normal(size=(heard, SIZE)).astype(np.float32)
    given: dict[str, Any] = ({"pixel_values": images(seen)} if seen else {}) | ({"sound": sound} if heard else {})
    wanted = media_by_hand(folder, prompt, 6, given.get("pixel_values"), given.get("sound"))
    assert tokens(folder, 6, **{IDS: [prompt]}, **given) == [wanted]


def test_wires_in_four_fields_are_wires(tmp_path: Path) -> None:
    four = [
        dict(zip(("from_session", "from_output", "to_session", "to_input"), each, strict=True))
        for each in (
            ("vision", "image_features", "embedding", "image_features"),
            ("embedding", "inputs_embeds", "decoder", "inputs_embeds"),
        )
    ]
    documents = [
        lower_pipeline_config(package(tmp_path / key, each, vision())).document
        for key, each in (
            ("two", VISION),
            ("four", pipeline(VISION, dataflow=four)),
            ("none", pipeline(VISION, dataflow=[])),
        )
    ]
    assert documents[0] == documents[1] == documents[2]


def test_each_session_may_prefer_a_device_of_its_own(tmp_path: Path) -> None:
    over = {"vision": {"execution_provider": "QNNExecutionProvider"}, "decoder": {"execution_provider": "cuda"}}
    plan = compile_package(
        package(tmp_path / "p", pipeline(VISION, sessions=over), vision()), out=tmp_path / "out"
    ).plan
    assert plan is not None
    assert {str(each) for each in plan.placements} == {"session vision: prefers npu", "session decoder: prefers gpu"}


def test_one_provider_for_all_is_the_packages_preference(tmp_path: Path) -> None:
    over = {"decoder": {"execution_provider": "CUDAExecutionProvider"}}
    lowered = lower_pipeline_config(package(tmp_path / "p", pipeline(PLAIN, sessions=over), lone()))
    assert [each.name for each in lowered.session_options.providers] == ["CUDAExecutionProvider"]


def test_a_processor_of_tensors_that_are_no_pictures_is_said(tmp_path: Path) -> None:
    """The graph takes float32 [batch, 2, 8]: no channels, no patches that something places."""
    expected = {"pixel_values": {"rank": 3, "dtype": "float32"}}
    document = pipeline(VISION, preprocessing={"image": {"config": "looks.json", "expected_outputs": expected}})
    folder = package(tmp_path / "p", document, vision())
    (folder / "looks.json").write_text("{}")
    assert "tensors that the caller makes" in said(folder)["pipeline.preprocessing.image.config"]


def test_an_input_that_nothing_feeds_is_refused_in_the_words_of_this_form(tmp_path: Path) -> None:
    graph = decoder(Recipe(extra_inputs={"odd": (TensorProto.FLOAT, ["batch", 3])}))
    graph.graph.node.add(op_type="Identity", input=["odd"], output=["even"])
    found = {each.code: each for each in problems(package(tmp_path / "p", PLAIN, {"model.onnx": graph}))}
    assert found["unclaimed-input"].path == "pipeline.sessions.decoder"
    assert "pipeline.dataflow" in found["unclaimed-input"].help
