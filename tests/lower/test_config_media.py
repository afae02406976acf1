"""Media beside a decoder in genai_config form: what the configuration says of the graphs before it, changed."""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.lower.genai_config_v1 import lower_genai_config

from tests.data import needs_data
from tests.lower.test_config_models import changed, rows_of
from tests.real_packages import GREEDY, PACKAGES, cases

pytestmark = needs_data
PACKAGE = PACKAGES / "mobius-mistral3-og"


def as_speech(folder: Path) -> Path:
    """The package with its vision model named as a speech model, under other keys."""
    config = json.loads((PACKAGE / "genai_config.json").read_text())["model"]
    speech = {"filename": config["vision"]["filename"], "outputs": {"audio_features": "image_features"}}
    taken = {"input_ids": "input_ids", "audio_features": "image_features"}
    return changed(folder, PACKAGE, ("model.vision", ...), ("model.speech", speech), ("model.embedding.inputs", taken))


def test_what_a_component_is_called_changes_no_token(tmp_path: Path) -> None:
    compile_package(as_speech(tmp_path / "package"), out=tmp_path / "out")
    (case,) = cases(PACKAGE.name, "image")
    with np.load(PACKAGE / case["inputs"]) as held:
        pixels = held["pixel_values"]
    inputs = {"request.input_ids": [case["prompt"]], "pixel_values": pixels, "request.max_iterations": [16]}
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert rows_of(model.run(inputs, stop_on_eos=False)) == case["greedy"]


def test_media_that_no_graph_makes_are_empty(tmp_path: Path) -> None:
    """Text then runs as before; tensors of a picture have no place."""
    compile_package(changed(tmp_path / "package", PACKAGE, ("model.vision", ...)), out=tmp_path / "out")
    case = cases(PACKAGE.name)[0]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens == case["greedy"]
        with pytest.raises(genai_runtime.RequestError):
            model.run({"request.input_ids": [case["prompt"]], "pixel_values": np.zeros((1, 3, 28, 28), np.float32)})


def test_a_false_output_name_is_reported_and_the_only_fitting_output_taken(tmp_path: Path) -> None:
    wrong = ("model.vision.outputs.image_features", "features")
    lowered = lower_genai_config(changed(tmp_path / "package", PACKAGE, wrong))
    told = [each.what for each in lowered.problems if "image_features" in each.what]
    assert len(told) == 1
    assert "'image_features', is taken" in told[0]
    assert lowered.document == lower_genai_config(PACKAGE).document


@pytest.mark.parametrize(
    ("path", "value", "code", "words"),
    [
        ("model.embedding.inputs.input_ids", "ids", "missing-input", "no input 'ids'"),
        ("model.embedding.inputs.input_ids", "image_features", "wrong-port", "token ids are int64"),
        ("model.embedding.filename", "decoder/model.onnx", "unsupported-package-class", "nothing takes what"),
        ("model.embedding", ..., "no-embedding-stage", "'inputs_embeds'"),
        ("model.decoder.inputs.inputs_embeds", "attention_mask", "wrong-port", "'embedding'"),
        ("model.vision", {"pipeline": [{"one": {}}]}, "unsupported-package-class", "cut into 1 stage: 'one'"),
        ("model.vision.filename", 5, "wrong-type", "'filename' must be a string"),
    ],
)
def test_refused_with_its_place(tmp_path: Path, path: str, value: Any, code: str, words: str) -> None:
    with pytest.raises(CompileError) as caught:
        lower_genai_config(changed(tmp_path / "package", PACKAGE, (path, value)))
    found = [each for each in caught.value.problems if each.code == code and words in each.what]
    assert found, str(caught.value)
    assert found[0].where.file == "genai_config.json"


def test_stages_beside_a_graph_of_the_whole_decoder_are_left_out_and_said(tmp_path: Path) -> None:
    stages = ("model.decoder.pipeline", [{"one": {"filename": "x"}}])
    lowered = lower_genai_config(changed(tmp_path / "package", PACKAGE, stages))
    assert [each.code for each in lowered.problems if "the graph is taken" in each.what] == ["ignored-key"]
    assert lowered.document == lower_genai_config(PACKAGE).document
