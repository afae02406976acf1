"""Publication: emits and the final outputs (metadata standard 3.6, 3.7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tests.reference.document import steps_below
from tests.reference.values import (
    Array,
    Document,
    Events,
    Published,
    ReferenceError,
    RowEvents,
    Rows,
    Scope,
    row_axis,
    whole_number,
    whole_numbers,
)

T = TypeVar("T")


@dataclass
class _Slot:
    """One place a mode acts on: the whole output, or one row of it."""

    latest: Array | None = None
    events: list[Array] = field(default_factory=list[Array])

    def put(self, mode: str, value: Array, axis: int) -> None:
        if mode == "event":
            self.events.append(value.copy())
        if mode != "append" or self.latest is None:
            self.latest = value.copy()
            return
        there, here = list(self.latest.shape), list(value.shape)
        there[axis] = here[axis] = 0
        if there != here:
            raise ReferenceError("emit", f"append of shape {value.shape} to {self.latest.shape}")
        self.latest = np.concatenate([self.latest, value], axis)


@dataclass
class Publisher:
    """Every output of one invocation as it grows."""

    declared: Document
    row_wise: frozenset[str]
    scope: Scope
    whole: dict[str, _Slot] = field(default_factory=dict[str, _Slot])
    rows: dict[str, list[_Slot]] = field(default_factory=dict[str, list[_Slot]])

    def emit(self, step: Document, env: Mapping[str, Array]) -> None:
        """Run one emit step against the values of its region."""
        if step["output"] in self.row_wise:
            self._emit_rows(step, env)
        else:
            self._emit_whole(step, env)

    def _emit_whole(self, step: Document, env: Mapping[str, Array]) -> None:
        name, value = step["output"], env[step["value"]]
        contract = self.declared[name]["contract"]
        if step.get("when") and not _guard(step["when"], env, 1)[0]:
            return
        axis, grows = _growth(step, value)
        if step.get("valid_length"):
            value = _prefix(value, whole_number(step["valid_length"], env[step["valid_length"]]), axis)
        self.scope.check(name, value, contract, skip=axis if grows else None)
        self.whole.setdefault(name, _Slot()).put(step["mode"], value, axis)

    def _emit_rows(self, step: Document, env: Mapping[str, Array]) -> None:
        name, value = step["output"], env[step["value"]]
        if value.ndim == 0:
            raise ReferenceError("emit", f"row-wise output {name!r} needs a row axis")
        axis, grows = _growth(step, value)
        count = value.shape[0]
        live = _guard(step["when"], env, count) if step.get("when") else [True] * count
        lengths: list[int] | None = None
        if step.get("valid_length"):
            lengths = _row_lengths(step["valid_length"], env[step["valid_length"]], live)
        slots = self.rows.setdefault(name, [])
        slots.extend(_Slot() for _ in range(count - len(slots)))
        for row in (row for row in range(count) if live[row]):
            part = value[row : row + 1]
            if lengths is not None:
                part = _prefix(part, lengths[row], axis)
            self._row_scope(name).check(name, part, self.declared[name]["contract"], skip=axis if grows else None)
            slots[row].put(step["mode"], part, axis)

    def _row_scope(self, name: str) -> Scope:
        """The package scope as one row sees it: the first symbol of the shape is that row alone."""
        scope = self.scope.copy()
        shape = self.declared[name]["contract"].get("shape") or []
        for dim in [dim for dim in shape if isinstance(dim, str)][:1]:
            scope.bound[dim] = 1
        return scope

    def finish(self) -> dict[str, Published]:
        """What the invocation published; an output never emitted is missing (standard 3.7)."""
        published: dict[str, Published] = {}
        for name, slot in self.whole.items():
            if slot.latest is not None:
                self.scope.check(name, slot.latest, self.declared[name]["contract"])
                published[name] = Events(tuple(slot.events), slot.latest) if slot.events else slot.latest
        for name, slots in self.rows.items():
            for slot in slots:
                if slot.latest is not None:
                    self._row_scope(name).check(name, slot.latest, self.declared[name]["contract"])
            latest = tuple(slot.latest for slot in slots)
            if any(slot.events for slot in slots):
                published[name] = RowEvents(tuple(tuple(slot.events) for slot in slots), latest)
            else:
                published[name] = Rows(latest)
        return published


def publisher(workflow: Document, scope: Scope) -> Publisher:
    """A publisher for a workflow; row-wise or not is settled per output over the whole step tree."""
    limited = {
        step["output"]
        for step in steps_below(workflow["steps"])
        if step["kind"] == "emit" and (step.get("when") or step.get("valid_length"))
    }
    declared: Document = workflow.get("outputs") or {}
    rows = {name for name in limited if row_axis(declared[name]["contract"]) is not None}
    return Publisher(declared, frozenset(rows), scope)


def _growth(step: Document, value: Array) -> tuple[int, bool]:
    axis = step.get("axis")
    axis = max(value.ndim - 1, 0) if axis is None else int(axis)
    grows = step["mode"] == "append" or bool(step.get("valid_length"))
    if grows and axis >= value.ndim:
        raise ReferenceError("emit", f"axis {axis} of a value of rank {value.ndim}")
    return axis, grows


def _prefix(value: Array, length: int, axis: int) -> Array:
    if length > value.shape[axis]:
        raise ReferenceError("emit", f"valid_length {length} exceeds extent {value.shape[axis]}")
    return value[(slice(None),) * axis + (slice(0, length),)]


def _row_lengths(name: str, value: Array, live: list[bool]) -> list[int]:
    """One length a row. A row whose guard is false publishes nothing, so its length is not looked at (3.6)."""
    entries = np.array(_per_row(name, list(value.reshape(-1)), len(live)))
    whole_numbers(name, entries[np.array(live, np.bool_)] if any(live) else entries[:0].astype(np.int64))
    return [int(entry) for entry in entries]


def _guard(name: str, env: Mapping[str, Array], count: int) -> list[bool]:
    value = env[name]
    if value.dtype != np.bool_ or value.ndim > 1:
        raise ReferenceError("emit", f"guard {name!r} is no bool scalar or vector")
    return _per_row(name, [bool(entry) for entry in value.reshape(-1)], count)


def _per_row(name: str, entries: list[T], count: int) -> list[T]:
    if len(entries) not in (1, count):
        raise ReferenceError("emit", f"row control {name!r} has {len(entries)} entries for {count} rows")
    return entries if len(entries) == count else entries * count
