"""`--strict` by class of packages: what the reference opens for a `model.type` is there, or that is the reason.

The list of types and what each class opens are the reference notes' (genai-config 2.1, 2.2, 2.11 to 2.15).
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Options
from genai_compiler.reference_classes import class_of, reference_table
from onnx import TensorProto

from tests.conftest import FIXTURES
from tests.data import DATA, needs_data
from tests.lower.packages import Recipe, decoder, laid_over, save
from tests.test_strict import package, reasons

GRAPH = {"filename": "model.onnx"}
FILES = {name: {"filename": f"{name}.onnx"} for name in ("encoder", "joiner", "vad", "vision", "embedding", "speech")}
STAGES = [{"context": {**GRAPH, "inputs": ["input_ids"]}}, {"lm_head": {"filename": "model.onnx"}}]

# type -> the model's sections that it loads with; what of them it can't do without; words of the reason
CLASSES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("llama", {}, {"decoder.filename": "names none"}),
    ("lfm2", {}, {"decoder.filename": "names none"}),
    ("whisper", {"encoder": FILES["encoder"]}, {"encoder": "encoder.filename", "decoder.filename": "names none"}),
    ("marian-ssru", {"encoder": FILES["encoder"]}, {"encoder": "encoder.filename"}),
    *(
        (
            kind,
            {"vision": FILES["vision"], "embedding": FILES["embedding"]},
            {"vision": "vision.filename", "embedding": "embedding.filename", "decoder.filename": "decoder.filename"},
        )
        for kind in ("gemma3", "mistral3", "phi3v", "qwen2_5_vl", "qwen3_5", "lfm2_vl")
    ),
    (
        "gemma4",
        {"vision": FILES["vision"], "embedding": FILES["embedding"], "speech": {"config_filename": ""}},
        {"vision": "vision.filename", "embedding": "embedding.filename", "speech": "speech.config_filename"},
    ),
    (
        "phi4mm",
        {
            "vision": FILES["vision"],
            "embedding": FILES["embedding"],
            "speech": {"filename": "speech.onnx", "config_filename": "audio.json"},
        },
        {"embedding": "embedding.filename", "speech.config_filename": ""},
    ),
    (
        "videochat_flash_qwen",
        {"vision": {**FILES["vision"], "num_visual_tokens": 4}, "embedding": FILES["embedding"]},
        {"vision.num_visual_tokens": "num_visual_tokens"},
    ),
    ("decoder-pipeline", {"decoder": {"filename": ..., "pipeline": STAGES}}, {"decoder.pipeline": "has none"}),
    ("qwen2_5_vl", {"decoder": {"pipeline": STAGES}}, {}),
    ("nemotron_speech", {"encoder": FILES["encoder"], "joiner": FILES["joiner"]}, {}),
    ("parakeet_tdt", {"blank_id": 2, "encoder": FILES["encoder"]}, {"blank_id": "blank_id 0"}),
]  # fmt: skip


def of_class(folder: Path, kind: str, sections: dict[str, Any]) -> Path:
    """A package of a type with files of every part; what is in them is nothing that these checks look at."""
    made = package(folder, model={"type": kind, **sections})
    for name in (*FILES, "decoder"):
        save(decoder(Recipe()), made / f"{name}.onnx")
    return made


def without(folder: Path, key: str) -> Path:
    """The package without a member of `model`."""
    file = folder / "genai_config.json"
    config = json.loads(file.read_text())
    *above, last = key.split(".")
    held = config["model"]
    for each in above:
        held = held[each]
    del held[last]
    file.write_text(json.dumps(config))
    return folder


@needs_data
def test_every_type_of_the_reference_has_its_class() -> None:
    text = (DATA / "reference" / "genai-config.md").read_text("utf-8")
    section = text[text.index("### 2.1") : text.index("### 2.2")]
    table, later = section.split("0.18 adds eleven")
    later, refused = later.split("Still refused:")
    types = set(re.findall(r"`([a-z0-9_-]+)`", table.split("|---|---|")[1] + later.split(".\n")[0]))
    known = {kind for each in reference_table()["classes"].values() for kind in each["types"]}
    assert len(types) == 54
    assert types == known
    assert not [each for each in re.findall(r"`([\w-]+)`", refused.split(" and ")[0]) if class_of(each)]


@pytest.mark.parametrize(("kind", "sections"), [(kind, sections) for kind, sections, _ in CLASSES])
def test_a_package_of_each_class_loads(kind: str, sections: dict[str, Any], tmp_path: Path) -> None:
    assert reasons(of_class(tmp_path, kind, sections)) == ""


@pytest.mark.parametrize(
    ("kind", "sections", "key", "words"),
    [(kind, sections, key, words) for kind, sections, needed in CLASSES for key, words in needed.items()],
)
def test_what_a_class_opens_must_be_there(
    kind: str, sections: dict[str, Any], key: str, words: str, tmp_path: Path
) -> None:
    if not words:  # it has a name by default: the file that it stands for is not there, which no load looks at
        assert reasons(without(of_class(tmp_path, kind, sections), key)) == ""
        return
    assert words in reasons(without(of_class(tmp_path, kind, sections), key))


@pytest.mark.parametrize("kind", ["parakeet_tdt", "nemotron_speech", "llama", "qwen3_5", "whisper"])
def test_stages_are_nothing_to_another_type(kind: str, tmp_path: Path) -> None:
    """A transducer takes its parts' own files, whatever stages the decoder lists; others find no graph."""
    folder = package(tmp_path, model={"type": kind, "blank_id": 2, "decoder": {"filename": ..., "pipeline": STAGES}})
    found = reasons(folder)
    assert "decoder.filename" in found
    assert ("there is no file 'decoder.onnx'" in found) is (kind in ("parakeet_tdt", "nemotron_speech"))


def test_a_stage_without_its_file(tmp_path: Path) -> None:
    stages = [{"first": {"filename": "gone.onnx"}}, {"second": {}}]
    found = reasons(package(tmp_path, model={"type": "decoder-pipeline", "decoder": {"pipeline": stages}}))
    assert "stage 'first'" in found
    assert "stage 'second' names no graph" in found


def test_a_draft_model_must_name_its_graph(tmp_path: Path) -> None:
    assert "draft.filename" in reasons(package(tmp_path, model={"draft": {}}))


@pytest.mark.parametrize("kind", ["streaming_enc_dec_asr", "lfm2_audio"])
def test_a_type_that_is_only_known_by_name_is_not_vouched_for(kind: str, tmp_path: Path) -> None:
    from genai_compiler.reference_load import reference_refusals

    found = reference_refusals(package(tmp_path, model={"type": kind}))
    assert [each.code for each in found] == ["reference-needs"]
    assert "not looked at" in found[0].what
    made = compile_package(tmp_path, out=tmp_path.with_name("out"), options=Options(strict=True))
    assert any("would load this package, where what the warnings say" in each for each in made.notes)


def test_a_transducers_generator_checks_no_search(tmp_path: Path) -> None:
    """Of the numbers only the context length counts for it (reference, 2.15)."""
    odd = {"vocab_size": ..., "eos_token_id": 99, "encoder": FILES["encoder"], "joiner": FILES["joiner"]}
    made = of_class(tmp_path, "nemotron_speech", odd)
    assert reasons(made) == ""
    file = made / "genai_config.json"
    file.write_text(json.dumps(laid_over(json.loads(file.read_text()), {"model": {"type": "parakeet_tdt"}})))
    assert "blank_id 0" in reasons(made)
    assert "vocab_size" not in reasons(made)


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ({"search": {"num_return_sequences": 2}}, "num_return_sequences must lie between 1 and 1"),
        ({"search": {"num_return_sequences": 2, "num_beams": 2}}, ""),
        ({"speculative": {"max_draft_tokens": 17}}, "max_draft_tokens must lie"),
        ({"speculative": {"ngram_size": 1}}, "ngram_size must lie"),
        ({"speculative": {"ngram_chained_lookup": True}}, "needs an ngram_size"),
        ({"speculative": {"ngram_chained_lookup": True, "ngram_size": 3}}, ""),
        ({"runtime_profiles": [{"id": "a"}]}, "on CUDA only"),
        ({"runtime_profiles": []}, ""),
        ({"model": {"type": "lfm2", "decoder": {"layer_types": ["conv", "conv"]}}}, "2 entries for"),
        ({"model": {"decoder": {"session_options": {"graph_optimization_level": "ORT_ENABLE_LAYOUT"}}}}, "no level"),
    ],
)  # fmt: skip
def test_numbers_of_other_sections(root: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = package(tmp_path) / "genai_config.json"
    file.write_text(json.dumps(laid_over(json.loads(file.read_text()), root)))
    found = reasons(tmp_path)
    assert words in found if words else found == ""


def test_positions_of_three_axes_need_a_type_of_their_own(tmp_path: Path) -> None:
    three = Recipe(extra_inputs={"position_ids": (TensorProto.INT64, [3, "batch", "sequence"])})
    assert "two axes" in reasons(package(tmp_path / "a", three))
    assert reasons(package(tmp_path / "b", three, model={"type": "qwen3_5_text"})) == ""


def test_a_mask_and_positions_of_two_types(tmp_path: Path) -> None:
    mixed = Recipe(extra_inputs={"position_ids": (TensorProto.INT32, ["batch", "sequence"])})
    assert "one type for both" in reasons(package(tmp_path, mixed))


def test_the_state_that_it_makes_must_be_the_graph_s(tmp_path: Path) -> None:
    """It makes [3, batch, encoder.hidden_size] for its class of one token of each row; other types feed two axes."""
    source = FIXTURES / "tiny-ssru-v1"
    assert reasons(shutil.copytree(source, tmp_path / "as it is")) == ""
    file = json.loads((source / "genai_config.json").read_text())
    for name, change, words in (
        ("wide", lambda model: model["encoder"].update(hidden_size=12), "[3, batch, 12]"),
        ("unsaid", lambda model: model["encoder"].pop("hidden_size"), "[3, batch, 0]"),
        ("other", lambda model: model.update(type="llama"), "token ids of two axes"),
    ):
        folder, config = shutil.copytree(source, tmp_path / name), json.loads(json.dumps(file))
        change(config["model"])
        (folder / "genai_config.json").write_text(json.dumps(config))
        assert words in reasons(folder), name
