"""Driving a decoder whose step the workflow leaves to the runtime: state, mask, positions (standard, 10.3).

Rows are right-padded and each is read at its own last position. A `shared-buffer` state is bound once: every session run
writes the new keys and values in place, and a step is three stores and one run. A `growing` state goes from run to run as
the tensors that the session itself allocates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_runtime import binding
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.request import Request
from genai_runtime.sample import to_float32
from genai_runtime.sessions import Sessions
from genai_runtime.state import Room, Slot, empty_state, grow, shared_state
from genai_runtime.values import NUMPY, Array, Value, to_array, view


@dataclass(frozen=True)
class Mask:
    """The attention-mask port. columns: each column counts (else only sums and width); fixed: its width may stay capacity."""

    port: str
    dtype: str
    columns: bool
    fixed: bool


@dataclass(frozen=True)
class DecoderSpec:
    """The decoder's ports and the shape of its state, all taken from the graph at compile time."""

    component: str
    origin: str
    tokens: str
    token_dtype: str
    logits: str
    logits_dtype: str
    mask: Mask | None
    positions: tuple[str, str] | None
    slots: tuple[Slot, ...]
    shared: bool
    capacity: int | None
    ragged: bool
    vocab_size: int


class Decoder:
    """A decoder's session, ready to start requests."""

    def __init__(self, sessions: Sessions, spec: DecoderSpec) -> None:
        self.spec = spec
        self.session = sessions.session(spec.component)

    def start(
        self, tokens: Value, request: Request, limit: int, extras: Mapping[str, Value] | None = None
    ) -> "Decoding":
        """State for one request. tokens: integer [rows, longest prompt], right-padded; limit: new tokens at most."""
        ids, lengths, context = to_array(tokens), request.prompt_lengths, request.context_length
        if not ids.size:
            raise RequestError("empty-prompt", "the prompt has no tokens", help="give at least one token a row")
        valid = np.asarray(lengths if lengths is not None else (ids.shape[1],) * ids.shape[0], dtype=np.int64)
        if not self.spec.ragged and (valid != ids.shape[1]).any():
            what = "this decoder has no way to tell rows of different length apart"
            raise RequestError("ragged-rows", what, help="run the rows one by one")
        return (SharedDecoding if self.spec.shared else GrowingDecoding)(self, ids, valid, limit, context, extras or {})


class Decoding:
    """One request in flight. `logits` is float32 [rows, vocab], `tokens` [rows, 1] what the next `advance` feeds."""

    def __init__(
        self, decoder: Decoder, ids: Array, lengths: Array, limit: int, context: int, extras: Mapping[str, Value]
    ) -> None:
        spec, self.extras = decoder.spec, extras
        self.spec, self.session = spec, decoder.session
        self.rows, self.width = ids.shape
        self.ids, self.lengths = np.ascontiguousarray(ids.astype(NUMPY[spec.token_dtype])), lengths
        longest = int(lengths.max())
        self.room = Room(longest, min(longest + limit, spec.capacity or context or longest + limit), spec.capacity)
        self.tokens = np.zeros((self.rows, 1), dtype=NUMPY[spec.token_dtype])
        self.positions = self.lengths.reshape(-1, 1).astype(NUMPY[spec.positions[1]] if spec.positions else np.int64)
        self.filled = self.width
        self.logits: Array
        self._alive: list[Array] = []

    def prompt(self) -> None:
        """Run the whole prompt; `logits` then holds each row's own last position."""
        raise NotImplementedError

    def advance(self) -> None:
        """Feed `tokens`, one a row; `logits` then holds what follows them."""
        raise NotImplementedError

    def _prompt_feeds(self) -> dict[str, Array]:
        spec = self.spec
        valid = np.arange(self.width) < self.lengths.reshape(-1, 1)
        feeds = {spec.tokens: self.ids}
        if spec.mask is not None:
            feeds[spec.mask.port] = np.ascontiguousarray(valid.astype(NUMPY[spec.mask.dtype]))
        if spec.positions is not None:
            port, dtype = spec.positions
            feeds[port] = np.ascontiguousarray(np.where(valid, np.arange(self.width), 0).astype(NUMPY[dtype]))
        return feeds

    def _own_last(self, logits: Array) -> Array:
        """[rows, positions, vocab] -> float32 [rows, vocab], each row at its last valid position."""
        if logits.shape[1] == 1:
            return to_float32(logits[:, 0])
        return to_float32(logits[np.arange(self.rows), self.lengths - 1])

    def _as_array(self, value: Value) -> Array:
        dtype = self.spec.logits_dtype
        return binding.as_bits(value, dtype).copy() if dtype == "bfloat16" else to_array(value)

    def _failed(self, failure: Exception) -> ExecutionError:
        return ExecutionError("step-failed", str(failure), origin=self.spec.origin)


class SharedDecoding(Decoding):
    """Past and present are one buffer: bound once, written in place, replaced only when it runs out of room."""

    def prompt(self) -> None:
        self.state = shared_state(self.spec.slots, self.rows, self.room.first)
        bound = binding.new_bindings(self.session)
        feeds = self._prompt_feeds()
        for port, array in feeds.items():
            bound.bind_ortvalue_input(port, view(array))
        self._bind_state(bound)
        bound.bind_output(self.spec.logits, binding.CPU)
        try:
            binding.run_bound(self.session)(bound, None)
        except binding.RUN_FAILURES as failure:
            raise self._failed(failure) from failure
        self.logits = self._own_last(self._as_array(bound.get_outputs()[len(self.spec.slots)]))
        self._bind_step()

    def _bind_state(self, bound: binding.Bindings) -> None:
        for slot, buffer in zip(self.spec.slots, self.state, strict=True):
            value = view(buffer, slot.dtype)
            bound.bind_ortvalue_input(slot.past, value)
            bound.bind_ortvalue_output(slot.present, value)
        for port, value in self.extras.items():
            bound.bind_ortvalue_input(port, value)

    def _bind_step(self) -> None:
        """One io-binding for every later step; `advance` becomes a closure over its buffers."""
        spec, rows = self.spec, self.rows
        bound = binding.new_bindings(self.session)
        self._bind_state(bound)
        bound.bind_ortvalue_input(spec.tokens, view(self.tokens))
        out = np.zeros((rows, 1, spec.vocab_size), dtype=NUMPY[spec.logits_dtype])
        bound.bind_ortvalue_output(spec.logits, view(out, spec.logits_dtype))
        if spec.positions is not None:
            bound.bind_ortvalue_input(spec.positions[0], view(self.positions))
        self._alive = [out]
        convert = None if spec.logits_dtype == "float32" else lambda: to_float32(out[:, 0])
        if convert is None:
            self._step_logits = out[:, 0]
        self._advance = self._step(bound, self._mask(bound), convert)

    def _mask(self, bound: binding.Bindings) -> Array | None:
        spec = self.spec
        if spec.mask is None:
            return None
        mask = np.zeros((self.rows, self.room.first), dtype=NUMPY[spec.mask.dtype])
        mask[np.arange(self.room.first) < self.lengths.reshape(-1, 1)] = 1
        if spec.mask.fixed:
            bound.bind_ortvalue_input(spec.mask.port, view(mask))
        self._alive.append(mask)
        return mask

    def _step(
        self, bound: binding.Bindings, mask: Array | None, convert: Callable[[], Array] | None
    ) -> Callable[[], None]:
        run, positions, lengths = binding.run_bound(self.session), self.positions, self.lengths
        each = np.arange(self.rows)
        moving = self.spec.mask if self.spec.mask is not None and not self.spec.mask.fixed else None

        def step() -> None:
            if mask is not None:
                mask[each, lengths] = 1
            if moving is not None:
                width = int(lengths.max()) + 1
                self._alive[-1] = part = np.ascontiguousarray(mask[:, :width])  # type: ignore[index]
                bound.bind_ortvalue_input(moving.port, view(part))
            run(bound, None)
            np.add(lengths, 1, out=lengths)
            np.add(positions, 1, out=positions)
            self.logits = self._step_logits if convert is None else convert()

        return self._single(bound, mask, run) if self.rows == 1 and moving is None and convert is None else step

    def _single(
        self, bound: binding.Bindings, mask: Array | None, run: Callable[[Any, None], None]
    ) -> Callable[[], None]:
        """The step of one row whose mask stays bound: two stores and a run."""
        lengths, positions = self.lengths, self.positions
        place = int(lengths[0])
        row = mask[0] if mask is not None else np.zeros(self.room.first, dtype=np.bool_)

        def step() -> None:
            nonlocal place
            row[place] = 1
            run(bound, None)
            place += 1
            lengths[0] = positions[0, 0] = place
            self.logits = self._step_logits

        return step

    def advance(self) -> None:
        if int(self.lengths.max()) >= self.room.first:
            self._make_room()
        try:
            self._advance()
        except binding.RUN_FAILURES as failure:
            raise self._failed(failure) from failure

    def _make_room(self) -> None:
        used = self.room.first
        self.room = self.room.larger()
        self.state = grow(self.spec.slots, self.state, used, self.room.first)
        self._bind_step()


class GrowingDecoding(Decoding):
    """Present becomes past: the tensors that one run makes are fed to the next, untouched by numpy."""

    def prompt(self) -> None:
        spec = self.spec
        self._run = binding.run_with_values(self.session)
        self._outputs = [spec.logits, *(slot.present for slot in spec.slots)]
        self._pasts = [slot.past for slot in spec.slots]
        arrays = self._prompt_feeds()
        self._alive = list(arrays.values())
        self._feeds = {port: view(array) for port, array in arrays.items()} | dict(self.extras)
        self._feeds.update(zip(self._pasts, empty_state(spec.slots, self.rows), strict=True))
        self._take()
        if spec.mask is not None:
            self._mask = np.zeros((self.rows, self.width + 64), dtype=NUMPY[spec.mask.dtype])
            self._mask[:, : self.width] = np.arange(self.width) < self.lengths.reshape(-1, 1)
        self._feeds[spec.tokens] = view(self.tokens)
        if spec.positions is not None:
            self._feeds[spec.positions[0]] = view(self.positions)

    def advance(self) -> None:
        if self.spec.mask is not None:
            self._feed_mask(self.spec.mask)
        self.filled += 1
        self.lengths = self.lengths + 1
        self._take()
        np.add(self.positions, 1, out=self.positions)

    def _feed_mask(self, mask: Mask) -> None:
        if self.filled == self._mask.shape[1]:
            self._mask = np.concatenate([self._mask, np.zeros_like(self._mask)], axis=1)
        if mask.columns:
            self._mask[:, self.filled] = 1
        else:
            self._mask[np.arange(self.rows), self.lengths] = 1
        part = np.ascontiguousarray(self._mask[:, : self.filled + 1])
        self._alive = [part]
        self._feeds[mask.port] = view(part)

    def _take(self) -> None:
        try:
            made = self._run(self._feeds, self._outputs, None)
        except binding.RUN_FAILURES as failure:
            raise self._failed(failure) from failure
        logits = self._as_array(made[0])
        self.logits = to_float32(logits[:, 0]) if logits.shape[1] == 1 else self._own_last(logits)
        for place, port in enumerate(self._pasts, start=1):
            self._feeds[port] = made[place]
