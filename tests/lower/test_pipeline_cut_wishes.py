"""What a version 2 file asks for beside a decoder of several sessions: chunks of its prompts, drafts."""

from pathlib import Path

import genai_runtime
from genai_compiler import compile_package
from genai_compiler.problem import Severity

from tests.lower.test_pipeline_cut import document, written
from tests.staged_packages import three
from tools.fixtures.network import concat_decoder, gqa_decoder


def test_chunks_of_a_prompt_are_the_default(tmp_path: Path) -> None:
    graphs = three(gqa_decoder())
    folder = written(tmp_path / "p", graphs, document(graphs) | {"search": {"chunk_size": 2}})
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["prefill_chunk"] == 2


def test_a_draft_model_that_nothing_drives_is_told(tmp_path: Path) -> None:
    graphs = three(gqa_decoder())
    stated = document(graphs)
    stated["pipeline"]["sessions"]["small"] = {"file": "small.onnx"}
    stated["pipeline"]["roles"] = {"target": [*graphs][-1], "draft": "small"}
    stated["pipeline"]["strategy"] = {"kind": "speculative"}
    folder = written(tmp_path / "p", graphs | {"small": concat_decoder().proto()}, stated)
    (told,) = [each for each in compile_package(folder, out=tmp_path / "out").problems if "drafted" in each.what]
    assert (told.code, told.path, told.severity) == ("ignored-key", "pipeline.roles.draft", Severity.WARNING)
    assert "the decoder is several sessions" in told.what
