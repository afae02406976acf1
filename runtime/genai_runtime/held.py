"""State cells of an authored workflow that one component updates in place: a buffer a cell, with room to grow.

The workflow says: past in, present out, carried. Where the compiler has proved that only the component itself sees
these values and that its attention operators write in place, the buffers stay bound and nothing is copied.

A buffer is longer than the cell it stands for, and holds what earlier runs left behind the valid entries. Both are kept
invisible. `extent` is the extent that the cells would have: the larger of what it was and the total length that the
operators take from their inputs; lengths that they would refuse beside such a cell are refused here. Behind its valid
entries a row of a cell is zero (onnxruntime, gqa_attention_base.h), so entries that a row skips are blanked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from genai_runtime import binding
from genai_runtime.cells import Cell, control, enter
from genai_runtime.problem import ExecutionError, GenaiError
from genai_runtime.sessions import Sessions
from genai_runtime.state import FIRST_ROOM, zeroed
from genai_runtime.steady import WORTH_BINDING, Bank, Promise, put_off
from genai_runtime.values import Array, Value, to_array, view


@dataclass(frozen=True)
class HeldSpec:
    """A group of cells and the component that updates them.

    pairs: (past port, present port) a cell. axis: the sequence axis of all. lengths: (kind, place among the other
    inputs). The maximum of the `width`s (last extent) and `sum`s (largest row sum) is the total length; row sums of
    `valid` are the valid entries a row; axis 1 of `new` is as long as the new tokens. inputs, outputs: the other ports.
    steady: results keep their extents, and two sets of tensors may take turns (steady.py).
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
    steady: bool = False

    def place(self, kind: str) -> int:
        """Where among the inputs the one source of a kind is."""
        return next(place for each, place in self.lengths if each == kind)


@dataclass(frozen=True)
class _Lengths:
    """What one run's inputs say: the total length, new tokens a row, and each row's valid entries after the run."""

    total: int
    new: int
    valid: list[int]


class Holder:
    """The session of a held group's component, ready to take cells over."""

    def __init__(self, sessions: Sessions, spec: HeldSpec) -> None:
        self._session, self._spec = sessions.session(spec.component), spec

    def hold(
        self,
        initials: Sequence[Value],
        steps: int,
        symbols: dict[str, int],
        adapted: Mapping[str, Value] | None = None,
    ) -> "Held":
        """Take the cells over for one loop.

        initials: their values at its entry. steps: iterations at most. adapted: graph inputs that stay the same, the
        factors of the request's adapters.
        """
        for cell, value in zip(self._spec.cells, initials, strict=True):
            enter(cell, value, symbols, self._spec.origin)
        return Held(self._session, self._spec, initials, steps, adapted or {})


class Held:
    """The cells of one request. Calling it runs the component: the other inputs in, the other outputs out."""

    def __init__(
        self, session: Any, spec: HeldSpec, initials: Sequence[Value], steps: int, adapted: Mapping[str, Value]
    ) -> None:
        self._session, self._spec, self._initials, self._adapted = session, spec, tuple(initials), adapted
        self.run = binding.run_bound(session, spec.origin)
        self._totals = tuple(each for each in spec.lengths if each[0] in ("width", "sum"))
        self._valid, self._new = spec.place("valid"), spec.place("new")
        self.extent = initials[0].shape()[spec.axis]
        self._sound = [self.extent] * initials[0].shape()[0]
        self._room, self._first, self._steps = 0, self.extent, steps
        self._buffers: list[Array] = []
        self._next = self._last = Bank(session, (), ())
        self._maximum: Value | None = None
        self._limit = 0
        self._latest = _Lengths(0, 0, [])

    def __call__(self, *values: Value) -> Sequence[Value]:
        lengths = self._lengths(values)
        self._check(lengths)
        if lengths.total > self._room or not self._buffers:
            self._make_room(lengths)
        self._blank(lengths)
        bank, self._next = self._next, self._last
        self._last = bank
        if bank.given != values:
            bank.give(values)
        try:
            self.run(bank.bound, None)
        except binding.RUN_FAILURES as failure:
            made = self._made_anew(bank, failure)
            self.extent, self._latest = max(self.extent, lengths.total), lengths
            return made
        self.extent, self._latest = max(self.extent, lengths.total), lengths
        return (bank.made or bank.keep()) if self._spec.steady else bank.hand_over()

    def bounded(self, maximum: Value, origin: str) -> None:
        """The cells' extent stays within its maximum (standard, 2.6)."""
        if maximum is not self._maximum:
            self._limit = int(control(self._spec.name, "maximum", maximum, origin).max())
            self._maximum = maximum
        if self.extent > self._limit:
            what = f"the cells of '{self._spec.name}' have extent {self.extent}, their maximum is {self._limit}"
            raise ExecutionError("recurrence", what, origin=origin)

    def sets(self) -> tuple[Bank, ...]:
        """As Steady.sets, for one row whose total length is a width, or the sum of its valid entries."""
        last, banks = self._latest, (self._next, self._last)
        known = all(kind == "width" or place == self._valid for kind, place in self._totals) and last.new != last.total
        one = self._spec.steady and known and len(last.valid) == 1 and binding.reads_bound(self._session)
        one = one and self._steps >= WORTH_BINDING
        return tuple(each for each in banks if one and (each.made or not self._spec.outputs))

    def follow(self, valid: int) -> None:
        """Before a run on a set: what the only row's valid entries ask for. All other lengths are as they were."""
        if valid > self.extent or valid - self._latest.new > self._sound[0]:
            summed = any(kind == "sum" for kind, _ in self._totals)
            lengths = replace(self._latest, valid=[valid], total=max(self._latest.total, valid if summed else 0))
            self._check(lengths)
            if lengths.total > self._room:
                self._enlarge(lengths)
                self._bind(self._next)
                self._bind(self._last)
            self._blank(lengths)
            self.extent = max(self.extent, lengths.total)
        self._sound = [valid]

    def failed(self, bank: Bank, failure: Exception, promised: Promise | None = None) -> Exception:
        """What a failed run on a set comes to, as of Steady."""
        try:
            made = self._made_anew(bank, failure)
            if promised is not None:
                promised(*made)
        except GenaiError as said:
            return said
        return self._failed(str(failure))

    def late(
        self,
        bank: Bank,
        failure: Exception,
        law: Promise,
        promised: Promise | None = None,
        read: Sequence[int] = (),
    ) -> Exception:
        """The same, where something more speaks of extents once the iteration ends, as of Steady."""
        again = partial(self._made_anew, bank, failure)
        return put_off(bank.made, again, (law, promised), failure, self._spec.origin, read)

    def _made_anew(self, bank: Bank, failure: Exception) -> Sequence[Value]:
        """Repeat a failed run, should only its results' extents be wrong; what is in place it writes again."""
        try:
            if bank.made:
                return bank.made_anew(self.run)
        except binding.RUN_FAILURES:
            pass
        raise self._failed(str(failure)) from failure

    def _lengths(self, values: Sequence[Value]) -> _Lengths:
        valid, total = self._row_sums(values[self._valid]), 0
        for kind, place in self._totals:
            if kind == "width":
                total = max(total, self._shape(values[place])[-1])
            else:
                sums = valid if place == self._valid else self._row_sums(values[place])
                total = max((total, *sums))
        return _Lengths(total, self._shape(values[self._new])[1], valid)

    def _row_sums(self, value: Value) -> list[int]:
        if len(self._shape(value)) > 2:
            raise self._odd(value)
        sums: list[int] = np.add.reduce(to_array(value), axis=-1).tolist()
        return sums

    def _shape(self, value: Value) -> Sequence[int]:
        """What has rows and entries; ONNX Runtime lets a graph give another rank than it declares."""
        shape = value.shape()
        if len(shape) < 2:
            raise self._odd(value)
        return shape

    def _odd(self, value: Value) -> ExecutionError:
        what = f"it takes lengths from tensors of rows and entries, and is given one {list(value.shape())}"
        return self._failed(what)

    def _check(self, lengths: _Lengths) -> None:
        """What the operators would say beside cells of exactly this extent; a buffer's room must not excuse it."""
        if self._initials:
            self._alike()
        total, longest = lengths.total, max(lengths.total, self.extent)
        if self.extent < total != self.extent + lengths.new:
            what = f"the total length is {total}, after {self.extent} entries and {lengths.new} new ones"
            raise self._failed(what)
        if max(lengths.valid, default=0) > longest:
            raise self._failed(f"{max(lengths.valid)} entries of a row are valid, there are {longest}")

    def _alike(self) -> None:
        seen = sorted({each.shape()[self._spec.axis] for each in self._initials})
        if len(seen) > 1:
            what = f"the cells of '{self._spec.name}' have the extents {seen} on axis {self._spec.axis}"
            raise ExecutionError("symbol-conflict", what, origin=self._spec.origin)

    def _blank(self, lengths: _Lengths) -> None:
        """Zero what a row is about to skip, and note up to where its buffer will be what the cell would be."""
        if lengths.new == lengths.total:  # a prompt: reads nothing of before, writes that many entries of every row
            self._sound = [lengths.new] * len(lengths.valid)
            return
        for row, (sound, valid) in enumerate(zip(self._sound, lengths.valid, strict=False)):
            if valid - lengths.new > sound:
                for buffer in self._buffers:
                    buffer[row, :, sound : valid - lengths.new] = 0
        self._sound = lengths.valid

    def _make_room(self, lengths: _Lengths) -> None:
        """Larger buffers with the tokens so far, bound as past and present at once."""
        self._enlarge(lengths)
        self._last = self._bank()
        self._next = self._bank() if self._spec.steady else self._last

    def _enlarge(self, lengths: _Lengths) -> None:
        axis, most = self._spec.axis, self._first + self._steps * lengths.new
        room = max(lengths.total, self.extent, min(most, max(2 * self._room, self.extent + FIRST_ROOM)))
        olds = self._buffers or [to_array(each) for each in self._initials]
        used = (slice(None),) * axis + (slice(0, self.extent),)
        forms = [((*old.shape[:axis], room, *old.shape[axis + 1 :]), old.dtype) for old in olds]
        self._buffers = zeroed(forms, 2 * lengths.total >= room)
        for old, new in zip(olds, self._buffers, strict=True):
            new[used] = old[used]
        self._initials, self._room = (), room

    def _bank(self) -> Bank:
        """What one run is bound to, the buffers as past and present at once."""
        bank = Bank(self._session, self._spec.inputs, self._spec.outputs)
        self._bind(bank)
        for port, value in self._adapted.items():
            bank.bound.bind_ortvalue_input(port, value)
        return bank

    def _bind(self, bank: Bank) -> None:
        for (past, present), buffer in zip(self._spec.pairs, self._buffers, strict=True):
            value = view(buffer)
            bank.bound.bind_ortvalue_input(past, value)
            bank.bound.bind_ortvalue_output(present, value)

    def _failed(self, what: str) -> ExecutionError:
        where = f"{self._spec.origin} (component '{self._spec.component}')"
        return ExecutionError("step-failed", what, origin=where)
