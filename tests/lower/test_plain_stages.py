"""Folders of several graphs in which nothing is declared: exporters' packages without their metadata.

An encoder and its decoder; pictures before an embedding before a decoder.

Tokens and logits are other runtimes' (INDEX.md of the data).
"""

import json
import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_compiler.convert import convert_package

from tests.data import needs_data
from tests.real_packages import ENCODED, MEDIA, PACKAGES, cases, reliable
from tests.test_convert import same_plan
from tests.test_real_stages import encoder_inputs, forced, media_inputs

pytestmark = needs_data
LENGTH = 4096
"""More than any of these graphs has rows of positions for: where one has fewer, that is said, and taken."""
DECLARED = ("genai_config.json", "inference_metadata.yaml", "expected.json")


def unsaid(name: str, folder: Path, **more: int) -> Path:
    """The graphs where the exporter puts them, and what the checkpoint's own `config.json` says, and more."""
    shutil.copytree(PACKAGES / name, folder, ignore=shutil.ignore_patterns(*DECLARED))
    stated = {"vocab_size": 320, "eos_token_id": 2, "max_position_embeddings": 64}
    starts = {case["decoder_start"] for case in cases(name, "text") if "decoder_start" in case}
    stated |= {"decoder_start_token_id": starts.pop()} if starts else {}
    stated |= more
    (folder / "config.json").write_text(json.dumps(stated))
    return folder


@pytest.mark.parametrize("name", ENCODED)
def test_tokens_and_logits_are_the_expected_ones(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the decoder gives caches over the encoder's output that it never reads, in another form."""
    compile_package(unsaid(name, tmp_path / name), out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["dialect"] == "plain folder"
        for case in cases(name):
            inputs = encoder_inputs(case)
            inputs.pop("decoder_input_ids", None)  # the configuration says what starts an output
            wanted = reliable(name, case)
            result = model.run({**inputs, "request.max_iterations": [16]}, stop_on_eos=False)
            assert result["tokens"][0].tolist()[: len(wanted)] == wanted
            seen = forced(model, inputs, case["greedy"], monkeypatch)
            first = np.array(case["prompt_last_logits"], np.float32)
            assert np.abs(seen[0] - first).max() <= 1e-3 * np.abs(first).max()
            for logits, token in zip(seen, case["greedy"], strict=True):
                assert logits[token] >= logits.max() - 1e-3 * np.abs(logits).max()


def seen_unsaid(name: str, folder: Path) -> Path:
    """Without a file that says half of how pictures are made: such a one is an error, and tensors go in without it."""
    unsaid(name, folder, max_position_embeddings=LENGTH)
    file = folder / "preprocessor_config.json"
    if file.exists() and "resample" not in json.loads(file.read_text("utf-8")):
        file.unlink()
    return folder


@pytest.mark.parametrize("name", MEDIA)
def test_pictures_before_an_embedding(name: str, tmp_path: Path) -> None:
    """Three graphs told apart by their ports; with an image's tensors and without."""
    folder = seen_unsaid(name, tmp_path / name)
    notes = compile_package(folder, out=tmp_path / "out").notes
    assert any("read from the graph decoder/model.onnx, which takes embeddings" in each for each in notes)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["dialect"] == "plain folder"
        for case in cases(name, "text", "image"):
            wanted = reliable(name, case)
            result = model.run({**media_inputs(name, case), "request.max_iterations": [16]}, stop_on_eos=False)
            assert result["tokens"][0].tolist()[: len(wanted)] == wanted


@pytest.mark.parametrize("name", ENCODED)
def test_the_document_that_convert_writes_is_the_same_plan(name: str, tmp_path: Path) -> None:
    folder = unsaid(name, tmp_path / name)
    before = compile_package(folder, out=tmp_path / "before")
    (folder / "inference_metadata.yaml").write_text(convert_package(folder).text, "utf-8")
    same_plan(before, compile_package(folder, out=tmp_path / "after"))
