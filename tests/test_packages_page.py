"""docs/packages.md is what becomes of every package now; and one network through several dialects is one program.

The page is made anew: each package compiled, loaded, its first case run and held against its reference.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package

from tests.data import DATA, needs_data
from tests.real_packages import DRAWN, ENCODED, GREEDY, MEDIA, NAMES, PACKAGES, PAGED, SINGLE, cases
from tools.make_packages_page import PAGE, SAME, body, one_network, page, shape
from tools.package_runs import FIXTURES, generated, of_bare, of_exporter, of_fixture, of_workflow, outcome

pytestmark = needs_data


@pytest.fixture(scope="module")
def written() -> str:
    return PAGE.read_text("utf-8")


def test_the_page_is_current(written: str) -> None:
    assert written == page(), "python -m tools.make_packages_page"


def test_the_page_has_every_package_of_the_data(written: str) -> None:
    assert [name for name in NAMES if f"| {name} |" not in written] == []


class Wrong:
    """A model that answers every request with noughts."""

    def generate(self, *_: Any, max_new_tokens: int, **__: Any) -> Any:
        return SimpleNamespace(tokens=[0] * max_new_tokens)

    def run(self, *_: Any, **__: Any) -> Any:
        return self

    def rows(self, _: str) -> Any:
        return [np.zeros(64, np.int64)]

    def __getitem__(self, _: str) -> Any:
        return np.float32(0)


@pytest.mark.parametrize("name", ["og-llama", ENCODED[0], MEDIA[0], SINGLE[0], DRAWN[0], PAGED[0]])
def test_a_wrong_answer_equals_no_reference_of_an_exporter(name: str) -> None:
    wrong: Any = Wrong()
    assert not of_exporter(name)(wrong)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_wrong_answer_equals_no_plain_loop(name: str, tmp_path: Path) -> None:
    wrong: Any = Wrong()
    assert not of_fixture(name, tmp_path)(wrong)


def test_what_a_package_makes_is_told_apart_from_what_another_should() -> None:
    """Of the suite too; what fails has its code, and what is refused another."""
    suite, wrong = DATA / "conformance" / "packages", Wrong()
    assert not of_bare("tiny-llm")(wrong)  # type: ignore[arg-type]
    assert not outcome(suite / "own-carry-rows", of_workflow("own-literals")).equal
    assert outcome(PACKAGES / "og-llama", generated("og-llama")).equal
    assert not outcome(PACKAGES / "og-llama", generated("og-hunyuan")).equal
    assert outcome(PACKAGES / PAGED[0], generated(PAGED[0])).failed == "no-kernel"
    assert outcome(PACKAGES / "og-llama-nohead", None).refused == "no-logits"


def test_every_dialect_of_a_network_gives_the_same_tokens(tmp_path: Path) -> None:
    """Their data agree with each other, and each with its own."""
    for name, package in one_network(tmp_path).items():
        out = tmp_path / "out" / name
        compile_package(package, out=out)
        with genai_runtime.load(out, threads=1) as model:
            for case in cases(SAME[0]):
                made = model.generate(case["prompt"], max_new_tokens=16, **GREEDY).tokens
                assert made == case["greedy"], name


def test_every_dialect_of_a_network_is_one_program(tmp_path: Path) -> None:
    texts = [shape(each) for each in one_network(tmp_path).values()]
    assert len({body(each) for each in texts}) == 1


def test_every_dialect_of_a_graph_is_one_plan(tmp_path: Path) -> None:
    """Ports, state, checks, decisions: all of the plan but its source and the defaults of requests."""
    texts = {name: shape(each) for name, each in one_network(tmp_path).items() if name != SAME[0]}
    assert len(texts) == 5
    assert len(set(texts.values())) == 1
