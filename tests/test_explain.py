"""--explain knows every code of both commands, in the words of docs/problems.md."""

import re

import pytest
from genai_compiler.cli import main
from genai_compiler.explain import explain, known_codes
from genai_compiler.problem_page import problem_page

from tests.data import ROOT
from tests.test_docs import codes_in_sources, documented


def test_every_code_is_known() -> None:
    assert (codes_in_sources() | documented()) - known_codes() == set()
    for code in sorted(known_codes()):
        known, lines = explain(code)
        assert known, code
        assert len(lines) > 2, code


def test_a_code_is_explained_as_the_page_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "problems.md").read_text("utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `session-busy`"))
    _, _, what, help, _ = (each.strip() for each in row.split("|"))
    assert main(["--explain", "session-busy"]) == 0
    shown = capsys.readouterr().out
    assert what in shown
    assert help in shown
    assert "RequestError" in shown


def test_a_code_of_two_sections_has_both() -> None:
    _, lines = explain("unknown-provider")
    assert len([each for each in lines if each.startswith("  genai")]) == 2


def test_the_page_as_data_has_no_marks_left() -> None:
    rows = [row for rows in problem_page().values() for row in rows]
    assert len(rows) > 150
    assert [row for row in rows if re.search(r"`|\]\(", "".join(row))] == []
