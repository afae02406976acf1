"""Every structural rule: a document that breaks it and nothing else is refused at the place the standard names."""

from typing import Any

import pytest
from genai_compiler.check.rules import CHECKED, OWNERS, rules_of

from tests.check import cases_audio, cases_parts, cases_pictures, cases_services, cases_state, cases_steps
from tests.check.bases import BASES, base, broken, found, problems
from tests.check.cases_steps import Case
from tests.wording import smells

CASES: list[Case] = [
    *cases_steps.STEPS, *cases_steps.LOOPS, *cases_steps.BRANCHES, *cases_steps.EMITS, *cases_steps.PRESENCE,
    *cases_parts.CONTRACTS, *cases_parts.OUTPUTS, *cases_parts.COMPONENTS, *cases_parts.TASKS,
    *cases_parts.PREPROCESSING, *cases_pictures.PICTURES, *cases_state.CELLS, *cases_state.GROUPS,
    *cases_state.PORTS, *cases_state.SERVING, *cases_state.SESSIONS,
    *cases_services.SERVICE, *cases_services.TARGET_RULES, *cases_services.ADAPTERS, *cases_services.CHAINS,
    *cases_services.UNDONE, *cases_audio.AUDIO,
]  # fmt: skip
ELSEWHERE = {
    *("V026", "V027", "V028"),  # files: test_artifacts
    *(f"V{number}" for number in range(311, 324)),  # graphs: test_admission
}


@pytest.mark.parametrize("name", BASES)
def test_the_bases_are_valid(name: str) -> None:
    assert problems(base(name)) == ()


@pytest.mark.parametrize(
    ("rule", "name", "changes", "place", "also"),
    [pytest.param(*each, id=f"{each[0]}-{number}") for number, each in enumerate(CASES)],
)
def test_a_document_that_breaks_one_rule(
    rule: str, name: str, changes: dict[str, Any], place: str, also: frozenset[str]
) -> None:
    document = broken(name, changes)
    faults = found(document)
    assert (rule, place) in faults
    assert smells(problems(document), empty=False) == []
    assert {each for each, _ in faults} == {rule, *also}


@pytest.mark.parametrize(
    ("rule", "name", "changes", "place", "also"),
    [pytest.param(*each, id=f"{each[0]}-{number}") for number, each in enumerate(CASES)],
)
def test_its_problem_is_said_once_with_its_code(
    rule: str, name: str, changes: dict[str, Any], place: str, also: frozenset[str]
) -> None:
    said = [each for each in problems(broken(name, changes)) if each.path == place and f"({rule})" in each.what]
    assert [each.code for each in said] == [CHECKED[rule].code]
    assert "\n" not in said[0].what


def test_every_rule_has_a_case() -> None:
    assert set(CHECKED) - {each[0] for each in CASES} == ELSEWHERE


def test_the_rules_are_those_of_the_standard() -> None:
    numbers = [*range(29, 123), *range(124, 273), *range(274, 309)]
    structural = {f"V{number:03}" for number in numbers}
    assert {each for each in CHECKED if each.startswith("V")} - ELSEWHERE == structural
    assert set(OWNERS) == set(CHECKED)


def test_a_shape_that_is_not_as_long_as_its_rank_says() -> None:
    """Two mistakes at one place: the pictures' shape is not compared extent by extent."""
    data = base("pictures")
    data["preprocessing"]["image"]["outputs"][0]["contract"]["shape"] = [1]
    assert ("G005", "preprocessing.image.outputs[0].contract") in found(data)


def test_rules_of_a_code() -> None:
    assert set(rules_of("join-default")) == {"V257"}
    assert rules_of("no-such-code") == {}


def test_codes_are_plain_words() -> None:
    assert all(each.code == each.code.lower() and " " not in each.code for each in CHECKED.values())
    assert all(each.demands.endswith(".") for each in CHECKED.values())
