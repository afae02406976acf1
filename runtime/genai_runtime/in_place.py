"""Decoding with past and present in one buffer: bound once, written in place, replaced only when it is full."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from genai_runtime import binding
from genai_runtime.decoding import BoundRow, Decoding
from genai_runtime.sample import to_float32
from genai_runtime.state import grow, shared_state
from genai_runtime.values import NUMPY, Array, Value, view

NEVER = 1 << 62


class InPlaceDecoding(Decoding):
    """A request whose attention operators take the valid length and write at it (GroupQueryAttention).

    They get it from the mask, or as a number where lengths are fed.
    """

    takes_chunks = takes_switches = True

    def prompt(self) -> None:
        self.state = shared_state(self.spec.slots, self.rows, self.room.first, self.room.prompt)
        bound = binding.new_bindings(self.first_session)
        feeds = self.prompt_feeds(self.room.first)
        values = self.known_to(self.first_session, self.as_values(feeds))
        for port, value in values.items():
            bound.bind_ortvalue_input(port, value)
        self._bind_state(bound, self.first_session, self.own(self.media))
        bound.bind_output(self.spec.logits, binding.CPU)
        self._run = binding.run_bound(self.first_session, self.spec.origin)
        self.passes += 1
        try:
            self._run(bound, None)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        self.take_own_last(bound.get_outputs()[len(self.spec.slots)])
        self._run = binding.run_bound(self.session, self.spec.origin)
        self.feed_chunks()
        self._positions, self.filled = self.first_positions(), int(self.lengths.max())
        self._each: Array = np.arange(self.rows)
        self._bind_step()
        self.feed_rest()

    def run_chunk(self, feeds: dict[str, Array]) -> None:
        bound = binding.new_bindings(self.session)
        for port, array in feeds.items():
            bound.bind_ortvalue_input(port, view(array))
        self._bind_state(bound, self.session, self.own(self.media))
        bound.bind_output(self.spec.logits, binding.CPU)
        self.passes += 1
        try:
            self._run(bound, None)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        self.take_own_last(bound.get_outputs()[len(self.spec.slots)])

    def _bind_state(self, bound: binding.Bindings, session: object, beside: Mapping[str, Value]) -> None:
        for slot, buffer in zip(self.spec.slots, self.state, strict=True):
            value = view(buffer, slot.dtype)
            bound.bind_ortvalue_input(slot.past, value)
            bound.bind_ortvalue_output(slot.present, value)
        for port, extra in self.known_to(session, {**self.extras, **beside}).items():
            bound.bind_ortvalue_input(port, extra)

    def _bind_step(self) -> None:
        """One io-binding for all steps until the room is full."""
        spec = self.spec
        self._bound = bound = binding.new_bindings(self.session)
        self._bind_state(bound, self.session, self.own(self.later))
        self._ids = view(self.tokens if self.front is not None else self.as_fed(self.tokens))
        if self.front is None:
            bound.bind_ortvalue_input(spec.tokens, self._ids)
        if spec.positions is not None:
            bound.bind_ortvalue_input(spec.positions[0], view(self.as_fed(self._positions)))
        self._only = self.only_position()
        for port, array in self._only.items():
            bound.bind_ortvalue_input(port, view(array))
        self._counted = self.counts_of(self.lengths, self.lengths + 1, self.room.first)
        for port, array in self._counted.items():
            bound.bind_ortvalue_input(port, view(array))
        self._raw: Array = self.logits if spec.logits_rank == 2 else self.logits.reshape(self.rows, 1, -1)
        if spec.logits_dtype != "float32":
            self._raw = np.zeros(self._raw.shape, dtype=NUMPY[spec.logits_dtype])
        bound.bind_ortvalue_output(spec.logits, view(self._raw, spec.logits_dtype))
        if spec.lengths is None:
            self._bind_mask()
        self._bind_lengths()
        self._full = self.room.first if self.room.first < self.room.most else NEVER

    def _bind_mask(self) -> None:
        spec = self.spec.mask
        self._mask = np.zeros((self.rows, self.room.first), dtype=NUMPY[spec.dtype if spec else "int64"])
        self._mask[np.arange(self.room.first) < self.lengths.reshape(-1, 1)] = 1
        if spec is not None and spec.fixed:
            self._bound.bind_ortvalue_input(spec.port, view(self._mask))

    def _bind_lengths(self) -> None:
        """In a mask's place: what a step writes is its last position."""
        self._fed = self.lengths_of(self.lengths, self.room.first)
        for port, array in self._fed.items():
            self._bound.bind_ortvalue_input(port, view(array))

    def advance(self) -> None:
        if self.switch is not None and self.switch.due(self.tokens, self.filled):
            self.switch.again(self)
            return
        if self.filled >= self._full:
            self._larger()
        spec, lengths, most = self.spec, self.lengths, self.room.most
        self.passes += 1
        self.filled = min(self.filled + 1, most)
        if spec.mask is not None:
            self._mask[self._each, lengths] = 1
            if not spec.mask.fixed:
                self._part = np.ascontiguousarray(self._mask[:, : self.filled])
                self._bound.bind_ortvalue_input(spec.mask.port, view(self._part))
        if spec.lengths is not None:
            self._fed[spec.lengths.last][:] = lengths
        if self.front is not None:
            self._made = self.embedded(self._ids, self.later)
            for port, value in self._made.items():
                self._bound.bind_ortvalue_input(port, value)
        try:
            self._run(self._bound, None)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        # a row that is full has ended: it only repeats its last place, and its position, while others go on
        if spec.positions is not None:
            self._positions += (lengths < most - 1).reshape(-1, 1)
        np.minimum(lengths + 1, most - 1, out=lengths)
        if self._counted:
            self.recount(self._counted, lengths, lengths + 1)
        if spec.logits_dtype != "float32":
            self.logits[:] = to_float32(self._raw.reshape(self.rows, -1))

    def row_at(self, place: int) -> BoundRow:
        if place >= self._full:
            self.filled = self.lengths[0] = place
            self._larger()
        lengths = self.spec.lengths
        told: Any = self._mask[0] if lengths is None else self._fed[lengths.last]
        return self._run, self._bound, memoryview(told), self.room.first

    def _larger(self) -> None:
        """The room is full: move to larger buffers."""
        used = self.room.first
        self.room = self.room.larger()
        self.state = grow(self.spec.slots, self.state, used, self.room.first)
        self._bind_step()
