"""Storage of a decoder's state: empty tensors to grow from, and shared buffers with room to grow into."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import DTypeLike

from genai_runtime import binding
from genai_runtime.problem import RequestError
from genai_runtime.values import NUMPY, Array, Value

ROWS, GROWTH, PAGES = -1, -2, -3
"""Marks in a slot's dims: the axis of request rows, one that holds an entry a token, one that holds pages of tokens."""

FIRST_ROOM = 512
"""Tokens of room a shared buffer starts with beyond the prompt, when the request may need more."""

UNHELD: tuple[type[Exception], ...] = (MemoryError, ValueError)
"""What numpy raises for more than there is, and for more than can be addressed."""
UNMADE: tuple[type[Exception], ...] = (*UNHELD, *binding.RUN_FAILURES)
"""The same of numpy and ONNX Runtime."""

ALIGNED = 64
"""Bytes: where a buffer begins, a line of the cache as in ONNX Runtime's own allocator."""


@dataclass(frozen=True)
class Slot:
    """One state tensor: fed at `past`, read at `present`. dims: numbers, ROWS, GROWTH, PAGES.

    once: what the first run gives is fed ever after, and no later run is asked for it.
    """

    past: str
    present: str
    dtype: str
    dims: tuple[int, ...]
    once: bool = False


@dataclass(frozen=True)
class Room:
    """How many tokens a buffer holds now (`first`) and may have to hold (`most`); fixed: the graph's own capacity."""

    prompt: int
    most: int
    fixed: int | None = None
    now: int = 0

    @property
    def first(self) -> int:
        """Tokens the buffer has room for."""
        return self.fixed or self.now or max(self.prompt + 1, min(self.most, self.prompt + FIRST_ROOM))

    def larger(self) -> "Room":
        """Twice the room, within what the request can need."""
        return replace(self, now=max(self.first + 1, min(self.most, 2 * self.first)))


@dataclass(frozen=True)
class Lengths:
    """Ports in a mask's place. last: each row's last position, int32 [rows]; width: the mask's would-be width, [1]."""

    last: str
    width: str


def shape_of(slot: Slot, rows: int, length: int, pages: int = 0) -> tuple[int, ...]:
    """A slot's shape with so many rows, tokens, and pages of all rows."""
    extents = {ROWS: rows, GROWTH: length, PAGES: pages}
    return tuple(extents.get(dim, dim) for dim in slot.dims)


def empty_state(slots: Sequence[Slot], rows: int) -> list[Value]:
    """Tensors of no tokens: what the first run of a growing state takes as past (fixed-size state starts as zeros).

    Raises RequestError `state-memory`.
    """
    try:
        return [_empty(slot, shape_of(slot, rows, 0)) for slot in slots]
    except UNMADE as failure:
        count = sum(_bytes(slot, rows, 0) for slot in slots)
        raise _unheld(f"the state of {rows} rows takes", count) from failure


def shared_state(slots: Sequence[Slot], rows: int, room: int, used: int) -> list[Array]:
    """Zeroed buffers with `room` tokens each, of which `used` will be used. Raises RequestError `state-memory`."""
    try:
        return zeroed([(shape_of(slot, rows, room), NUMPY[slot.dtype]) for slot in slots], 2 * used >= room)
    except UNHELD as failure:
        count = sum(_bytes(slot, rows, room) for slot in slots)
        raise _unheld(f"the state of {rows} rows x {room} tokens takes", count) from failure


def zeroed_scores(rows: int, vocabulary: int) -> Array:
    """float32 [rows, vocabulary]. Raises RequestError `state-memory`."""
    try:
        return np.zeros((rows, vocabulary), dtype=np.float32)
    except UNHELD as failure:
        raise _unheld(f"the scores of {rows} rows x {vocabulary} tokens take", 4 * rows * vocabulary) from failure


def zeroed(forms: Sequence[tuple[tuple[int, ...], DTypeLike]], together: bool) -> list[Array]:
    """Arrays of zeros. together: in one block, for buffers of which at least half is going to be used.

    numpy asks the system for huge pages from 4 MB on, and attention over long texts then waits less for address
    translation. A block that stays empty for the most part would be committed for nothing: buffers apart are committed
    as they are written.
    """
    if not together:
        return [np.zeros(shape, dtype) for shape, dtype in forms]
    sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in forms]
    starts = [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]
    block = np.zeros(starts[-1] + ALIGNED, np.uint8)
    block = block[-block.ctypes.data % ALIGNED :]
    parts = zip(forms, starts, sizes, strict=False)
    return [block[start : start + size].view(dtype).reshape(shape) for (shape, dtype), start, size in parts]


def grow(slots: Sequence[Slot], state: Sequence[Array], used: int, room: int) -> list[Array]:
    """Larger buffers with the first `used` tokens copied over."""
    larger = shared_state(slots, state[0].shape[slots[0].dims.index(ROWS)], room, used)
    for slot, old, new in zip(slots, state, larger, strict=True):
        kept = tuple(slice(0, used) if dim == GROWTH else slice(None) for dim in slot.dims)
        new[kept] = old[kept]
    return larger


def _empty(slot: Slot, shape: tuple[int, ...]) -> Value:
    value = binding.allocate(shape, slot.dtype)
    if GROWTH not in slot.dims:
        binding.write(value, np.zeros(shape, dtype=NUMPY[slot.dtype]))
    return value


def _bytes(slot: Slot, rows: int, room: int) -> int:
    return math.prod(shape_of(slot, rows, room)) * np.dtype(NUMPY[slot.dtype]).itemsize


def _unheld(taking: str, count: int) -> RequestError:
    what = f"{taking} {count / 1e6:.0f} MB, which this process can't have"
    return RequestError("state-memory", what, help="ask for fewer new tokens (max_new_tokens) or rows")
