"""Where a version 2 file says something of its media."""

import json
from pathlib import Path

import pytest
from genai_compiler.lower.pipeline_media import media_notes
from genai_compiler.read.genai_config import CONFIG_NAME
from genai_compiler.read.pipeline_form import Resolving, expand
from genai_compiler.read.pipeline_text import read_pipeline


@pytest.mark.parametrize(("kind", "token"), [("image", 5), ("audio", 6)])
def test_the_token_of_each_medium_is_told_at_its_own_key(kind: str, token: int, tmp_path: Path) -> None:
    tokens = {"image_token": 5, "audio_token": 6}
    stated = {"version": 2, "pipeline": {"sessions": {"decoder": {"file": "model.onnx"}}}, "tokens": tokens}
    (tmp_path / CONFIG_NAME).write_text(json.dumps(stated, indent=1))
    said = media_notes(expand(Resolving(read_pipeline(tmp_path)))).said[kind]
    assert said.token == token
    assert said.token_spot[1] == f"tokens.{kind}_token"
    lines = (tmp_path / CONFIG_NAME).read_text().splitlines()
    assert f'"{kind}_token"' in lines[said.token_spot[0].line - 1]
