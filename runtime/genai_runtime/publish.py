"""Publishing: what emits do with a value, event by event, and the outputs they add up to (standard, 3.6 and 3.7)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from genai_runtime.emission import Mode, Received, hold_axis, per_row, prefix, single
from genai_runtime.inputs import Dim, unify
from genai_runtime.policy import TokenPolicy
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.request import Audience, Event
from genai_runtime.result import Result
from genai_runtime.runtime_steps import executed
from genai_runtime.token_events import NarrowTokenEvent, TokenEvent
from genai_runtime.values import Array, Value, dtype_of, to_array

if TYPE_CHECKING:
    from genai_runtime.blocks import Blocks


@dataclass(frozen=True)
class Output:
    """A declared output. dims: extents, symbols, None for an axis that is never checked. value_range: of pictures."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    rowwise: bool = False
    row_axis: int | None = None
    row_factor: int = 1
    value_range: str = ""


_made: Any = tuple.__new__
"""Makes an event from its fields without the Python frame that a named tuple's own constructor costs."""


class Publisher:
    """Collects what a run publishes. `symbols` are the request's, shared with the binding of its inputs."""

    def __init__(self, outputs: Sequence[Output], symbols: dict[str, int]) -> None:
        self._outputs = {each.name: each for each in outputs}
        self._symbols = symbols
        self._aggregate: dict[str, Received] = {}
        self._rows: dict[str, list[Received]] = {}
        self._tokens: dict[str, list[list[int]]] = {}
        self._token_events: dict[str, type[TokenEvent]] = {}
        self.iterations = 0
        self.finish_reasons: dict[int, str] = {}
        self.runtime_steps = executed()
        self.drafts = (0, 0)

    def emit(
        self, output: str, mode: Mode, value: Value, axis: int, step: int, origin: str, length: Value | None = None
    ) -> Event:
        """Publish a whole value, or its first `length` entries on `axis`."""
        spec = self._outputs[output]
        array = to_array(value).copy()  # what is published belongs to the caller, not to the workflow
        free = axis if mode == "append" or length is not None else -1
        _hold_dtype(spec, value, origin)
        hold_axis(spec.name, array, free, origin)
        if length is not None:
            array = prefix(array, single(length, origin), axis, origin)
        self._check(spec, array, free, self._symbols, origin)
        self._aggregate.setdefault(output, Received()).take(mode, array, axis, origin)
        return Event(output, None, array, step)

    def emit_rows(
        self,
        output: str,
        mode: Mode,
        value: Value,
        axis: int,
        step: int,
        origin: str,
        when: Value | None = None,
        length: Value | None = None,
    ) -> Iterator[Event]:
        """Publish row by row: rows whose guard is false publish nothing and keep their slot."""
        spec, array = self._outputs[output], to_array(value)
        free = axis if mode == "append" or length is not None else -1
        _hold_dtype(spec, value, origin)
        hold_axis(spec.name, array, max(free, 0), origin)
        count = array.shape[0]
        guards = per_row(when, count, "guard", origin, True)
        lengths = per_row(length, count, "valid_length", origin, None)
        slots = self._rows.setdefault(output, [])
        slots.extend(Received() for _ in range(count - len(slots)))
        for row in range(count):
            if not guards[row]:
                continue
            part = array[row : row + 1].copy()
            if (kept := lengths[row]) is not None:
                part = prefix(part, int(kept), axis, origin)
            form = (part.shape, free, len(self._symbols))
            if slots[row].checked != form:  # the same extents under the same symbols fit again
                self._check(spec, part, free, self._row_symbols(spec), origin)
                slots[row].checked = form
            slots[row].take(mode, part, axis, origin)
            yield Event(output, row, part, step)

    def only_row(self, outputs: tuple[str, ...], tokens: Array, audience: Audience) -> list[int]:
        """The list that takes the only row's tokens as they are chosen, to be appended to each of `outputs`."""
        ids: list[int] = []
        audience.tokens = self._tokens = {output: [ids] for output in outputs}
        self._token_events = dict.fromkeys(outputs, TokenEvent if tokens.dtype == np.int64 else NarrowTokenEvent)
        return ids

    def only_token(self, output: str, token: int, step: int) -> Event:
        """The event of a token that is in that list."""
        event: Event = _made(self._token_events[output], (output, 0, token, step))
        return event

    def row_so_far(self, output: str, dtype: str, audience: Audience) -> list[int]:
        """The list that takes the only row's further tokens, integer [1, 1] each; it begins with those so far."""
        slots = self._rows.setdefault(output, [Received()])
        known = slots[0].value()
        ids: list[int] = [] if known is None else known.reshape(-1).tolist()
        self._tokens[output] = [ids]
        audience.tokens = self._tokens
        self._token_events[output] = TokenEvent if dtype == "int64" else NarrowTokenEvent
        return ids

    def no_token(self, output: str, length: int, step: int, origin: str) -> Event:
        """The event of a token that its valid length cuts off. Raises ExecutionError `emit-length` for any but 0."""
        array = prefix(np.zeros((1, 1), self._token_events[output].dtype), length, 1, origin)
        self._rows[output][0].take("append", array, 1, origin)
        return Event(output, 0, array, step)

    def row_ended(self, output: str) -> None:
        """The list holds all that the only row is given."""
        (ids,), slot = self._tokens[output], self._rows[output][0]
        if ids or slot.chunks:
            slot.chunks, slot.axis = [np.array([ids], dtype=self._token_events[output].dtype)], 1

    def token(self, output: str, row: int, tokens: Array, step: int) -> Event:
        """Append one row's token, integer [1, 1]: the emit of a token policy that the runtime supplies."""
        token = tokens.item(row)
        try:
            self._tokens[output][row].append(token)
        except KeyError:
            self._tokens[output] = [[] for _ in range(tokens.shape[0])]
            self._tokens[output][row].append(token)
            self._token_events[output] = TokenEvent if tokens.dtype == np.int64 else NarrowTokenEvent
        event: Event = _made(self._token_events[output], (output, row, token, step))
        return event

    def accepted(self, output: str, block: "Blocks", ids: list[int]) -> Event:
        """Append what a block accepted of its only row: the emit of a block body, cut to its accepted length."""
        dtype = block.dtype
        self._token_events[output] = TokenEvent if dtype == np.int64 else NarrowTokenEvent
        self._tokens.setdefault(output, [[]])[0].extend(ids)
        return Event(output, 0, np.array([ids], dtype=dtype), block.count - 1)

    def blocks(self, block: "Blocks", policy: TokenPolicy) -> None:
        """Note why the only row ended. Raises ExecutionError `committed-tokens` where what was published differs from
        what was committed (standard, V348)."""
        for output, rows in self._tokens.items():
            if rows != [block.committed]:
                what = f"{len(rows[0])} tokens were published and {len(block.committed)} committed, not the same ones"
                raise ExecutionError("committed-tokens", what, origin=f"output '{output}'")
        self.decoded(policy)
        self.iterations, self.drafts = block.count, (block.drafted, block.accepted)
        self.runtime_steps = executed(decode=1, block=block.count)

    def decoded(self, policy: TokenPolicy) -> None:
        """Note why each row of a token policy ended: `stop`, `context`, or `length` for those the bound ended."""
        reasons = policy.reasons
        self.runtime_steps = policy.executed
        self.finish_reasons = {row: reasons.get(row, "length") for row in range(policy.rows)}
        for output, rows in self._tokens.items():
            if not any(rows):
                continue
            dtype = self._token_events[output].dtype
            self._rows[output] = [Received([np.array([ids], dtype=dtype)] if ids else [], 1) for ids in rows]
        self.iterations = max((len(ids) for rows in self._tokens.values() for ids in rows), default=0)

    def finish(self) -> "Result":
        """Hold what has added up against the output contracts and hand it over."""
        for name, slot in self._aggregate.items():
            value = slot.value()
            if value is not None:
                self._check(self._outputs[name], value, -1, self._symbols, f"output '{name}'")
        for name, slots in self._rows.items():
            spec = self._outputs[name]
            for value in [held for slot in slots if (held := slot.value()) is not None]:
                self._check(spec, value, -1, self._row_symbols(spec), f"output '{name}'")
        return Result(
            {name: value for name, slot in self._aggregate.items() if (value := slot.value()) is not None},
            {name: [slot.value() for slot in slots] for name, slots in self._rows.items()},
            {name: list(slot.events) for name, slot in self._aggregate.items() if slot.events},
            {name: [list(slot.events) for slot in slots] for name, slots in self._rows.items()},
            self.iterations,
            dict(self.finish_reasons),
            self.runtime_steps,
            *self.drafts,
            picture_forms={
                each.name: (each.value_range, each.dims) for each in self._outputs.values() if each.value_range
            },
        )

    def _row_symbols(self, spec: Output) -> dict[str, int]:
        first = next((dim for dim in spec.dims if isinstance(dim, str)), None)
        others = {name: extent for name, extent in self._symbols.items() if name != first}
        return others if first is None else {**others, first: 1}

    @staticmethod
    def _check(spec: Output, array: Array, free: int, symbols: dict[str, int], origin: str) -> None:
        if array.ndim != len(spec.dims):
            what = f"output '{spec.name}' was given rank {array.ndim}, it declares {len(spec.dims)}"
            raise ExecutionError("emit-contract", what, origin=origin)
        dims = [None if axis == free else dim for axis, dim in enumerate(spec.dims)]
        try:
            unify(f"output '{spec.name}'", array.shape, dims, symbols, spec.row_axis, spec.row_factor)
        except RequestError as conflict:
            raise ExecutionError("emit-contract", conflict.what, origin=origin) from conflict


def _hold_dtype(spec: Output, value: Value, origin: str) -> None:
    """A graph that does not say what it gives may give anything."""
    found = dtype_of(value)
    if found != spec.dtype:
        what = f"output '{spec.name}' was given {found}, it declares {spec.dtype}"
        raise ExecutionError("emit-contract", what, origin=origin)
