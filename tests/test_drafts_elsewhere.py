"""Drafts for a decoder that can't verify them: the package runs as it did, and says by name why nothing is drafted."""

import shutil
from pathlib import Path

import genai_runtime
import pytest
import yaml
from genai_compiler import compile_package
from genai_compiler.convert import convert_package
from genai_runtime import RequestError

from tests.conftest import FIXTURES
from tools.fixtures.document import Document, onnx, tensor, write_document
from tools.fixtures.drafters import BLOCK, block_drafter
from tools.fixtures.runtime_decoder import TOKENS

WIDTH = 4
PROMPT = [1, 9, 14]
REASONS = {
    "tiny-media-v2": "'decoder' takes embeddings, which 'embedding' makes of tokens",
    "tiny-own-tokens-v1": "'decoder' takes embeddings, which 'embedding' makes of tokens",
}


def with_drafts(case: str, folder: Path) -> Path:
    """A fixture of another dialect as a workflow, and a proposer that looks its block up in the text so far."""
    package = shutil.copytree(FIXTURES / case, folder)
    document: Document = yaml.safe_load(convert_package(package).text)
    (package / "genai_config.json").unlink()
    block_drafter().save(package / "draft.onnx")
    drafts = {"draft_tokens": tensor("int64", "batch", BLOCK, rows=True)}
    workflow = document["pipeline"]["workflow"]
    roles = {"input_ids": "token_ids"}
    workflow["components"]["draft"] = onnx("draft.onnx", {"input_ids": TOKENS}, drafts, roles=roles)
    groups = workflow["serving"]["state_service"]["groups"].values()
    for group in groups:
        group.setdefault("capabilities", {})["rollback_positions"] = WIDTH
    document["speculative"] = {
        "proposer": "draft",
        "target": "decoder",
        "proposal_execution": {"kind": "block"},
        "vocabulary": {"kind": "identical"},
        "max_proposal_width": WIDTH,
        "rollback_state": [cell for group in groups for cell in group["ports"]["decoder"]],
    }
    write_document(package, document)
    return package


@pytest.mark.parametrize("case", REASONS)
def test_what_can_not_be_verified_is_not_drafted(case: str, tmp_path: Path) -> None:
    compile_package(FIXTURES / case, tmp_path / "plain")
    compile_package(with_drafts(case, tmp_path / "p"), tmp_path / "out")
    asked = {"max_new_tokens": 6, "temperature": 0, "stop_on_eos": False}
    with (
        genai_runtime.load(tmp_path / "plain", threads=1) as plain,
        genai_runtime.load(tmp_path / "out", threads=1) as model,
    ):
        told = model.describe()["speculation"]
        assert (told["driven"], told["target"]) == (False, "decoder")
        assert REASONS[case] in told["reason"]
        assert model.generate(PROMPT, **asked).tokens == plain.generate(PROMPT, **asked).tokens
        with pytest.raises(RequestError, match="no-proposer") as refused:
            model.generate(PROMPT, speculate=True, **asked).tokens  # noqa: B018
    assert REASONS[case] in refused.value.what
