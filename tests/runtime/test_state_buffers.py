"""Where a request's shared buffers lie: in one block where most is going to be used, else apart; what a step makes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_runtime import RequestError, binding
from genai_runtime.shifted import Strip
from genai_runtime.state import GROWTH, ROWS, Slot, empty_state, grow, shared_state, zeroed_scores
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


@pytest.mark.parametrize(
    ("case", "made"),
    [("tiny-gqa-v1", 0), ("tiny-stages-v1", 0), ("tiny-encoder-decoder-v1", 0), ("tiny-concat-v1", 1),
     ("tiny-shifted-v1", 0), ("tiny-vision-stages-v1", 0)],
)  # fmt: skip
def test_tensors_that_a_step_makes(
    case: str, made: int, compiled: Callable[[str], tuple[Path, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None for state in place, an encoder's caches, where columns move, and for tokens that become embeddings first;
    where operators append, the mask that is longer, and the run's own results.
    """
    count = 0

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*values: Any) -> Any:
            nonlocal count
            count += 1
            return make(*values)

        return counting

    for name in ("over", "allocate", "allocate_like"):
        monkeypatch.setattr(binding, name, counted(getattr(binding, name)))
    counts = []
    with genai_runtime.load(compiled(case)[0], threads=1) as model:
        for steps in (8, 18):
            count = 0
            made_now = model.generate([1, 10, 20], max_new_tokens=steps, stop_on_eos=False, temperature=0)
            assert len(made_now.tokens) == steps
            counts.append(count)
    assert counts[1] - counts[0] == 10 * made


@pytest.mark.parametrize("extent", [1 << 44, 1 << 62, (1 << 63) - 1])
def test_what_no_machine_holds_is_told_in_its_own_terms(extent: int) -> None:
    """A graph may state any extent: numpy raises one error for what there is not, another for what has no address."""
    grows, fixed = Slot("past", "present", "float32", (ROWS, 1, GROWTH, 8)), Slot("p", "q", "float32", (ROWS, extent))
    made: list[tuple[Callable[[], object], int]] = [
        (lambda: shared_state([grows], 3, extent, 1), 3 * extent * 8 * 4),
        (lambda: shared_state([grows], 3, extent, extent), 3 * extent * 8 * 4),
        (lambda: empty_state([fixed], 3), 3 * extent * 4),
        (lambda: zeroed_scores(3, extent), 3 * extent * 4),
        (lambda: Strip(grows, 4, extent, 0), (4 + extent) * 8 * 4),
    ]
    for make, count in made:
        with pytest.raises(RequestError, match=f"{count / 1e6:.0f} MB") as caught:
            make()
        assert caught.value.code == "state-memory"
