"""What a version 2 file says of requests holds for a decoder of several sessions, too: biases, chunks, drafts."""

from pathlib import Path

import genai_runtime
from genai_compiler import compile_package
from genai_compiler.problem import Severity

from tests.lower.test_pipeline_cut import document, refused, written
from tests.staged_packages import three
from tools.fixtures.network import VOCABULARY, concat_decoder, gqa_decoder

PROMPT = [1, 9, 14, 3, 60]


def test_a_bias_is_a_default(tmp_path: Path) -> None:
    """So large a one that no score of the graph is above it."""
    graphs = three(gqa_decoder())
    stated = document(graphs)
    stated["generation"]["logits"] = [{"op": "logit_bias", "map": {"6": 1e6}}]
    compile_package(written(tmp_path / "p", graphs, stated), out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(PROMPT, max_new_tokens=4).tokens == [6, 6, 6, 6]


def test_a_bias_of_an_id_that_no_token_has_is_refused(tmp_path: Path) -> None:
    graphs = three(gqa_decoder())
    stated = document(graphs)
    stated["generation"]["logits"] = [{"op": "logit_bias", "map": {str(VOCABULARY): 1}}]
    path = f'generation.logits[0].map["{VOCABULARY}"]'
    found = refused(written(tmp_path / "p", graphs, stated))
    assert "ids end at" in found["bad-value", path]


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
