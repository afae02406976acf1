"""Well-formed packages with one mistake: refused at a place, or compiled into what the interpreter says, no third."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from genai_compiler import CompileError
from hypothesis import event, given, settings

from tests.property.components import Library
from tests.property.judge import Bench
from tests.property.mutations import MUTATIONS, mutated
from tests.property.packages import Maker
from tests.property.regions import make_package
from tests.property.requests import odd_request, valid_request
from tests.property.test_packages import DICE, LONG, SMOKE, bench

__all__ = ["bench"]


def check(bench: tuple[Bench, Library], dice: random.Random, seen: Counter[str], times: int) -> None:
    """One package, changed in several ways; the requests are those of the unchanged one."""
    package = make_package(Maker(dice, bench[1], rowwise=False, budget=8))
    throws = random.Random(dice.getrandbits(32))
    for _ in range(times):
        document, change = mutated(package.document, throws)
        try:
            subject = bench[0].compiled(document, throws.choice(("json", "yaml")), frozenset(package.timed))
        except CompileError as refused:
            placeless = [each for each in refused.problems if not each.path and not each.where.line]
            if placeless:
                raise AssertionError(f"{change}: no place in {placeless}") from refused
            seen[f"{change}: refused"] += 1
            continue
        changed = replace(
            package, document=document, overrides=[]
        )  # whether ports are equal is judged more finely here
        for request in (valid_request(changed, throws), odd_request(changed, throws)):
            subject.judge(request, exact=False)
        subject.model.close()
        seen[f"{change}: compiled"] += 1


@given(DICE)
@settings(SMOKE, max_examples=15)
def test_mistakes(bench: tuple[Bench, Library], dice: random.Random) -> None:
    check(bench, dice, Counter(), times=3)


@pytest.mark.long
def test_many_mistakes(bench: tuple[Bench, Library]) -> None:
    seen: Counter[str] = Counter()

    @given(DICE)
    @settings(LONG, max_examples=500)
    def run(dice: random.Random) -> None:
        check(bench, dice, seen, times=8)
        event("package")

    run()
    print(*(f"{count:6} {name}" for name, count in sorted(seen.items())), sep="\n")
    assert not [each for each in MUTATIONS if not seen[f"{each}: refused"] + seen[f"{each}: compiled"]]
    assert sum(count for name, count in seen.items() if name.endswith("refused")) > 500
    assert sum(count for name, count in seen.items() if name.endswith("compiled")) > 500
