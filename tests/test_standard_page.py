"""docs/standard.md: current; every struct of the document has a row, every name exists, every capability is told."""

import ast
import re
from pathlib import Path

import pytest
from genai_compiler.check import capabilities
from genai_compiler.check.capabilities import derived
from genai_compiler.read.negotiate import ALWAYS, OFFERED
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

from tests.check.bases import BASES, base
from tests.data import DATA, ROOT, needs_data
from tools.make_standard import PAGE, exists, names, page, structs
from tools.standard_map import AUTHOR, CAPABILITIES, LATER, NEVER, SECTIONS
from tools.standard_rows import Row

ROWS = [each for rows in SECTIONS.values() for each in rows]
STANDARD = DATA / "reference" / "metadata-standard.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tools.make_standard"


def test_every_struct_has_one_row() -> None:
    named = [name for each in ROWS for name in each.structs]
    assert sorted(named) == sorted(structs())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.construct)
def test_what_a_row_names_exists(row: Row) -> None:
    assert [name for name in names(row) if not exists(name) and name not in LATER] == []
    assert row.tests
    assert [each for each in row.tests.split() if not (ROOT / each).is_file()] == []
    assert row.remark or all((row.verified, row.planned, row.run)), "an empty stage needs a remark"


def test_names_are_not_said_twice() -> None:
    assert len({each.construct for each in ROWS}) == len(ROWS)
    used = {name for each in ROWS for name in names(each)}
    assert used >= LATER, "a module that is awaited has a row that names it"


def test_names_that_do_not_exist_are_found() -> None:
    assert exists("plan.types:type_of")
    assert exists("rt.adapters.registry")
    for wrong in ("plan.nothing", "plan.types:nothing", "nothing.types", "rt.nothing.registry"):
        assert not exists(wrong)


# ---- capabilities ----------------------------------------------------------------------------------------------------


@needs_data
def test_the_capabilities_are_those_of_the_standard() -> None:
    """The catalogue of section 8.1, and which of them it says follow from a document."""
    catalogue = STANDARD.read_text("utf-8").partition("### 8.1")[2].partition("### 8.2")[0]
    stated = dict(re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", catalogue, re.MULTILINE))
    assert len(stated) == 30
    assert set(CAPABILITIES) == set(stated)
    for name, how in stated.items():
        assert (CAPABILITIES[name] == NEVER) == ("never" in how)
        assert (CAPABILITIES[name] == AUTHOR) == (how == "author-declared")
    assert {name for name, how in stated.items() if "runtime default" in how} == set(ALWAYS)


def test_what_is_implied_is_what_the_check_derives() -> None:
    """Every capability that the table says is implied comes from some valid document, and no other does."""
    found: set[str] = set()
    for name in BASES:
        pipeline = parse_metadata(base(name), Places("m.yaml")).pipeline
        found |= set(derived(pipeline.workflow)) if pipeline is not None else set()
    implied = {name for name, how in CAPABILITIES.items() if how not in (NEVER, AUTHOR)}
    texts = {node.value for node in ast.walk(ast.parse(Path(str(capabilities.__file__)).read_text("utf-8")))
             if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
    assert set(CAPABILITIES) & texts == implied
    assert found <= implied
    assert len(found) > 12


def test_offered_capabilities_are_known_ones() -> None:
    extra = OFFERED - set(CAPABILITIES)
    assert all(each.endswith("_program") for each in extra), "only what an author may list beyond the catalogue"
