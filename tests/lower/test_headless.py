"""Decoders whose head is missing, where no file names their logits: refused, not run as if states were scores."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from genai_compiler import compile_package

from tests.lower.test_pipeline_cut import document, refused, written
from tests.staged_packages import refused as refused_by_code
from tests.staged_packages import three
from tools.fixtures.network import HIDDEN, VOCABULARY, concat_decoder, gqa_decoder
from tools.fixtures.stages import FINAL, cut

SKETCHES = pytest.mark.parametrize("sketch", [gqa_decoder, concat_decoder])
NAMED: dict[str, Any] = {"model": {"decoder": {"outputs": {"logits": FINAL}}}}


@SKETCHES
def test_a_table_of_other_rows_tells_that_these_are_no_logits(sketch: Any, tmp_path: Path) -> None:
    graphs = {"layers": cut(sketch().proto(), FINAL)[0]}
    said = refused(written(tmp_path / "p", graphs))["no-logits", "pipeline.sessions.layers"]
    assert f"'final', float32 [batch, sequence, {HIDDEN}]" in said
    assert f"the table of embeddings has {VOCABULARY} rows" in said
    assert "name them in model.decoder.outputs.logits" in said


@SKETCHES
def test_the_width_of_the_embeddings_that_go_in_tells_it(sketch: Any, tmp_path: Path) -> None:
    """The head is declared, and no step runs it."""
    graphs = three(sketch())
    stated = document(graphs)
    del stated["pipeline"]["flow"][2]
    said = refused(written(tmp_path / "p", graphs, stated))["no-logits", "pipeline.sessions.layers"]
    assert "as wide as the embeddings that 'embedded' takes" in said


@SKETCHES
def test_described_by_its_ports(sketch: Any, tmp_path: Path) -> None:
    graph, _ = cut(sketch().proto(), FINAL)
    folder = tmp_path / "p"
    folder.mkdir()
    onnx.save(graph, folder / "model.onnx")
    io: dict[str, Any] = {"token_input": "input_ids"}
    stated = {"model": {"max_sequence_length": 64, "io": io}}
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(stated))
    assert "model.io.logits_output" in refused_by_code(folder)["no-logits"]
    io["logits_output"] = FINAL
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(stated))
    assert compile_package(folder, out=tmp_path / "out").plan is not None


def test_what_a_file_names_is_taken_whatever_its_width(tmp_path: Path) -> None:
    graphs = {"layers": cut(gqa_decoder().proto(), FINAL)[0]}
    folder = written(tmp_path / "p", graphs, document(graphs) | NAMED)
    done = compile_package(folder, out=tmp_path / "out")
    assert done.plan is not None
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["generation"]
