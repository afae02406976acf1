"""Rules V026-V028 for every field that names a file."""

import json
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.check.artifacts import check_artifacts
from genai_compiler.check.rules import CHECKED
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

from tests.check.bases import base, broken

A = "adapters.artifacts.first.weights"
FILES = ("first/w.json", "first/w.safetensors", "first/config.json", "first/w.onnx_adapter", "second/w.json")


def said(data: Any, root: Path) -> list[tuple[str, str]]:
    places = Places("m.yaml")
    found = check_artifacts(parse_metadata(json.loads(json.dumps(data)), places), places, root)
    return [(each.code, each.path) for each in found]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package with every adapter file of the base, in a folder with another file beside it."""
    (tmp_path / "secret").write_text("outside")
    for name in FILES:
        file = tmp_path / "package" / "adapters" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return tmp_path / "package"


def test_all_files_are_there(root: Path) -> None:
    assert said(base("lora"), root) == []


@pytest.mark.parametrize(
    ("file", "place"),
    [(FILES[0], f"{A}[0].location"), (FILES[2], f"{A}[1].config_location"), (FILES[3], f"{A}[2].location")],
)
def test_an_adapter_file_that_is_not_there(file: str, place: str, root: Path) -> None:
    (root / "adapters" / file).unlink()
    assert said(base("lora"), root) == [(CHECKED["V026"].code, place)]


def test_a_folder_in_the_place_of_a_file(root: Path) -> None:
    file = root / "adapters" / FILES[0]
    file.unlink()
    file.mkdir()
    assert said(base("lora"), root) == [(CHECKED["V027"].code, f"{A}[0].location")]


def test_a_link_out_of_the_package(root: Path) -> None:
    file = root / "adapters" / FILES[0]
    file.unlink()
    file.symlink_to(root.parent / "secret")
    assert said(base("lora"), root) == [(CHECKED["V028"].code, f"{A}[0].location")]


def test_the_artifact_of_an_adapter_component(root: Path) -> None:
    place = "pipeline/workflow/components/thing/implementation/artifact"
    data = broken("io", {place: "program.json"})
    assert said(data, root) == [(CHECKED["V026"].code, place.replace("/", "."))]
    (root / "program.json").write_text("{}")
    assert said(data, root) == []
    assert said(broken("io", {place: "../secret"}), root) == [(CHECKED["V028"].code, place.replace("/", "."))]


def test_an_input_from_a_file(root: Path) -> None:
    data = broken("io", {"pipeline/workflow/inputs/x/source": {"kind": "artifact", "path": "noise.bin"}})
    assert said(data, root) == [(CHECKED["V026"].code, "pipeline.workflow.inputs.x.source.path")]
