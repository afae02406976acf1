"""Weights that two sessions hold are said in the plan and by --memory, with their bytes.

Expected bytes are counted from the package's own files, by content.
"""

import hashlib
import json
from collections import defaultdict
from pathlib import Path

import onnx
import pytest
from genai_compiler import compile_package
from genai_compiler.cli import main
from onnx import numpy_helper

from tests.conftest import FIXTURES
from tests.data import needs_data
from tests.real_packages import PACKAGES
from tests.staged_packages import Entries, package, two_phases
from tools.fixtures.network import concat_decoder

LEAST = 4096
STAGES = FIXTURES / "tiny-stages-v1"


def in_both(one: list[Path], other: list[Path]) -> int:
    """Bytes of weights, counted once, that two lists of graphs have in common."""
    sides: list[dict[str, int]] = []
    for files in (one, other):
        found = defaultdict[str, int](int)
        for file in files:
            for tensor in onnx.load(file).graph.initializer:
                array = numpy_helper.to_array(tensor)
                digest = hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()
                found[digest] = array.nbytes if array.nbytes >= LEAST else 0
        sides.append(found)
    return sum(size for digest, size in sides[0].items() if digest in sides[1])


def notes(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main([str(folder), "--memory", "--format", "json"]) == 0
    found: list[str] = json.loads(capsys.readouterr().out)["memory"]["notes"]
    return [each for each in found if "of weights are in the sessions of" in each]


def stages(folder: Path) -> int:
    step, prompt = (
        [folder / f"{name}.onnx" for name in ("embeddings", layers, "lm_head")] for layers in ("iterator", "context")
    )
    return in_both(step, prompt)


def test_stages_of_two_phases_hold_what_both_use_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """Embedding and head are the same files; the layers of both phases hold equal matrices."""
    (note,) = notes(STAGES, capsys)
    assert note.startswith(
        f"{stages(STAGES) / 1e6:.3f} MB of weights are in the sessions of decoder and decoder_prompt"
    )
    assert "other stages run with the prompt" in note
    assert "each has them for itself" in note


def test_one_place_of_a_file_is_mapped_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights in files of their own, of stages that run in both phases, or of one file under two names."""

    def one_file(stages: Entries) -> None:
        stages["iterator"]["filename"] = "context.onnx"

    folder = package(tmp_path / "p", two_phases(concat_decoder()), one_file)
    for name in ("embeddings", "context", "lm_head"):
        model = onnx.load(folder / f"{name}.onnx")
        external = {"save_as_external_data": True, "location": f"{name}.data", "size_threshold": 0}
        onnx.save_model(model, folder / f"{name}.onnx", **external)
    (note,) = notes(folder, capsys)
    files = [folder / f"{name}.onnx" for name in ("embeddings", "context", "lm_head")]
    assert note.startswith(f"{in_both(files, files) / 1e6:.3f} MB")
    assert "read in place they are there once" in note


def test_graphs_that_are_small_enough_to_be_linked_twice_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    (note,) = notes(FIXTURES / "tiny-decoder", capsys)
    assert "both are linked with model;" in note


def test_the_plan_names_the_stages_of_both_phases_and_their_bytes(tmp_path: Path) -> None:
    compile_package(STAGES, out=tmp_path / "out")
    size = sum(
        numpy_helper.to_array(each).nbytes
        for name in ("embeddings", "lm_head")
        for each in onnx.load(STAGES / f"{name}.onnx").graph.initializer
    )
    told = f"peel_prompt: {size} bytes of weights (embeddings, lm_head) are in two sessions, decoder and decoder_prompt"
    assert told in (tmp_path / "out" / "plan.txt").read_text()


def test_where_each_weight_has_one_session_nothing_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("tiny-gqa-v1", "tiny-encoder-decoder-v1"):
        assert notes(FIXTURES / name, capsys) == []
    compile_package(FIXTURES / "tiny-gqa-v1", out=tmp_path / "out")
    assert "two sessions" not in (tmp_path / "out" / "plan.txt").read_text()


@needs_data
@pytest.mark.parametrize("name", ["mobius-t5-meta", "mobius-marian-meta"])
def test_packages_that_keep_a_weight_in_two_graphs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = PACKAGES / name
    wanted = in_both([folder / "encoder" / "model.onnx"], [folder / "decoder" / "model.onnx"])
    (note,) = notes(folder, capsys)
    assert note.startswith(f"{wanted / 1e6:.3f} MB of weights are in the sessions of decoder and encoder: the package")


@needs_data
def test_no_other_package_of_the_data_holds_a_weight_twice(capsys: pytest.CaptureFixture[str]) -> None:
    several = [each for each in sorted(PACKAGES.iterdir()) if len(list(each.rglob("*.onnx"))) > 1]
    held = [each.name for each in several if "flux" not in each.name and notes(each, capsys)]
    assert held == ["mobius-marian-meta", "mobius-t5-meta"]
