"""docs/validation-rules.md: current, complete, and what it names exists."""

import importlib

from tests.data import ROOT
from tools.make_rules import LAST, NOT_YET, PAGE, page, row


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tools.make_rules"


def test_what_the_page_names_exists() -> None:
    sources = "".join(
        each.read_text("utf-8") for side in ("compiler", "runtime") for each in (ROOT / side).rglob("*.py")
    )
    for number in range(1, LAST + 1):
        each = row(number)
        if each.module:
            importlib.import_module(each.module)
            assert (ROOT / each.test).is_file() if each.test else each.remark, number
            assert each.codes, number
        assert all(f'"{code}"' in sources for code in each.codes), number


def test_every_rule_is_answered_for() -> None:
    """By a code and a test that breaks it, or by a reason why nothing can."""
    numbers = range(1, LAST + 1)
    assert [number for number in numbers if row(number).remark == NOT_YET] == []
    assert all(row(number).test for number in numbers if row(number).module)
    assert [number for number in numbers if not row(number).module] == [123, 273, 331, 345]
