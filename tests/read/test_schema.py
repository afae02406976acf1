"""Our JSON Schemas: fresh, well-formed, and in agreement with the published ones and with the compiler itself."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.problem import CompileError
from genai_compiler.read.files import find_metadata, read_document
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_hints
from jsonschema import Draft202012Validator

from tests.data import DATA, ROOT, needs_data
from tests.read.documents import bare, faults, full
from tests.read.mutations import damaged
from tests.read.test_hints import HINTS
from tools.make_schema import schema_texts

CONFORMANCE = DATA / "conformance"
METADATA, HINT_FILE = "inference_metadata.schema.json", "execution_hints.schema.json"


@cache
def _ours(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema_texts()[name]))


@cache
def _published(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((CONFORMANCE / "schema" / name).read_text()))


@pytest.mark.parametrize("name", [METADATA, HINT_FILE])
def test_the_files_are_fresh(name: str) -> None:
    """Stale: run `python -m tools.make_schema`."""
    assert (ROOT / "schema" / name).read_bytes() == schema_texts()[name].encode()


@pytest.mark.parametrize("name", [METADATA, HINT_FILE])
def test_the_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(json.loads(schema_texts()[name]))


def _documents() -> list[Any]:
    folders = sorted((CONFORMANCE / "packages").glob("*"))
    files = [found for each in folders if (found := find_metadata(each))]
    for kind in ("catalogue", "documents", "negative"):
        files += sorted((CONFORMANCE / kind).glob("*.yaml"))
    return [pytest.param(each, id="-".join(each.parts[-2:])) for each in files]


def _data(path: Path) -> Any:
    """Plain data without shared parts (aliases), or None when the text itself is at fault."""
    try:
        return json.loads(json.dumps(read_document(path, path.parent)[0]))
    except CompileError:
        return None


@needs_data
@pytest.mark.parametrize("path", _documents())
def test_both_schemas_and_the_compiler_agree(path: Path) -> None:
    data = _data(path)
    if data is not None:
        verdicts = (_published(METADATA).is_valid(data), _ours(METADATA).is_valid(data), faults(data) == [])
        assert len(set(verdicts)) == 1


@needs_data
@pytest.mark.parametrize("seed", range(8))
def test_they_agree_on_damaged_documents(seed: int) -> None:
    dice = random.Random(seed)
    paths = [each.values[0] for each in _documents() if "negative" not in str(each.values[0])]
    documents = [found for path in dice.sample(paths, 12) if (found := _data(Path(str(path)))) is not None]
    for _ in range(40):
        data = damaged(dice.choice([*documents, bare()]), dice)
        verdicts = (_published(METADATA).is_valid(data), _ours(METADATA).is_valid(data), faults(data) == [])
        assert len(set(verdicts)) == 1, (verdicts, faults(data))


@pytest.mark.parametrize("seed", range(4))
def test_our_schema_and_the_compiler_agree_on_every_part(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(60):
        data = damaged(dice.choice([full(), bare()]), dice)
        assert _ours(METADATA).is_valid(data) == (faults(data) == []), faults(data)


def _hints_read(data: Any) -> bool:
    try:
        parse_hints(data, Places("execution_hints.json"))
    except CompileError:
        return False
    return True


@needs_data
def test_hint_schemas_agree_on_damaged_hints() -> None:
    """One difference is meant: a selector of unknown properties only selects nothing and is refused (section 9)."""
    dice = random.Random(1)
    for _ in range(1500):
        data = damaged(HINTS, dice, dice.choice([0, 1, 1, 2]))
        ours, published = _ours(HINT_FILE).is_valid(data), _published(HINT_FILE).is_valid(data)
        assert ours == _hints_read(data), data
        assert ours == published or (published and _has_empty_selector(data)), data


def _has_empty_selector(data: Any) -> bool:
    known = {"names", "pattern", "op_types", "layer_range"}
    lists = (data.get(each, ()) for each in ("placement", "memory", "scheduling"))
    return any("selector" in each and not known & set(each["selector"]) for hints in lists for each in hints)


def test_what_later_revisions_added_is_in_ours() -> None:
    """The published schema predates the role `eos_token_ids` and `session.continuation` (sections 2.2, 2.6)."""
    data = full()
    data["pipeline"]["workflow"]["inputs"]["seed"]["role"] = {
        "kind": "runtime",
        "version": "1",
        "role": "eos_token_ids",
    }
    assert _ours(METADATA).is_valid(data)
    assert faults(data) == []
    data["pipeline"]["workflow"]["state"]["cache"]["session"]["continuation"]["kind"] = "suffix"
    assert not _ours(METADATA).is_valid(data)


def test_a_null_io_beside_a_pipeline_is_no_fault() -> None:
    """Section 1.2 speaks of a non-null `model.io`."""
    data = full()
    data["model"]["io"] = None
    assert _ours(METADATA).is_valid(data)
    assert faults(data) == []
