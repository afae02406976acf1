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


def test_every_rule_is_answered_for() -> None:
    """All 348, in the words of the page: each code of its row is explained, or the reason for none is given."""
    page = (ROOT / "docs" / "validation-rules.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if re.match(r"\| V\d", line)]
    assert len(rows) == 348
    for _, rule, level, codes, _, _, remark, _ in rows:
        known, lines = explain(rule)
        assert known, rule
        assert lines[0].startswith(f"{rule} (level {level}): "), rule
        assert all(code in lines for code in re.findall(r"`([a-z0-9-]+)`", codes)), rule
        assert remark.replace("`", "") in lines[0], rule
        assert codes or remark, rule


@pytest.mark.parametrize(
    ("given", "said"),
    [("v4", "V004 (level P): reported as missing-field"), ("G004", "G004: reported as image-geometry")],
)
def test_a_rule_may_be_spelled_short_or_be_our_own(given: str, said: str) -> None:
    assert explain(given)[1][0] == said


@pytest.mark.parametrize(("given", "near"), [("missing-fil", "missing-file"), ("V3400", "V340"), ("Q" * 5000, "")])
def test_what_is_no_code_gets_a_near_one(given: str, near: str) -> None:
    known, lines = explain(given)
    assert not known
    assert lines[0] == f"there is no code and no rule '{given}'"
    assert lines[1:-1] == ((f"did you mean {near}?",) if near else ())


def test_what_a_listing_promises_is_so() -> None:
    """The last line: every code stands on the page, by hand with a way out, or in the table of rules with a demand."""
    page = (ROOT / "docs" / "problems.md").read_text("utf-8")
    assert {code for code in known_codes() if f"`{code}`" not in page} == set()
    assert all(row.help for rows in problem_page().values() for row in rows)


def test_a_code_is_explained_as_the_page_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "problems.md").read_text("utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `session-busy`"))
    _, _, what, help, _ = (each.strip() for each in row.split("|"))
    assert main(["--explain", "session-busy"]) == 0
    shown = capsys.readouterr().out
    assert what in shown
    assert help in shown
    assert "RequestError" in shown


def test_a_link_names_its_page() -> None:
    assert "    way out: see options (docs/options.md)" in explain("bad-sampling-options")[1]


def test_no_section_explains_a_code_twice() -> None:
    rows = [(code, row.section, row.what) for code, found in problem_page().items() for row in found]
    assert sorted(rows) == sorted(set(rows))


def test_a_code_of_two_sections_has_both() -> None:
    _, lines = explain("unknown-provider")
    assert len([each for each in lines if each.startswith("  genai")]) == 2


def test_the_page_as_data_has_no_marks_left() -> None:
    rows = [row for rows in problem_page().values() for row in rows]
    assert len(rows) > 150
    assert [row for row in rows if re.search(r"`|\]\(", "".join(row))] == []
