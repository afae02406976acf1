"""How configurations are written (genai-config, traps 1 to 20): each against its plain spelling."""

import json
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.reference_load import reference_refusals
from onnx import helper, save

from tests.lower.hybrids import State, hybrid
from tests.lower.packages import Layer, Recipe, decoder, eos_literal
from tests.lower.test_front_model import MARK, SIZE, by_hand, embed, images, look, ran, write
from tests.traps.packages import gives_plain_tokens, loaded, package, problems, told
from tests.traps.toy import toy

MARK_OF_BYTES = b"\xef\xbb\xbf"
TEMPLATE = "<go>{% for m in messages %}{{ m.content }}{% endfor %}"


def document(folder: Path, config: dict[str, Any]) -> Any:
    """The workflow that a plain package under a configuration becomes."""
    return lower_genai_config(package(folder, config)).document


# ---- 1 to 3: text ----------------------------------------------------------------------------------------------------


def test_1_a_byte_order_mark_in_any_file(tmp_path: Path) -> None:
    """PowerShell 5 saves every text so: text goes in and comes out as without the marks."""
    files = {
        "generation_config.json": '{"eos_token_id": [4, 3]}',
        "special_tokens_map.json": '{"bos_token": "<go>"}',
        "chat_template.jinja": TEMPLATE,
    }
    plain = toy(tmp_path / "plain", ["<go>", "a", "b", "c", "<end>"], files=files)
    marked = tmp_path / "marked"
    for file in (tmp_path / "plain" / "package").iterdir():
        mark = MARK_OF_BYTES if file.suffix in (".json", ".jinja") else b""
        marked.mkdir(exist_ok=True)
        (marked / file.name).write_bytes(mark + file.read_bytes())
    model = loaded(marked)
    for each in (model, plain.model):
        assert each.generate("ab", max_new_tokens=9).tokens == [3]
        assert each.chat([{"role": "user", "content": "a"}], max_new_tokens=9).text == "b"


@pytest.mark.parametrize("name", ["mod\u00e8le.onnx", "\U0001f600.onnx", "\u6a21\u578b.onnx"])
def test_2_escapes_of_characters_outside_ascii(tmp_path: Path, name: str) -> None:
    """What Python's json.dumps writes by default; the reference reads no such escape."""
    folder = package(tmp_path / "p")
    (folder / "model.onnx").rename(folder / name)
    text = (folder / "genai_config.json").read_text().replace('"model.onnx"', json.dumps(name))
    assert "\\u" in text
    (folder / "genai_config.json").write_text(text)
    gives_plain_tokens(loaded(folder), folder / name)
    assert any("\\u" in each.what for each in reference_refusals(folder))


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ('"search"', '// of the search\n "search"', "comments"),
        ('{"model"', '{/* the model */"model"', "comments"),
        ("}}", "} # the end\n}", "comments"),
        ("}}", "},}", "comma"),
        ('"provider_options": []', '"provider_options": [{},]', "comma"),
    ],
)
def test_3_comments_and_trailing_commas_are_named(tmp_path: Path, before: str, after: str, word: str) -> None:
    folder = package(tmp_path)
    text = (folder / "genai_config.json").read_text()
    assert before in text
    (folder / "genai_config.json").write_text(text.replace(before, after, 1))
    (found,) = problems(folder)
    assert (found.code, found.where.line > 0, found.where.column > 0) == ("malformed-json", True, True)
    assert word in found.what
    assert found.help.startswith("delete")


# ---- 6 to 8: ids -----------------------------------------------------------------------------------------------------


def test_6_null_is_not_stated(tmp_path: Path) -> None:
    """Copied from configurations of the model's own library; null is no number for the reference."""
    nulls: dict[str, Any] = {
        "model": dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
        "search": dict.fromkeys(("top_k", "top_p", "temperature", "repetition_penalty", "max_length", "do_sample")),
    }
    nothing = {each: dict.fromkeys(keys, ...) for each, keys in nulls.items()}
    assert document(tmp_path / "a", nulls) == document(tmp_path / "b", nothing)
    assert told(tmp_path / "a") == told(tmp_path / "b") == [("warning", "no-end-token", "model.eos_token_id")]
    assert sum("is null" in each.what for each in reference_refusals(tmp_path / "a")) == 9


@pytest.mark.parametrize(
    ("files", "pad", "ids", "said"),
    [
        ({"generation_config.json": '{"eos_token_id": 5}'}, 0, [5], []),
        ({"tokenizer_config.json": '{"eos_token": "b"}', "tokenizer.json": '{"model": {"vocab": {"a": 3, "b": 6}}}'},
         0, [6], []),
        ({}, 0, [0], ["no-end-token"]),
        ({}, ..., None, ["no-end-token"]),
    ],
)  # fmt: skip
def test_7_ids_that_the_file_leaves_out(
    tmp_path: Path, files: dict[str, str | bytes], pad: object, ids: list[int] | None, said: list[str]
) -> None:
    """The end token comes from the files beside it, else from the padding token, else there is none: both told."""
    config = {"model": {"eos_token_id": ..., "bos_token_id": ..., "pad_token_id": pad}}
    lowered = lower_genai_config(package(tmp_path, config, files=files))
    assert [each.code for each in lowered.problems if each.code != "missing-file"] == said
    if ids is not None:
        assert eos_literal(lowered) == ids
    assert lowered.text.eos == tuple(ids or ())


@pytest.mark.parametrize(
    ("ids", "left", "dropped"), [([-1, 2, 24], [2], 2), ([23, 2], [23, 2], 0), (24, None, 1), (-1, None, 1)]
)
def test_8_end_ids_that_no_logit_belongs_to(tmp_path: Path, ids: object, left: list[int] | None, dropped: int) -> None:
    """24 logits. Templates of exporters hold -1; where nothing is left, nothing would end: an error."""
    folder = package(tmp_path, {"model": {"eos_token_id": ids}})
    found = problems(folder)
    assert sum(each.code == "bad-token-id" for each in found) == dropped
    errors = [each for each in found if each.severity.value == "error"]
    assert [each.code for each in errors] == ([] if left is not None else ["no-end-token"])
    if left is not None:
        assert eos_literal(lower_genai_config(folder)) == left
    else:
        assert errors[0].help == "state model.eos_token_id"


def test_8_another_file_may_have_the_right_one(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"generation_config.json": '{"eos_token_id": 7}'}
    lowered = lower_genai_config(package(tmp_path, {"model": {"eos_token_id": -1}}, files=files))
    assert eos_literal(lowered) == [7]


@pytest.mark.parametrize("key", ["pad_token_id", "bos_token_id"])
@pytest.mark.parametrize("value", [-1, 24, 151643])
def test_8_other_ids_that_no_logit_belongs_to(tmp_path: Path, key: str, value: int) -> None:
    folder = package(tmp_path, {"model": {key: value}})
    assert told(folder) == [("warning", "bad-token-id", f"model.{key}")]
    text = lower_genai_config(folder).text
    assert {"pad_token_id": text.pad, "bos_token_id": text.bos}[key] is None


# ---- 9 to 13: numbers and sessions -----------------------------------------------------------------------------------


def test_9_whole_numbers_in_any_spelling(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", {"model": {"context_length": 50, "eos_token_id": [2, 9]}, "search": {"top_k": 5}})
    text = (folder / "genai_config.json").read_text()
    spelled = text.replace('"context_length": 50', '"context_length": 5.0e1').replace("[2, 9]", "[2.0, 0.9e1]")
    spelled = spelled.replace('"top_k": 5', '"top_k": 5.0').replace('"vocab_size": 24', '"vocab_size": 024')
    wanted = lower_genai_config(folder).document
    (folder / "genai_config.json").write_text(spelled)
    assert lower_genai_config(folder).document == wanted
    assert told(folder) == []


@pytest.mark.parametrize(("stated", "read"), [(2, "2"), (True, "1"), (False, "0"), (1.5, "1.5"), ("3", "3")])
def test_10_options_that_are_no_strings_are_read_as_what_they_say(tmp_path: Path, stated: object, read: str) -> None:
    options = {"session.dynamic_block_base": stated, "provider_options": [{"qnn": {"vtcm_mb": stated}}]}
    folder = package(tmp_path, {"model": {"decoder": {"session_options": options}}})
    lowered = lower_genai_config(folder)
    assert lowered.session_options.entries == (("session.dynamic_block_base", read),)
    assert lowered.providers[0].options == (("vtcm_mb", read),)
    assert sum(code == "not-a-string" for _, code, _ in told(folder)) == (0 if isinstance(stated, str) else 2)


def test_11_entries_in_an_object_of_their_own(tmp_path: Path) -> None:
    flat = {"session.disable_prepacking": "1", "session.set_denormal_as_zero": "1"}
    one, other = (
        package(tmp_path / name, {"model": {"decoder": {"session_options": options}}})
        for name, options in (("flat", flat), ("nested", {"config_entries": flat}))
    )
    assert lower_genai_config(one).session_options == lower_genai_config(other).session_options
    gives_plain_tokens(loaded(other), other / "model.onnx")


def test_12_a_scalar_beside_a_provider(tmp_path: Path) -> None:
    options = {"provider_options": [{"QNN": {"vtcm_mb": "8"}, "genai_model": "True"}]}
    folder = package(tmp_path, {"model": {"decoder": {"session_options": options}}})
    path = "model.decoder.session_options.provider_options[0].genai_model"
    assert told(folder) == [("warning", "ignored-key", path)]
    assert [each.name for each in lower_genai_config(folder).providers] == ["QNNExecutionProvider"]


@pytest.mark.parametrize("stated", [[], [{}], [{"cpu": {}}], [{"CPUExecutionProvider": {}}], None, ...])
def test_13_every_way_to_say_the_processor(tmp_path: Path, stated: object) -> None:
    folder = package(tmp_path / "p", {"model": {"decoder": {"session_options": {"provider_options": stated}}}})
    assert told(folder) == []
    model = loaded(folder)
    assert model.describe()["providers"] == {"decoder": ["CPUExecutionProvider"]}
    gives_plain_tokens(model, folder / "model.onnx")


# ---- 15, 16: keys of other releases ----------------------------------------------------------------------------------

KEYS: list[tuple[str, object]] = [
    ("model.original_model_type", "x"),
    ("model.decoder.fixed_prompt_length", 4),
    ("model.decoder.inputs.visual_features", "v"),
    ("model.decoder.inputs.inputs_embeds", "inputs_embeds"),
    ("model.decoder.inputs.past_recurrent_names", "past.%d.recurrent"),
    ("model.decoder.session_options.graph_optimization_level", "ORT_ENABLE_ALL"),
    ("model.decoder.state_groups", []),
    ("model.vision", {"max_num_patches": 1024}),
    ("model.speech", {"inputs": {"audio_lengths": "audio_lengths"}}),
    ("runtime_profiles", [{"id": "a"}]),
    ("model.not_yet_thought_of", {"a": {"b": [1]}}),
    ("search.not_yet_thought_of", 3),
    ("not_yet_thought_of", []),
]


@pytest.mark.parametrize(("path", "value"), KEYS, ids=[path for path, _ in KEYS])
def test_15_keys_of_other_releases_fail_nothing(tmp_path: Path, path: str, value: object) -> None:
    """Known here or not: at most a warning at the key, and the plan is the one without it."""
    folder = package(tmp_path / "p")
    plain = lower_genai_config(folder).document
    config = json.loads((folder / "genai_config.json").read_text())
    *above, key = path.split(".")
    holder = config
    for each in above:
        holder = holder.setdefault(each, {})
    holder[key] = value
    (folder / "genai_config.json").write_text(json.dumps(config))
    assert {(severity, place) for severity, _, place in told(folder)} <= {("warning", path)}
    assert lower_genai_config(folder).document == plain


def with_images(folder: Path, vision_outputs: dict[str, str], embedding_inputs: dict[str, str]) -> Path:
    """A package of three graphs whose configuration names the features between the first two."""
    sections = {
        "vision": {"filename": "look.onnx", "inputs": {"pixel_values": "images"}, "outputs": vision_outputs},
        "embedding": {
            "filename": "embed.onnx",
            "inputs": {"input_ids": "ids", **embedding_inputs},
            "outputs": {"inputs_embeds": "embeds"},
        },
    }
    config = {"model": {**sections, "decoder": {"filename": "write.onnx", "inputs": {"inputs_embeds": "embeds"}}}}
    package(folder, config)
    (folder / "model.onnx").unlink()
    for name, model in (("look", look()), ("embed", embed()), ("write", write())):
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    return folder


@pytest.mark.parametrize("older", [True, False])
def test_16_names_that_keys_had_before(tmp_path: Path, older: bool) -> None:
    """visual_features became image_features in release 0.5."""
    key = "visual_features" if older else "image_features"
    folder = with_images(tmp_path / "p", {key: "seen"}, {key: "entries"})
    renamed = [path for _, code, path in told(folder) if code == "renamed-key"]
    assert sorted(renamed) == (
        ["model.embedding.inputs.visual_features", "model.vision.outputs.visual_features"] if older else []
    )
    seen, prompt = images(1), [3, MARK, MARK, 5]
    assert seen.shape == (1, 2, SIZE)
    assert ran(loaded(folder), **{"request.input_ids": [prompt]}, images=seen) == [by_hand(folder, prompt, seen, 6)]
    assert any("visual_features" in each.what for each in reference_refusals(folder)) is older


# ---- 19: templates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", ["%d", "%i", "%02d", "{layer}", "{i}", "{}"])
@pytest.mark.parametrize(("past", "present"), [("past_keys_{}_{}", "new_{}_{}"), ("{}_past/{}", "{}-next.{}")])
def test_19_a_layers_number_in_any_spelling(tmp_path: Path, slot: str, past: str, present: str) -> None:
    """The graph's names have plain numbers, and two digits where the template says so."""
    layers = (Layer(0), Layer(11))
    numbered = "{:02}" if slot == "%02d" else "{}"
    recipe = Recipe(layers, past=past.replace("{}", numbered, 1), present=present.replace("{}", numbered, 1))
    names = {
        "inputs": {f"past_{half}_names": past.format(slot, half) for half in ("key", "value")},
        "outputs": {f"present_{half}_names": present.format(slot, half) for half in ("key", "value")},
    }
    folder = package(tmp_path / "p", {"model": {"decoder": {**names, "num_hidden_layers": ...}}}, recipe)
    assert told(folder) == []
    save(decoder(Recipe(layers)), tmp_path / "plain.onnx")
    gives_plain_tokens(loaded(folder), tmp_path / "plain.onnx")
    refuses = [each.path for each in reference_refusals(folder) if "layer's number" in each.what]
    assert len(refuses) == (0 if slot in ("%d", "%i") else 4)


def test_19_a_name_with_braces_is_a_name(tmp_path: Path) -> None:
    """One layer whose ports are called like templates."""
    recipe = Recipe(past="past{{x}}.{1}", present="present{{x}}.{1}")
    names = {
        "inputs": {f"past_{half}_names": f"past{{x}}.{half}" for half in ("key", "value")},
        "outputs": {f"present_{half}_names": f"present{{x}}.{half}" for half in ("key", "value")},
    }
    folder = package(tmp_path / "p", {"model": {"decoder": names}}, recipe)
    gives_plain_tokens(loaded(folder), folder / "model.onnx")


@pytest.mark.parametrize("op", ["gqa", "attention"])
@pytest.mark.parametrize("stated", ["past_%d_%d", "no slot at all"])
def test_19_a_template_that_finds_nothing_leaves_it_to_the_graph(tmp_path: Path, stated: str, op: str) -> None:
    """The reference fails at the first run. Here the graph tells which output is the next value of which input."""
    folder = package(tmp_path / "p", {"model": {"decoder": {"inputs": {"past_key_names": stated}}}}, Recipe(op=op))
    assert told(folder) == [("warning", "config-contradicts-graph", "model.decoder.inputs.past_key_names")]
    gives_plain_tokens(loaded(folder), folder / "model.onnx")
    assert any("nothing feeds" in each.what for each in reference_refusals(folder))


def test_19_where_the_graph_leaves_a_doubt_the_name_is_missed(tmp_path: Path) -> None:
    """Two states, and each output could be the next value of either: both are refused."""
    model = hybrid(Recipe(), State(("memory.a", "made.a")), State(("memory.b", "made.b")))
    for node in model.graph.node:
        if node.output[0] in ("made.a", "made.b"):
            node.input[0] = "both"
    model.graph.node.insert(0, helper.make_node("Add", ["memory.a", "memory.b"], ["both"]))
    found = [each for each in problems(package(tmp_path, {}, model)) if each.code == "unclaimed-input"]
    assert [name for each in found for name in ("memory.a", "memory.b") if repr(name) in each.what] == [
        "memory.a", "memory.b"
    ]  # fmt: skip
