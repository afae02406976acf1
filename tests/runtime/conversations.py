"""Fixtures made conversations: a session cell that continues the prompt (standard, 3.8, prompt_prefix)."""

import shutil
from pathlib import Path
from typing import Any

import yaml
from genai_compiler import compile_package

from tests.conftest import FIXTURES
from tools.fixtures.document import literal, tensor, write_document

MOST = 24
TOKENS = tensor("int64", "batch", "conversation_length", rows=True)


def conversation(folder: Path, case: str, most: int = MOST, **changes: Any) -> Path:
    """The compiled folder of a fixture that holds its conversation in sessions. changes: of the cell."""
    shutil.copytree(FIXTURES / case, folder)
    document = yaml.safe_load((folder / "inference_metadata.yaml").read_text("utf-8"))
    workflow = document["pipeline"]["workflow"]
    workflow["manifest"]["capabilities"] += ["session_state_lease"]
    workflow["inputs"]["package.most"] = literal(tensor("int64", 1), most)
    workflow["state"]["conversation"] = {
        "contract": TOKENS,
        "scope": "session",
        "initializer": "request.input_ids",
        "recurrence": {"kind": "bounded", "axis": 1, "max": "package.most"},
        "management": "runtime",
        "release_boundary": "session",
        "session": {
            "policy": "exclusive",
            "continuation": {"kind": "prompt_prefix", "prompt_input": "request.input_ids", "tokens_output": "tokens"},
        },
        **changes,
    }
    write_document(folder, document)
    compile_package(folder, out=folder.with_suffix(".compiled"))
    return folder.with_suffix(".compiled")
