"""docs/traps.md names, for every row of the data's lists of traps, what is done about it and the tests that show it."""

import ast
import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.data import DATA, ROOT, needs_data

PAGE = (ROOT / "docs" / "traps.md").read_text("utf-8")


@dataclass(frozen=True)
class Row:
    """One row of the page. tests: file below tests/ and function, in pairs."""

    id: str
    section: str
    cells: tuple[str, ...]

    @property
    def tests(self) -> list[tuple[str, str]]:
        return re.findall(r"`([\w/]+\.py)::(\w+)`", self.cells[-1])


def rows_of(page: str) -> list[Row]:
    """The rows of every table."""
    found: list[Row] = []
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| row "):
            id, *cells = (each.strip() for each in line.strip("|").split(" | "))
            found.append(Row(id, section, tuple(cells)))
    return found


ROWS = rows_of(PAGE)


@cache
def functions(file: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef))


def listed(file: str, first: str, last: str = "") -> str:
    """The text of one of the data's lists from a heading on, up to another."""
    text = (DATA / "reference" / file).read_text("utf-8")
    start = text.index(first)
    return text[start : text.index(last, start) if last else len(text)]


# ---- the lists -------------------------------------------------------------------------------------------------------


@needs_data
def test_every_public_report_has_a_row() -> None:
    wanted = re.findall(r"^\| ([A-Z]\d+) \|", listed("known-traps.md", "# "), re.MULTILINE)
    assert len(wanted) > 60
    assert sorted(wanted) == sorted(each.id for each in ROWS if re.fullmatch(r"[A-Z]\d+", each.id))


@needs_data
def test_every_trap_of_configurations_has_a_row() -> None:
    text = listed("genai-config.md", "## 6. Traps", "## 7.")
    wanted = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert len(wanted) > 80
    assert sorted(wanted) == sorted(each.id for each in ROWS if each.id.isdigit())


@needs_data
def test_every_false_statement_has_a_row() -> None:
    """A row is how the statement begins."""
    text = listed("exporter-dialects.md", "Wrong or risky statements", "\n## ")
    statements = re.findall(r"^\* (.+)$", text, re.MULTILINE)
    named = [each.id for each in ROWS if not re.fullmatch(r"[A-Z]?\d+", each.id)]
    assert len(statements) >= 10
    assert len(statements) == len(named)
    for statement in statements:
        assert sum(statement.startswith(each) for each in named) == 1, statement


def test_no_row_stands_twice() -> None:
    assert len({each.id for each in ROWS}) == len(ROWS)


# ---- the tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=[each.id for each in ROWS])
def test_a_row_says_what_is_done_and_names_tests_that_exist(row: Row) -> None:
    assert len(row.cells) == 3
    assert all(row.cells)
    assert row.tests
    assert not [f"{file}::{name}" for file, name in row.tests if name not in functions(file)]
    assert row.cells[-1] == "<br>".join(f"`{file}::{name}`" for file, name in row.tests)


@pytest.mark.parametrize("row", [each.id for each in ROWS if re.fullmatch(r"[A-Z]\d+", each.id)])
def test_one_of_them_carries_a_reports_number(row: str) -> None:
    """So that a report's number finds its test by name."""
    tests = next(each.tests for each in ROWS if each.id == row)
    assert any(row.lower() in name.split("_") for _, name in tests)


def test_every_test_that_carries_a_traps_number_is_on_the_page() -> None:
    """The other way round, for the files that hold nothing but traps."""
    named = {test for each in ROWS for test in each.tests}
    ids = {each.id for each in ROWS}
    for file in sorted((ROOT / "tests" / "traps").glob("test_*.py")):
        for name in functions(f"traps/{file.name}"):
            numbers = re.match(r"test_((?:[a-z]?\d+_)+)", name)
            carried = [each.upper() for each in numbers[1].strip("_").split("_")] if numbers else []
            assert set(carried) <= ids, name
            assert not carried or (f"traps/{file.name}", name) in named, f"traps/{file.name}::{name}"
