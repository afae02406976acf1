"""The semantic identity of a document, against canonical texts and hashes made by hand (standard, 1.11)."""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
import yaml
from genai_compiler import compile_package
from genai_compiler.read.identity import canonical_text, semantic_identity

from tests.conftest import FIXTURES
from tests.data import DATA, needs_data

CASES: list[tuple[Any, str]] = [
    ({"b": 1, "a": {"d": None, "c": "x"}}, '{"a":{"c":"x"},"b":1}'),
    ({"a": {}, "b": [], "c": [{}, None, []], "d": {"e": {"f": None}}, "g": 0}, '{"g":0}'),
    ({"a": [1, None, {"b": None}, 2]}, '{"a":[1,2]}'),
    ({"n": 128.0, "m": 1.28e2, "k": -0.0, "big": 1e17}, '{"big":100000000000000000,"k":0,"m":128,"n":128}'),
    ({"flag": True, "other": False}, '{"flag":true,"other":false}'),
    ({"x": 0.1, "y": 1e-7, "z": 2.5e-3, "w": 1e20}, '{"w":100000000000000000000,"x":0.1,"y":0.0000001,"z":0.0025}'),
    ({"profiles": {"p": {"kind": "x", "requirement": "ignorable"}}, "v": "v1"}, '{"v":"v1"}'),
    (
        {"profiles": {"p": {"kind": "x", "requirement": "required"}}},
        '{"profiles":{"p":{"kind":"x","requirement":"required"}}}',
    ),
    (
        {"model": {"profiles": {"p": {"requirement": "ignorable"}}}},
        '{"model":{"profiles":{"p":{"requirement":"ignorable"}}}}',
    ),
    ({"s": 'é"\\\n\u0001'}, '{"s":"é\\"\\\\\\n\\u0001"}'),
    ({}, "{}"),
]


@pytest.mark.parametrize(("document", "text"), CASES, ids=range(len(CASES)))
def test_the_canonical_text(document: Any, text: str) -> None:
    assert canonical_text(document) == text


def test_the_hash_is_of_that_text() -> None:
    """The digest is what `printf '{"schema_version":"v1"}' | sha256sum` says."""
    made = semantic_identity({"profiles": {}, "schema_version": "v1"})
    digest = "34072dbdeec18e64ea2d74ef22b58d0c5c70331d3e00d4b18b176d37fe27e555"
    assert made == f"onnx-genai-metadata-identity-v1:sha256:{digest}"


def test_a_default_written_out_is_another_document() -> None:
    assert semantic_identity({"a": {"required": False}}) != semantic_identity({"a": {}})


def test_yaml_and_json_of_one_document_are_one(tmp_path: Path) -> None:
    """The manifest has it, whatever the order, the format and the spelling of numbers."""
    data = yaml.safe_load((FIXTURES / "nested-loops" / "inference_metadata.yaml").read_text("utf-8"))
    found = set[str]()
    for at, text in enumerate((json.dumps(data), json.dumps(dict(reversed(data.items())), indent=1))):
        folder = tmp_path / str(at)
        folder.mkdir()
        for each in (FIXTURES / "nested-loops").glob("*.onnx"):
            (folder / each.name).write_bytes(each.read_bytes())
        (folder / "inference_metadata.json").write_text(text, "utf-8")
        compile_package(folder, out=tmp_path / f"{at}.compiled")
        with genai_runtime.load(tmp_path / f"{at}.compiled") as model:
            found.add(model.describe()["identity"])
    assert found == {semantic_identity(data)}


@needs_data
def test_documents_of_the_catalogue_have_identities_of_their_own() -> None:
    files = sorted((DATA / "conformance" / "catalogue").glob("*.yaml"))
    identities = {semantic_identity(yaml.safe_load(each.read_text("utf-8"))) for each in files}
    assert len(identities) == len(files) > 10
