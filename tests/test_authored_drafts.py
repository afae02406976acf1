"""A document that spells drafting out in steps runs as any other workflow; its `speculative` block changes nothing."""

import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime import RequestError

from tests.data import DATA, needs_data
from tools.fixtures.graph import Sketch

CATALOGUE = DATA / "conformance" / "catalogue" / "11-speculative-proposer-verifier.yaml"


def package_of(folder: Path) -> Path:
    folder.mkdir()
    shutil.copyfile(CATALOGUE, folder / "inference_metadata.yaml")
    return folder


def write_graphs(folder: Path) -> None:
    """Graphs for the catalogue's document: count up from the last token; keep the drafts that differ by one.

    proposer: input_ids int64 [batch, sequence] -> draft_tokens: last + 1 .. last + 4. verifier: prompt_tokens,
    draft_tokens -> accepted_tokens: the first two drafts.
    """
    sketch = Sketch("proposer")
    ids = sketch.input("input_ids", "int64", "batch", "sequence")
    last = sketch.op.Slice(ids, [-1], [1 << 40], [1])
    sketch.output(sketch.op.Add(last, [1, 2, 3, 4]), "draft_tokens", "int64", "batch", "proposal")
    _save(sketch, folder / "speculative" / "proposer.onnx.textproto")
    sketch = Sketch("verifier")
    sketch.input("prompt_tokens", "int64", "batch", "sequence")
    drafts = sketch.input("draft_tokens", "int64", "batch", "proposal")
    sketch.output(sketch.op.Slice(drafts, [0], [2], [1]), "accepted_tokens", "int64", "batch", "accepted_sequence")
    _save(sketch, folder / "speculative" / "verifier.onnx.textproto")


def _save(sketch: Sketch, file: Path) -> None:
    from google.protobuf import text_format

    file.parent.mkdir(exist_ok=True)
    file.write_text(text_format.MessageToString(sketch.proto()), encoding="utf-8")


@needs_data
def test_the_catalogues_document_lacks_its_graphs_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(package_of(tmp_path / "package"), out=tmp_path / "compiled")
    assert [each.code for each in refused.value.problems] == ["missing-file", "missing-file"]


@needs_data
def test_the_catalogues_document_runs_as_it_is_written(tmp_path: Path) -> None:
    """No step is the runtime's, although a proposer and a target are named and promise much."""
    write_graphs(package_of(tmp_path / "package"))
    compile_package(tmp_path / "package", out=tmp_path / "compiled")
    model = genai_runtime.load(tmp_path / "compiled", threads=1)
    inputs = {"request.input_ids": np.array([[3, 9], [4, 20]])}
    result = model.run(inputs)
    assert result["tokens"].tolist() == [[10, 11], [21, 22]]
    assert not any(result.runtime_steps.values())
    told = model.describe()["speculation"]
    assert (told["driven"], told["width"]) == (False, 4)
    assert "the workflow itself" in told["reason"]
    with pytest.raises(RequestError, match="no-proposer"):
        model.run(inputs, speculate=True)
