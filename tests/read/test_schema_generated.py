"""Our schemas, the published ones and the reader itself on generated documents: one verdict, or an argued difference.

Documents are drawn from the published schema and from ours, with a few choices against it; a rule that one of the three
has alone shows from either side.
"""

import copy
import json
from functools import cache
from typing import Any

import pytest
from genai_compiler.problem import CompileError
from genai_compiler.read.model import GROUPED_ROUTER_FIELDS
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_hints, parse_metadata
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.data import DATA, needs_data
from tests.read.from_schema import documents
from tools.make_schema import schema_texts

pytestmark = needs_data

FILES = {"metadata": "inference_metadata.schema.json", "hints": "execution_hints.schema.json"}
LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
SELECTIONS = {"names", "pattern", "op_types", "layer_range"}


@cache
def schema(side: str, kind: str) -> Any:
    file = DATA / "conformance" / "schema" / FILES[kind]
    if side == "ours":
        return json.loads(schema_texts()[FILES[kind]])
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}


@cache
def judge(side: str, kind: str) -> Draft202012Validator:
    return Draft202012Validator(schema(side, kind))


def read(data: Any, kind: str) -> list[str]:
    """What the reader says against plain data."""
    parse: Any = parse_metadata if kind == "metadata" else parse_hints
    try:
        parse(copy.deepcopy(data), Places(kind))
    except CompileError as refused:
        return [str(each) for each in refused.problems]
    return []


def parts(value: Any) -> Any:
    """Every mapping in plain data."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(each)


def as_published(data: Any, kind: str) -> Any:
    """The document as the published schema can judge it, by the differences that are meant.

    - It predates the role `eos_token_ids` and `session.continuation` (sections 2.2 and 2.6).
    - It takes a null `model.io` beside a pipeline for ports; section 1.2 speaks of a non-null one. Its rule for the
      pair holds of a null `model` or `pipeline` too, since `required` is true of what is no object; null is absent.
    - Its router of grouped_top_k holds with null group fields, again by `required`.
    - Its selector is any non-empty object; one without any known property selects nothing (section 9).
    """
    data = copy.deepcopy(data)
    for each in parts(data):
        if each.get("role") == "eos_token_ids":
            each["role"] = "seed"
        if kind == "metadata" and isinstance(each.get("session"), dict):
            each["session"].pop("continuation", None)
    if kind == "metadata" and isinstance(data, dict):
        model = data.get("model")
        for each in parts(data):
            if each.get("selection_method") == "grouped_top_k":
                for name in GROUPED_ROUTER_FIELDS:
                    if each.get(name, 0) is None:
                        del each[name]
        if isinstance(model, dict) and model.get("io", 0) is None:
            del model["io"]
        for name in ("model", "pipeline"):
            if data.get(name, 0) is None:
                del data[name]
    return data


def refused_alone(data: Any, kind: str) -> bool:
    """Whether something in it is meant to be refused by us alone, or was taken out before the other judged it."""
    if kind == "hints":
        return any(
            isinstance(each.get("selector"), dict) and not SELECTIONS & set(each["selector"]) for each in parts(data)
        )
    return any(isinstance(each.get("session"), dict) and "continuation" in each["session"] for each in parts(data))


def agree(data: Any, kind: str) -> bool:
    """Hold the three judges against each other; returns their verdict."""
    said, ours = read(data, kind), judge("ours", kind).is_valid(data)
    assert ours == (said == []), (data, said)
    published = judge("published", kind).is_valid(as_published(data, kind))
    assert published == ours or (published and refused_alone(data, kind)), (data, said)
    return ours


def rounds(kind: str, side: str, wrong: int, count: int) -> None:
    """Draw `count` documents and compare."""
    verdicts: list[bool] = []

    @settings(max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=LARGE)
    @given(documents(schema(side, kind), wrong))
    def compare(data: Any) -> None:
        verdicts.append(agree(data, kind))

    compare()
    assert any(verdicts), "nothing valid was drawn: the comparison is worth nothing"
    assert wrong == 0 or not all(verdicts)


@pytest.mark.parametrize("side", ["published", "ours"])
@pytest.mark.parametrize("wrong", [0, 3])
def test_hints_agree(side: str, wrong: int) -> None:
    rounds("hints", side, wrong, 150)


@pytest.mark.parametrize("side", ["published", "ours"])
@pytest.mark.parametrize("wrong", [0, 2])
def test_documents_agree(side: str, wrong: int) -> None:
    rounds("metadata", side, wrong, 40)


@pytest.mark.long
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("side", ["published", "ours"])
@pytest.mark.parametrize("wrong", [0, 1, 4])
def test_many_agree(kind: str, side: str, wrong: int) -> None:
    rounds(kind, side, wrong, 1000)


PLACES = st.lists(st.integers(0, 10_000), min_size=1, max_size=3)
WAYS = st.sampled_from(["take", "null", "text", "number", "again"])


def change_leaves(places: list[int], way: str) -> None:
    """The document with every part of the format, a leaf or two taken out or replaced."""
    from tests.read.documents import full

    data = full()
    for place in places:
        slots = [(each, key) for each in parts(data) for key in each]
        holder, key = slots[place % len(slots)]
        if way == "take":
            del holder[key]
        else:
            holder[key] = {"null": None, "text": "x", "number": 1, "again": [holder[key]]}[way]
    agree(data, "metadata")


@settings(max_examples=60, deadline=None, suppress_health_check=LARGE)
@given(PLACES, WAYS)
@example([1129], "null")  # group_count of a router that needs it
def test_leaves_of_the_full_document_changed(places: list[int], way: str) -> None:
    change_leaves(places, way)


@pytest.mark.long
@settings(max_examples=3000, deadline=None, suppress_health_check=LARGE)
@given(PLACES, WAYS)
def test_many_leaves_of_the_full_document_changed(places: list[int], way: str) -> None:
    change_leaves(places, way)
