"""State cells of an authored workflow that one component updates in place: a buffer a cell, with room to grow.

The workflow says: past in, present out, carried. Where the compiler has proved that only the component itself sees
these values and that its attention operators write in place, the buffers stay bound and nothing is copied from step to
step. `extent` is what the cells' extent on the sequence axis would be: the larger of what it was and the total length
that the operators take from their inputs (see the compiler's read/total_length.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_runtime import binding
from genai_runtime.cells import Cell, enter
from genai_runtime.problem import ExecutionError
from genai_runtime.sessions import Sessions
from genai_runtime.state import FIRST_ROOM
from genai_runtime.values import Array, Value, to_array, view


@dataclass(frozen=True)
class HeldSpec:
    """A group of cells and the component that updates them.

    pairs: (past port, present port) a cell. axis: the sequence axis of all. lengths: (`width` | `sum`, place among the
    other inputs): the sources whose maximum is the total length. inputs, outputs: the other ports.
    """

    name: str
    component: str
    cells: tuple[Cell, ...]
    pairs: tuple[tuple[str, str], ...]
    axis: int
    lengths: tuple[tuple[str, int], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    origin: str


class Holder:
    """The session of a held group's component, ready to take cells over."""

    def __init__(self, sessions: Sessions, spec: HeldSpec) -> None:
        self._session, self._spec = sessions.session(spec.component), spec

    def hold(self, initials: Sequence[Value], steps: int, symbols: dict[str, int]) -> "Held":
        """Take the cells over for one loop. initials: their values at its entry. steps: iterations at most."""
        for cell, value in zip(self._spec.cells, initials, strict=True):
            enter(cell, value, symbols, self._spec.origin)
        return Held(self._session, self._spec, initials, steps)


class Held:
    """The cells of one request. Calling it runs the component: the other inputs in, the other outputs out."""

    def __init__(self, session: Any, spec: HeldSpec, initials: Sequence[Value], steps: int) -> None:
        self._session, self._spec, self._initials = session, spec, tuple(initials)
        self._run = binding.run_bound(session)
        self.extent = initials[0].shape()[spec.axis]
        self._room, self._most = 0, self.extent + steps
        self._buffers: list[Array] = []

    def __call__(self, *values: Value) -> Sequence[Value]:
        total = max(_length(kind, values[place]) for kind, place in self._spec.lengths)
        if total > self._room:
            self._make_room(total)
        bound, spec = self._bound, self._spec
        for port, value in zip(spec.inputs, values, strict=True):
            bound.bind_ortvalue_input(port, value)
        for port in spec.outputs:
            bound.bind_output(port, binding.CPU)
        try:
            self._run(bound, None)
        except binding.RUN_FAILURES as failure:
            where = f"{spec.origin} (component '{spec.component}')"
            raise ExecutionError("step-failed", str(failure), origin=where) from failure
        self.extent = max(self.extent, total)
        made = bound.get_outputs()
        return [made[len(spec.pairs) + at] for at in range(len(spec.outputs))]

    def bounded(self, maximum: Value, origin: str) -> None:
        """The cells' extent stays within its maximum (standard, 2.6)."""
        limit = int(to_array(maximum).max())
        if self.extent > limit:
            what = f"the cells of '{self._spec.name}' have extent {self.extent}, their maximum is {limit}"
            raise ExecutionError("recurrence", what, origin=origin)

    def _make_room(self, total: int) -> None:
        """Larger buffers with the tokens so far, bound as past and present at once."""
        axis = self._spec.axis
        room = max(total, min(self._most, max(2 * self._room, self.extent + FIRST_ROOM)))
        olds = self._buffers or [to_array(each) for each in self._initials]
        used = (slice(None),) * axis + (slice(0, min(self.extent, olds[0].shape[axis])),)
        self._buffers = [_larger(old, axis, room, used) for old in olds]
        self._initials = ()
        self._room, self._bound = room, binding.new_bindings(self._session)
        for (past, present), buffer in zip(self._spec.pairs, self._buffers, strict=True):
            value = view(buffer)
            self._bound.bind_ortvalue_input(past, value)
            self._bound.bind_ortvalue_output(present, value)


def _larger(old: Array, axis: int, room: int, used: tuple[slice, ...]) -> Array:
    made = np.zeros((*old.shape[:axis], room, *old.shape[axis + 1 :]), dtype=old.dtype)
    made[used] = old[used]
    return made


def _length(kind: str, value: Value) -> int:
    if kind == "width":
        return value.shape()[-1]
    sums = to_array(value).sum(axis=-1)
    return int(sums.max()) if sums.size else 0
