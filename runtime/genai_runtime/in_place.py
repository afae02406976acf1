"""Decoding with past and present in one buffer: bound once, written in place, replaced only when it is full."""

from collections.abc import Callable

import numpy as np

from genai_runtime import binding
from genai_runtime.decoding import Decoding
from genai_runtime.sample import to_float32
from genai_runtime.state import grow, shared_state
from genai_runtime.values import NUMPY, Array, view

Step = Callable[[], None]


class InPlaceDecoding(Decoding):
    """A request whose attention operators take the valid length from the mask and write at it (GroupQueryAttention)."""

    def prompt(self) -> None:
        self.state = shared_state(self.spec.slots, self.rows, self.room.first)
        bound = binding.new_bindings(self.session)
        feeds = self.prompt_feeds()
        for port, array in feeds.items():
            bound.bind_ortvalue_input(port, view(array))
        self._bind_state(bound)
        bound.bind_output(self.spec.logits, binding.CPU)
        try:
            binding.run_bound(self.session)(bound, None)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        self.take_own_last(bound.get_outputs()[len(self.spec.slots)])
        self._positions, self._filled = self.first_positions(), int(self.lengths.max())
        self._bind_step()
        self.feed_rest()

    def _bind_state(self, bound: binding.Bindings) -> None:
        for slot, buffer in zip(self.spec.slots, self.state, strict=True):
            value = view(buffer, slot.dtype)
            bound.bind_ortvalue_input(slot.past, value)
            bound.bind_ortvalue_output(slot.present, value)
        for port, extra in self.extras.items():
            bound.bind_ortvalue_input(port, extra)

    def _bind_step(self) -> None:
        """One io-binding for all steps until the room is full; `advance` becomes a closure over its buffers."""
        spec = self.spec
        bound = binding.new_bindings(self.session)
        self._bind_state(bound)
        bound.bind_ortvalue_input(spec.tokens, view(self.tokens))
        if spec.positions is not None:
            bound.bind_ortvalue_input(spec.positions[0], view(self._positions))
        raw = self.logits.reshape(self.rows, 1, -1)
        if spec.logits_dtype != "float32":
            raw = np.zeros(raw.shape, dtype=NUMPY[spec.logits_dtype])
        self._raw = raw
        bound.bind_ortvalue_output(spec.logits, view(raw, spec.logits_dtype))
        mask = self._step_mask(bound)
        simple = self.rows == 1 and spec.positions is None and spec.logits_dtype == "float32"
        if simple and mask is not None and spec.mask is not None and spec.mask.fixed:
            self.advance = self._step_of_one_row(bound, mask)
        else:
            self.advance = self._step(bound, mask)

    def _step_mask(self, bound: binding.Bindings) -> Array | None:
        spec = self.spec.mask
        if spec is None:
            return None
        mask = np.zeros((self.rows, self.room.first), dtype=NUMPY[spec.dtype])
        mask[np.arange(self.room.first) < self.lengths.reshape(-1, 1)] = 1
        if spec.fixed:
            bound.bind_ortvalue_input(spec.port, view(mask))
        self._mask = mask
        return mask

    def _step_of_one_row(self, bound: binding.Bindings, mask: Array) -> Step:
        """One row, no positions, a mask that stays bound: one store and one run."""
        run, row, room, place = binding.run_bound(self.session), mask[0], self.room.first, self._filled
        following: Step | None = None

        def step() -> None:
            nonlocal place, following
            if place == room:
                if following is None:
                    self._filled = self.lengths[0] = place
                    following = self._larger()
                return following()
            row[place] = 1
            place += 1
            try:
                run(bound, None)
            except binding.RUN_FAILURES as failure:
                raise self.failed(failure) from failure
            return None

        return step

    def _step(self, bound: binding.Bindings, mask: Array | None) -> Step:
        run, lengths, positions, logits, raw = (
            binding.run_bound(self.session), self.lengths, self._positions, self.logits, self._raw,
        )  # fmt: skip
        each, room, most = np.arange(self.rows), self.room.first, self.room.most
        following: Step | None = None
        port = self.spec.mask.port if self.spec.mask is not None and not self.spec.mask.fixed else ""
        same = self.spec.logits_dtype == "float32"

        def step() -> None:
            nonlocal following
            if self._filled >= room and room < most:
                following = following or self._larger()
                return following()
            self._filled = min(self._filled + 1, most)
            if mask is not None:
                mask[each, lengths] = 1
                if port:
                    self._part = np.ascontiguousarray(mask[:, : self._filled])
                    bound.bind_ortvalue_input(port, view(self._part))
            try:
                run(bound, None)
            except binding.RUN_FAILURES as failure:
                raise self.failed(failure) from failure
            # a row that is full has ended: it only repeats its last place while others go on
            np.minimum(lengths + 1, most - 1, out=lengths)
            np.minimum(positions + 1, most - 1, out=positions)
            if not same:
                logits[:] = to_float32(raw[:, 0])
            return None

        return step

    def _larger(self) -> Step:
        """The room is full: move to larger buffers. Returns the step there, for callers hold on to the first one."""
        used = self.room.first
        self.room = self.room.larger()
        self.state = grow(self.spec.slots, self.state, used, self.room.first)
        self._bind_step()
        return self.advance
