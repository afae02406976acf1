"""What values between runs take: by hand on a chain, and the order of the three numbers on every fixture."""

import pytest
from genai_compiler.memory import MemoryAsk

from tests.conftest import CASES, FIXTURES
from tools.value_lifetimes import Lifetimes, measured


def test_values_that_never_meet_share_a_buffer() -> None:
    """a and c never meet: one buffer of 12; b meets both: one of 3, twice where its run keeps two sets."""
    for steady, of_b in ((frozenset[str](), 3), (frozenset({"b"}), 6)):
        found = Lifetimes({"a": 10, "b": 3, "c": 12}, steady)
        for alive in ({"a", "b"}, {"b", "c"}):
            found.note(alive)
        assert (found.fullest, found.coloured()) == (12 + of_b, 12 + of_b)


def test_values_in_a_ring_need_more_than_is_ever_alive() -> None:
    """A ring of five, two alive at a time: three buffers, since five values in a ring can't do with two."""
    found = Lifetimes(dict.fromkeys("abcde", 4), frozenset())
    for one, other in zip("abcde", "bcdea", strict=True):
        found.note({one, other})
    assert (found.fullest, found.coloured()) == (8, 12)


@pytest.mark.parametrize("case", CASES)
def test_no_assignment_is_below_what_is_alive_or_above_all_apart(case: str) -> None:
    _, apart, alive, coloured = measured(FIXTURES / case, MemoryAsk(1, None, 16))
    assert alive <= coloured <= apart
