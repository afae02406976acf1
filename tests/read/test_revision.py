"""Documents of a newer revision: a word of warning, and help where a field tells it (standard, 14.2)."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from genai_compiler.driver import check_package
from genai_compiler.problem import Severity

from tests.flow_packages import add, flow_package
from tools.fixtures.document import Document, emit, write_document


def codes(folder: Path, change: Any) -> list[tuple[str, Severity, str]]:
    """(code, severity, help) of what is said about a package whose document was changed."""
    flow_package(folder, [add("a", "b", "sum"), emit("sum", "out")])
    document = yaml.safe_load((folder / "inference_metadata.yaml").read_text("utf-8"))
    change(document)
    write_document(folder, document)
    return [(each.code, each.severity, each.help) for each in check_package(folder)]


@pytest.mark.parametrize("version", ["v1", "1", "1.0", "1.0.3", "v1.0", "draft", "2024-01", ""])
def test_revisions_that_are_known_or_say_nothing(tmp_path: Path, version: str) -> None:
    assert codes(tmp_path, lambda document: document.update(schema_version=version)) == []


@pytest.mark.parametrize("version", ["v2", "2", "1.1", "1.1.0", "10.0"])
def test_revisions_that_are_newer_are_warned_of(tmp_path: Path, version: str) -> None:
    ((code, severity, _),) = codes(tmp_path, lambda document: document.update(schema_version=version))
    assert (code, severity) == ("newer-revision", Severity.WARNING)


def contract(document: Document) -> Document:
    found: Document = document["pipeline"]["workflow"]["inputs"]["a"]["contract"]
    return found


NEWER = {
    "padding": lambda document: contract(document).update(padding=[]),
    "levels": lambda document: contract(document).update(
        batch_layout={"kind": "token_packed", "axis": 0, "offsets": "b", "owner": "n", "levels": []}
    ),
    "family": lambda document: document["pipeline"]["workflow"]["outputs"]["out"].update(family="text"),
    "stream": lambda document: document["pipeline"]["workflow"]["steps"][1].update(stream=True),
    "batch_capacity": lambda document: document["pipeline"]["workflow"]["components"]["add"].update(batch_capacity=1),
}


@pytest.mark.parametrize("field", NEWER)
def test_fields_of_a_newer_revision_are_refused_as_such(tmp_path: Path, field: str) -> None:
    ((code, severity, help),) = codes(tmp_path, NEWER[field])
    assert (code, severity) == ("unknown-field", Severity.ERROR)
    assert "newer" in help


def test_a_contract_without_rank_may_be_newer(tmp_path: Path) -> None:
    ((code, _, help),) = codes(tmp_path, lambda document: contract(document).pop("rank"))
    assert code == "missing-field"
    assert "newer" in help
