"""The arena of ONNX Runtime as sizes: against regions that its own log told of, and against arithmetic."""

from genai_compiler.read.arena import FIRST, STEP, Arena

MB = 1 << 20


def test_blocks_come_in_steps_and_no_bytes_are_none() -> None:
    arena = Arena()
    arena.take("a", 1)
    arena.take("b", 0)
    assert (arena.touched, arena.in_use) == (STEP, STEP)


def test_what_is_free_is_taken_again_and_touches_nothing() -> None:
    arena = Arena()
    for _ in range(5):
        arena.take("a", 100 * STEP)
        arena.give("a")
    assert (arena.touched, arena.in_use) == (100 * STEP, 0)


def test_free_neighbours_join() -> None:
    arena = Arena()
    for name in "abc":
        arena.take(name, 100 * STEP)
    for name in "acb":
        arena.give(name)
    arena.take("large", 300 * STEP)
    assert arena.touched == 300 * STEP


def test_of_a_block_less_than_twice_as_large_nothing_is_left_for_others() -> None:
    """700 kB of a first region of 1 MB that is free: a second value has a region of its own."""
    arena = Arena()
    arena.take("a", 700_000)
    arena.take("b", 700_000)
    assert arena.touched == 2 * -(-700_000 // STEP) * STEP


def test_regions_double_and_join_with_none() -> None:
    """As the log of ONNX Runtime 1.32 had it for a prompt of 4 x 256 tokens: requests of 2.25, 2.25, 3.75 and 3.75 MiB
    make regions of 4, 4, 8 and 16 MiB. In the last, 4 MiB are taken, and then 12.25 free: 13 need a region of 32.
    """
    arena = Arena()
    assert FIRST == MB
    for name, size in (("a", 2359296), ("b", 2359296), ("c", 3932160), ("d", 3932160)):
        arena.take(name, size)
    assert arena.touched == 2 * (2359296 + 3932160)
    arena.take("rest", 16 * MB - 3932160)
    arena.take("next", 13 * MB)
    assert arena.touched == 2 * (2359296 + 3932160) + 16 * MB - 3932160 + 13 * MB
    arena.take("half", 19 * MB)
    assert arena.touched == 2 * (2359296 + 3932160) + 16 * MB - 3932160 + 32 * MB
