"""Storage of a decoder's state: empty tensors to grow from, and shared buffers with room to grow into."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from genai_runtime import binding
from genai_runtime.problem import RequestError
from genai_runtime.values import NUMPY, Array, Value

ROWS, GROWTH, PAGES = -1, -2, -3
"""Marks in a slot's dims: the axis of request rows, one that holds an entry a token, one that holds pages of tokens."""

FIRST_ROOM = 512
"""Tokens of room a shared buffer starts with beyond the prompt, when the request may need more."""


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
    """Tensors of no tokens: what the first run of a growing state takes as past (fixed-size state starts as zeros)."""
    values: list[Value] = []
    for slot in slots:
        value = binding.allocate(shape_of(slot, rows, 0), slot.dtype)
        if GROWTH not in slot.dims:
            binding.write(value, np.zeros(shape_of(slot, rows, 0), dtype=NUMPY[slot.dtype]))
        values.append(value)
    return values


def shared_state(slots: Sequence[Slot], rows: int, room: int) -> list[Array]:
    """Zeroed buffers with `room` tokens each. The system commits their pages as they are first written."""
    try:
        return [np.zeros(shape_of(slot, rows, room), dtype=NUMPY[slot.dtype]) for slot in slots]
    except MemoryError as failure:
        count = sum(_bytes(slot, rows, room) for slot in slots)
        what = f"the state of {rows} rows x {room} tokens takes {count / 1e6:.0f} MB, which this process can't have"
        raise RequestError("state-memory", what, help="ask for fewer new tokens (max_new_tokens) or rows") from failure


def grow(slots: Sequence[Slot], state: Sequence[Array], used: int, room: int) -> list[Array]:
    """Larger buffers with the first `used` tokens copied over."""
    larger = shared_state(slots, state[0].shape[slots[0].dims.index(ROWS)], room)
    for slot, old, new in zip(slots, state, larger, strict=True):
        kept = tuple(slice(0, used) if dim == GROWTH else slice(None) for dim in slot.dims)
        new[kept] = old[kept]
    return larger


def _bytes(slot: Slot, rows: int, room: int) -> int:
    return int(np.prod(shape_of(slot, rows, room), dtype=np.int64)) * np.dtype(NUMPY[slot.dtype]).itemsize
