"""`--strict`: would onnxruntime-genai load the package? The data of exporters' packages says what it did.

Traps are those of its own parser and checks (reference, genai-config 1.1 to 1.15, 2.2, 2.6 to 2.8), one test each.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main
from genai_compiler.driver import Options
from genai_compiler.problem import Severity, errors
from genai_compiler.reference_load import reference_refusals

from tests.conftest import FIXTURES
from tests.data import needs_data
from tests.lower.packages import Recipe, decoder, write_package
from tests.lower.plain_folders import plain_folder
from tests.real_packages import NAMES, PACKAGES

LOADED = "onnxruntime-genai"
NEVER = {"og-qwen2-paged", "og-qwen3_5-paged"}
"""It needs a device that the data was made without."""
DEVICE = {"og-qwen2-fp16"}
"""Refused where the data was made, for want of a device."""


def reasons(folder: Path) -> str:
    return "\n".join(each.what for each in errors(reference_refusals(folder)))


def package(folder: Path, recipe: Recipe | None = None, **config: Any) -> Path:
    """A package that the reference loads but for what `config` changes (`genai_config.json`, object by object)."""
    sound = {
        "model": {"type": "decoder", **config.get("model", {})},
        "search": {"top_k": 5, **config.get("search", {})},
    }
    return write_package(folder, recipe or Recipe(), sound)


# ---- what it did with real packages ----------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_what_the_runtime_did(name: str) -> None:
    expected = json.loads((PACKAGES / name / "expected.json").read_text("utf-8"))
    loaded = "onnxruntime_genai" not in expected
    found = reference_refusals(PACKAGES / name)
    assert (not errors(found)) is (loaded or name in DEVICE), [str(each) for each in found]
    needs = [each for each in found if each.code == "reference-needs"]
    assert bool(needs) is (name in NEVER | DEVICE)
    assert all(each.severity is Severity.WARNING for each in needs)


WORDS = {
    "mobius-jamba-og": "model.type 'jamba'",
    "mobius-qwen2_moe-og": "model.type 'qwen2_moe'",
    "mobius-qwen3_next-og": "model.type 'qwen3_next'",
    "mobius-gpt2-og": "Model input was not found",
    "mobius-bert-og": "'token_type_ids' is no key",
    "mobius-vit-og": "'pixel_values' is no key",
    "og-llama-noembed": "'inputs_embeds'",
    "og-llama-nohead": "'logits'",
    "og-mistral-int4": "fails at position 25",
    "mobius-llama-meta": "nothing but genai_config.json",
}


@needs_data
@pytest.mark.parametrize("name", WORDS)
def test_the_reason_is_the_runtimes_own(name: str) -> None:
    assert WORDS[name] in reasons(PACKAGES / name)


@needs_data
def test_every_refusal_in_the_data_with_a_reason_of_its_own_is_among_these() -> None:
    told = {}
    for name in NAMES:
        expected = json.loads((PACKAGES / name / "expected.json").read_text("utf-8"))
        told[name] = expected.get("onnxruntime_genai", "")
    own = {name for name, why in told.items() if "Error" in why or "rejects" in why}
    assert own - DEVICE <= set(WORDS)


# ---- its parser ------------------------------------------------------------------------------------------------------


def test_a_sound_package_has_no_reason(tmp_path: Path) -> None:
    assert reference_refusals(package(tmp_path)) == ()


def test_a_byte_order_mark(tmp_path: Path) -> None:
    file = package(tmp_path) / "genai_config.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert "byte order mark" in reasons(tmp_path)


@pytest.mark.parametrize(("escape", "refused"), [("\\u0041", True), ("\\\\u0041", False), ("\\\\\\u0041", True)])
def test_unicode_escapes(escape: str, refused: bool, tmp_path: Path) -> None:
    file = package(tmp_path) / "genai_config.json"
    file.write_text(file.read_text().replace('"search"', f'"note": "{escape}", "search"', 1))
    assert ("escapes" in reasons(tmp_path)) is refused


@pytest.mark.parametrize("text", ['{"model": {},}', '{"model": {}} // c', "{"])
def test_what_is_no_json_for_it(text: str, tmp_path: Path) -> None:
    (package(tmp_path) / "genai_config.json").write_text(text)
    assert reasons(tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model": {"bos_token_id": None}}, "'bos_token_id' is null"),
        ({"search": {"temperature": None}}, "'temperature' is null"),
        ({"model": {"original_model_type": "x"}}, "'original_model_type' is no key"),
        ({"search": {"beams": 2}}, "'beams' is no key"),
        ({"model": {"decoder": {"inputs": {"key_cache.0": "x"}}}}, "'key_cache.0' is no key"),
        ({"model": {"pad_token_id": [0, 1]}}, "'pad_token_id' lists"),
        ({"model": {"decoder": {"head_size": "8"}}}, "'head_size' must be"),
        ({"model": {"decoder": {"session_options": {"session.disable_prepacking": 1}}}}, "should be the string"),
        ({"model": {"decoder": {"session_options": {"config_entries": {}}}}}, "is an object"),
        ({"model": {"decoder": {"session_options": {"provider_options": [{"tpu": {}}]}}}}, "no execution provider"),
        ({"model": {"decoder": {"session_options": {"provider_options": [{"cpu": {"a": "1"}}]}}}}, "takes no options"),
        ({"model": {"decoder": {"session_options": {"provider_options": [{"qnn": {}, "x": "1"}]}}}}, "is no object"),
        ({"model": {"decoder": {"session_options": {"provider_options": [{"cuda": {}}, {"dml": {}}]}}}}, "at most"),
        ({"model": {"type": "Decoder"}}, "no model.type 'Decoder'"),
        ({"model": {"type": "gpt2"}}, "one tensor a layer"),
        ({"model": {"type": "gemma4", "speech": {}}}, "speech.config_filename"),
        ({"model": {"context_length": ...}}, "context_length must be stated"),
        ({"model": {"vocab_size": 0}}, "vocab_size must be 1"),
        ({"model": {"vocab_size": 20}}, "gives 24 scores"),
        ({"model": {"eos_token_id": [2, 99]}}, "end token 99"),
        ({"search": {"max_length": 65}}, "max_length 65 is above"),
        ({"search": {"num_beams": 40}}, "num_beams must lie"),
        ({"search": {"do_sample": True, "top_k": ...}}, "top_k 50"),
        ({"search": {"do_sample": True, "top_p": 1.5}}, "top_p 1.5"),
        ({"model": {"decoder": {"filename": "../up.onnx"}}}, "climbs out"),
        ({"model": {"decoder": {"outputs": {"logits": "scores"}}}}, "'scores'"),
        ({"model": {"decoder": {"inputs": {"past_key_names": "old.%d"}}}}, "nothing feeds"),
        ({"model": {"decoder": {"sliding_window": {"window_size": 8}}}}, "8-bit caches"),
    ],
)  # fmt: skip
def test_what_it_refuses(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in reasons(package(tmp_path, **config))


@pytest.mark.parametrize(
    "config",
    [
        {"model": {"decoder": {"head_size": 8.0}}},
        {"model": {"eos_token_id": [2, 2]}},
        {"search": {"do_sample": False, "top_k": 50}},
        {"model": {"decoder": {"num_hidden_layers": 99}}},
        {"model": {"decoder": {"inputs": {"position_ids": "places"}}}},
        {"model": {"decoder": {"session_options": {"provider_options": [{"cpu": {}}, {}]}}}},
    ],
)
def test_what_it_forgives(config: dict[str, Any], tmp_path: Path) -> None:
    assert reasons(package(tmp_path, **config)) == ""


def test_scalars_beside_the_model_are_not_looked_at_and_objects_are(tmp_path: Path) -> None:
    file = package(tmp_path) / "genai_config.json"
    stated = json.loads(file.read_text())
    file.write_text(json.dumps({**stated, "version": 2, "note": "x"}))
    assert reasons(tmp_path) == ""
    file.write_text(json.dumps({**stated, "note": {}}))
    assert "'note' is no key of this object, and its parser stops there" in reasons(tmp_path)


@pytest.mark.parametrize("block", ["pipeline", "tokens", "generation", "metadata"])
def test_each_block_of_version_2_stops_it(block: str, tmp_path: Path) -> None:
    """Reference, genai-config 1.2: any object of the root that it does not know, empty ones too."""
    file = package(tmp_path) / "genai_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), block: {}}))
    (found,) = reference_refusals(tmp_path)
    assert (found.path, found.code) == (block, "reference-refuses")
    assert f"reads version 1 only: its parser stops at '{block}'" in found.what


def test_a_file_of_version_2_alone_has_one_reason() -> None:
    """Nothing is said of a model that the file does not describe in version 1."""
    (found,) = reference_refusals(FIXTURES / "tiny-vision-v2")
    assert found.path == "pipeline"
    assert "stops at 'pipeline', and would at 'tokens', 'generation'" in found.what
    assert "no release reads version 2" in found.help


def test_one_buffer_for_a_graph_that_appends(tmp_path: Path) -> None:
    shared = {"past_present_share_buffer": True}
    assert "appends to its cache" in reasons(package(tmp_path / "a", Recipe(op="attention"), search=shared))
    assert reasons(package(tmp_path / "b", search=shared)) == ""


def test_a_fixed_cache_without_one_buffer(tmp_path: Path) -> None:
    fixed = Recipe(past_length=64, present_length=64)
    assert "fixes the length" in reasons(package(tmp_path, fixed))


# ---- the command -----------------------------------------------------------------------------------------------------


def test_both_say_what_they_refuse_in_one_run(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", model={"type": "other", "decoder": {"outputs": {"logits": "scores"}}})
    with pytest.raises(CompileError) as refused:
        compile_package(folder, out=tmp_path / "out", options=Options(strict=True))
    assert {"no-logits", "reference-refuses"} <= {each.code for each in refused.value.problems}
    assert not (tmp_path / "out").exists()


def test_the_command_answers_and_compiles_what_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, typed = package(tmp_path / "sound"), package(tmp_path / "typed", model={"type": "other"})
    assert main(["--check", "--strict", str(sound)]) == 0
    assert "onnxruntime-genai 0.18 would load this package" in capsys.readouterr().out
    assert main(["--strict", str(typed), "-o", str(tmp_path / "out")]) == 2
    assert "reference-refuses" in capsys.readouterr().err
    assert main(["-q", str(typed), "-o", str(tmp_path / "out")]) == 0


def test_a_plain_folder_is_nothing_to_it(tmp_path: Path) -> None:
    assert "nothing but genai_config.json" in reasons(plain_folder(tmp_path, {"model.onnx": decoder(Recipe())}))
