"""docs/packages.md is what the compiler does now; and one network through several dialects is one program.

The page's column of equality is membership in the lists of the tests that compare with references.
"""

from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import compile_package

from tests.data import needs_data
from tests.real_packages import GREEDY, NAMES, cases
from tools.make_packages_page import PAGE, SAME, body, one_network, page, shape

pytestmark = needs_data


@pytest.fixture(scope="module")
def written() -> str:
    return PAGE.read_text("utf-8")


def test_the_page_is_current(written: str) -> None:
    assert written == page(), "python -m tools.make_packages_page"


def test_the_page_has_every_package_of_the_data(written: str) -> None:
    assert [name for name in NAMES if f"| {name} |" not in written] == []


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
