"""Publishing: what emits do with a value, event by event, and the outputs they add up to (standard, 3.6 and 3.7)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from genai_runtime.blocks import Blocks
from genai_runtime.inputs import Dim, unify
from genai_runtime.media import Audio, Media, encode, pick
from genai_runtime.pictures import as_pictures
from genai_runtime.policy import TokenPolicy
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.profiles import profile_named
from genai_runtime.request import Audience, Event
from genai_runtime.runtime_steps import executed
from genai_runtime.values import Array, Value, to_array

if TYPE_CHECKING:
    from genai_runtime.profiles import Computed, Profile

Mode = Literal["replace", "append", "event"]


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


@dataclass
class _Slot:
    """What one output, or one row of it, has received so far."""

    chunks: list[Array] = field(default_factory=list[Array])
    axis: int = 0
    events: list[Array] = field(default_factory=list[Array])

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


class TokenEvent(Event):
    """One token, integer [1, 1], kept as a number until somebody asks for its array: a generation never does."""

    __slots__ = ()
    dtype: ClassVar[type[np.generic]] = np.int64

    @property
    def value(self) -> Array:
        """The token as an array."""
        return np.array([[self[2]]], dtype=self.dtype)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.output, self.row, self.value, self.step))


class NarrowTokenEvent(TokenEvent):
    """A token of a package whose ids are int32."""

    __slots__ = ()
    dtype = np.int32


_made: Any = tuple.__new__
"""Makes an event from its fields without the Python frame that a named tuple's own constructor costs."""


class Publisher:
    """Collects what a run publishes. `symbols` are the request's, shared with the binding of its inputs."""

    def __init__(self, outputs: Sequence[Output], symbols: dict[str, int]) -> None:
        self._outputs = {each.name: each for each in outputs}
        self._symbols = symbols
        self._aggregate: dict[str, _Slot] = {}
        self._rows: dict[str, list[_Slot]] = {}
        self._tokens: dict[str, list[list[int]]] = {}
        self._token_event: type[TokenEvent] = TokenEvent
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
        _hold_axis(spec.name, array, free, origin)
        if length is not None:
            array = _prefix(array, _single(length, origin), axis, origin)
        self._check(spec, array, free, self._symbols, origin)
        self._aggregate.setdefault(output, _Slot()).take(mode, array, axis, origin)
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
        _hold_axis(spec.name, array, max(free, 0), origin)
        count = array.shape[0]
        guards = _per_row(when, count, "guard", origin, True)
        lengths = _per_row(length, count, "valid_length", origin, None)
        slots = self._rows.setdefault(output, [])
        slots.extend(_Slot() for _ in range(count - len(slots)))
        for row in range(count):
            if not guards[row]:
                continue
            part = array[row : row + 1].copy()
            if (kept := lengths[row]) is not None:
                part = _prefix(part, int(kept), axis, origin)
            self._check(spec, part, free, self._row_symbols(spec), origin)
            slots[row].take(mode, part, axis, origin)
            yield Event(output, row, part, step)

    def only_row(self, outputs: tuple[str, ...], tokens: Array, audience: Audience) -> list[int]:
        """The list that takes the only row's tokens as they are chosen, to be appended to each of `outputs`."""
        ids: list[int] = []
        audience.tokens = self._tokens = {output: [ids] for output in outputs}
        self._token_event = TokenEvent if tokens.dtype == np.int64 else NarrowTokenEvent
        return ids

    def only_token(self, output: str, token: int, step: int) -> Event:
        """The event of a token that is in that list."""
        event: Event = _made(self._token_event, (output, 0, token, step))
        return event

    def token(self, output: str, row: int, tokens: Array, step: int) -> Event:
        """Append one row's token, integer [1, 1]: the emit of a token policy that the runtime supplies."""
        token = tokens.item(row)
        try:
            self._tokens[output][row].append(token)
        except KeyError:
            self._tokens[output] = [[] for _ in range(tokens.shape[0])]
            self._tokens[output][row].append(token)
            self._token_event = TokenEvent if tokens.dtype == np.int64 else NarrowTokenEvent
        event: Event = _made(self._token_event, (output, row, token, step))
        return event

    def accepted(self, output: str, block: Blocks, ids: list[int]) -> Event:
        """Append what a block accepted of its only row: the emit of a block body, cut to its accepted length."""
        dtype = block.dtype
        self._token_event = TokenEvent if dtype == np.int64 else NarrowTokenEvent
        self._tokens.setdefault(output, [[]])[0].extend(ids)
        return Event(output, 0, np.array([ids], dtype=dtype), block.count - 1)

    def blocks(self, block: Blocks, policy: TokenPolicy) -> None:
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
        dtype = self._token_event.dtype
        for output, rows in self._tokens.items():
            if not any(rows):
                continue
            self._rows[output] = [_Slot([np.array([ids], dtype=dtype)] if ids else [], 1) for ids in rows]
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


@dataclass(frozen=True)
class Result:
    """The outcome of one invocation. `result[name]` is an aggregate output; rows and events have calls of their own.

    runtime_steps: contract -> how often the runtime supplied that step (standard, 4.3): all 0 where graphs decide.
    drafted, accepted: tokens that a proposer guessed, and those of them that stayed.
    """

    aggregate: dict[str, Array]
    row_slots: dict[str, list[Array | None]]
    event_lists: dict[str, list[Array]]
    row_event_lists: dict[str, list[list[Array]]]
    iterations: int
    finish_reasons: dict[int, str]
    runtime_steps: dict[str, int] = field(default_factory=dict[str, int])
    drafted: int = 0
    accepted: int = 0
    picture_forms: dict[str, tuple[str, tuple[Dim, ...]]] = field(
        default_factory=dict[str, tuple[str, tuple[Dim, ...]]]
    )
    media: Mapping[str, Media] = field(default_factory=dict[str, Media])
    profiles: "Mapping[str, Profile]" = field(default_factory=dict[str, "Profile"], repr=False, compare=False)

    def profile(self, name: str) -> "Computed":
        """A task profile over these outputs: pooled float32, a text a row, or the outputs as they are (standard, 1.9).

        Raises RequestError `no-profile`, ExecutionError `profile-output`, `profile-lengths` (see profiles.Profile.of).
        """
        return profile_named(self.profiles, name).of(self)

    def __getitem__(self, output: str) -> Array:
        """The aggregate output, or the only row of a row-wise one. KeyError when nothing was published."""
        if output in self.aggregate:
            return self.aggregate[output]
        rows = self.row_slots.get(output, [])
        if len(rows) == 1 and rows[0] is not None:
            return rows[0]
        raise KeyError(output)

    def __contains__(self, output: object) -> bool:
        return output in self.aggregate or output in self.row_slots

    def rows(self, output: str) -> list[Array | None]:
        """A row-wise output: one [1, ...] array a row, None for a row that published nothing."""
        return self.row_slots[output]

    def images(self, output: str) -> list[Array]:
        """The pictures of an output of role `image`: uint8 [height, width, channels] each (standard, 11).

        Raises RequestError `no-pictures`; KeyError when nothing was published.
        """
        if output not in self.picture_forms:
            what = f"output '{output}' holds no pictures"
            raise RequestError("no-pictures", what, help=f"outputs that do: {', '.join(self.picture_forms) or 'none'}")
        value_range, dims = self.picture_forms[output]
        given = self.row_slots[output] if output in self.row_slots else [self.aggregate[output]]
        return [each for array in given if array is not None for each in as_pictures(array, value_range, dims)]

    def events(self, output: str) -> list[Array]:
        """What event emits published, in order."""
        return self.event_lists.get(output, [])

    def row_events(self, output: str) -> list[list[Array]]:
        """What event emits published row by row: for each row its [1, ...] arrays in order (standard, 3.6)."""
        return self.row_event_lists.get(output, [])

    def audio(self, output: str | None = None, row: int | None = None) -> Audio:
        """An output with `media` as the bytes that the document asks for: samples resampled and encoded, or a finished
        file, held against what the document says (standard, section 11).

        output: may be left out where one output is a sound. row: which sound of several. Raises RequestError
        `no-audio`, `ambiguous-audio`, `no-such-row`; ExecutionError `audio-rows`, `audio-shape`, `audio-header`.
        """
        media = pick(self.media, output)
        value = self._sound(media.output, row)
        if value is None:
            raise RequestError("no-audio", f"the run published nothing to output '{media.output}'")
        return encode(media, value)

    def _sound(self, output: str, row: int | None) -> Array | None:
        """All that was published to an output (parts of an event output put together), or a row of it."""
        slots = self.row_slots.get(output)
        if slots is not None:
            events = self.row_event_lists.get(output, [[]] * len(slots))
            rows = [_joined(parts, whole) for parts, whole in zip(events, slots, strict=True)]
        else:
            whole = _joined(self.event_lists.get(output, []), self.aggregate.get(output))
            if row is None or whole is None:
                return whole
            rows = [whole[at : at + 1] for at in range(whole.shape[0])]
        if row is None and len(rows) > 1:
            what = f"output '{output}' holds {len(rows)} sounds, and a file holds one"
            raise ExecutionError("audio-rows", what, help="take them one by one: audio(name, row=0)")
        if not 0 <= (row or 0) < len(rows):
            raise RequestError("no-such-row", f"output '{output}' has {len(rows)} rows, none is number {row}")
        return rows[row or 0]


def _joined(parts: list[Array], whole: Array | None) -> Array | None:
    """Events one behind the other in time, else what was published otherwise."""
    return np.concatenate(parts, axis=-1) if parts else whole


def _hold_axis(output: str, array: Array, axis: int, origin: str) -> None:
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


def _single(length: Value, origin: str) -> int:
    array = to_array(length)
    if not array.size:
        raise ExecutionError("emit-length", "valid_length has no element", origin=origin)
    return int(array.reshape(-1)[0])


def _prefix(array: Array, length: int, axis: int, origin: str) -> Array:
    if not 0 <= length <= array.shape[axis]:
        what = f"valid_length is {length}, the value has {array.shape[axis]} entries on axis {axis}"
        raise ExecutionError("emit-length", what, origin=origin)
    return array[(slice(None),) * axis + (slice(0, length),)]


def _per_row(
    value: Value | None, count: int, what: str, origin: str, absent: bool | None
) -> Sequence[bool | int | None]:
    if value is None:
        return [absent] * count
    array = to_array(value).reshape(-1)
    if array.size not in (1, count):
        raise ExecutionError("emit-rows", f"the {what} has {array.size} entries for {count} rows", origin=origin)
    entries: list[bool | int | None] = array.tolist()
    return entries * count if array.size == 1 and count != 1 else entries
