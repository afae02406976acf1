"""One emission: its prefix and its rows, and how it joins what is already there (standard, 3.6)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from genai_runtime.problem import ExecutionError
from genai_runtime.values import Array, Value, to_array

Mode = Literal["replace", "append", "event"]


@dataclass
class Received:
    """What one output, or one row of it, has received so far. checked: what its check of extents last looked at."""

    chunks: list[Array] = field(default_factory=list[Array])
    axis: int = 0
    events: list[Array] = field(default_factory=list[Array])
    checked: tuple[tuple[int, ...], int, int] | None = None

    def value(self) -> Array | None:
        """Everything published, as one array; None when nothing was."""
        if not self.chunks:
            return None
        return self.chunks[0] if len(self.chunks) == 1 else np.concatenate(self.chunks, axis=self.axis)

    def take(self, mode: Mode, value: Array, axis: int, origin: str) -> None:
        """Add one emission. Raises ExecutionError `emit-contract` for one that does not fit what is there."""
        if mode == "append" and self.chunks:
            if axis != self.axis and len(self.chunks) > 1:
                self.chunks = [np.concatenate(self.chunks, axis=self.axis)]
            _hold_extents(self.chunks[0], value, axis, origin)
            self.chunks.append(value)
            self.axis = axis
        else:
            self.chunks = [value]
        if mode == "event":
            self.events.append(value)


def hold_axis(output: str, array: Array, axis: int, origin: str) -> None:
    """An axis that the emit grows, cuts or splits on is one that the value has."""
    if axis >= array.ndim:
        what = f"output '{output}' is emitted along axis {axis}, and the value has rank {array.ndim}"
        raise ExecutionError("emit-contract", what, origin=origin)


def _hold_extents(first: Array, more: Array, axis: int, origin: str) -> None:
    """Emissions that are put together agree on every other axis."""
    known, new = list(first.shape), list(more.shape)
    if len(known) != len(new) or known[:axis] != new[:axis] or known[axis + 1 :] != new[axis + 1 :]:
        what = f"a value of shape {new} can't be appended along axis {axis} to one of shape {known}"
        raise ExecutionError("emit-contract", what, origin=origin)


def single(length: Value, origin: str) -> int:
    """The one entry that cuts a whole value. Raises ExecutionError `emit-length` for none."""
    array = to_array(length)
    if array.dtype.kind not in "iu":
        raise ExecutionError("emit-length", f"valid_length is {array.dtype}, no whole number", origin=origin)
    if not array.size:
        raise ExecutionError("emit-length", "valid_length has no element", origin=origin)
    return int(array.reshape(-1)[0])


def prefix(array: Array, length: int, axis: int, origin: str) -> Array:
    """The first `length` entries of an axis. Raises ExecutionError `emit-length` beyond it (standard, V336)."""
    if not 0 <= length <= array.shape[axis]:
        what = f"valid_length is {length}, the value has {array.shape[axis]} entries on axis {axis}"
        raise ExecutionError("emit-length", what, origin=origin)
    return array[(slice(None),) * axis + (slice(0, length),)]


def per_row(
    value: Value | None, count: int, what: str, origin: str, absent: bool | None
) -> Sequence[bool | int | None]:
    """A guard or length for each of `count` rows; one entry is for all, and `absent` stands for no value.

    Raises ExecutionError `emit-rows` for any other count of entries (standard, V336), type or rank.
    """
    if value is None:
        return [absent] * count
    array = to_array(value)
    if array.ndim > 1 or array.dtype.kind not in ("iu" if absent is None else "b"):
        wanted = "whole numbers" if absent is None else "bool"
        what = f"the {what} is {array.dtype} of rank {array.ndim}; it is {wanted}, one entry for all or one a row"
        raise ExecutionError("emit-rows", what, origin=origin)
    if array.size not in (1, count):
        raise ExecutionError("emit-rows", f"the {what} has {array.size} entries for {count} rows", origin=origin)
    entries: list[bool | int | None] = array.reshape(-1).tolist()
    return entries * count if array.size == 1 and count != 1 else entries
