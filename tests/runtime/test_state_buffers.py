"""Where a request's shared buffers lie: in one block where most of it is going to be used, else apart."""

import numpy as np
import pytest
from genai_runtime.state import GROWTH, ROWS, Slot, grow, shared_state
from genai_runtime.values import Array

SLOTS = [Slot("k", "nk", "float32", (ROWS, 3, GROWTH, 5)), Slot("v", "nv", "float16", (ROWS, 1, GROWTH, 7)),
         Slot("c", "nc", "int64", (ROWS, 4))]  # fmt: skip


def owner(array: Array) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


@pytest.mark.parametrize(("used", "blocks"), [(8, 1), (4, 1), (3, 3)])
def test_buffers_are_one_block_from_half_of_their_room_on(used: int, blocks: int) -> None:
    made = shared_state(SLOTS, 2, 8, used)
    assert [(each.shape, each.dtype.name) for each in made] == [
        ((2, 3, 8, 5), "float32"), ((2, 1, 8, 7), "float16"), ((2, 4), "int64")]  # fmt: skip
    assert len({owner(each) for each in made}) == blocks
    assert not any(each.any() for each in made)


def test_no_buffer_of_a_block_reaches_into_another() -> None:
    made = shared_state(SLOTS, 2, 9, 9)
    assert [each.ctypes.data % 64 for each in made] == [0, 0, 0]
    for number, each in enumerate(made, 1):
        assert each.flags.c_contiguous
        each[...] = number
    assert [(each == number).all() for number, each in enumerate(made, 1)] == [True, True, True]


def test_larger_buffers_have_what_was_written() -> None:
    made = shared_state(SLOTS[:2], 2, 4, 4)
    dice = np.random.default_rng(0)
    for each in made:
        each[...] = dice.normal(size=each.shape)
    for old, new in zip(made, grow(SLOTS[:2], made, 3, 8), strict=True):
        assert (new[:, :, :3] == old[:, :, :3]).all()
        assert not new[:, :, 3:].any()
