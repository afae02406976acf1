"""A decoder whose runs take several tokens and can be taken back: the target of a proposer's drafts (standard, 7.2).

State in a shared buffer is taken back by its length alone. State that grows is cut along its sequence axis. State of
one size, windows among them, has no entries to cut, and what an operator dropped from a window an earlier position may
still see: it is put back as it was before the run, and what stays of the run is run again. It goes back no further.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from genai_runtime import binding
from genai_runtime.decoding import Decoder, Decoding
from genai_runtime.problem import ExecutionError
from genai_runtime.run_logits import run_logits
from genai_runtime.state import GROWTH, Slot, empty_state, grow, shared_state
from genai_runtime.values import NUMPY, Array, Value, bits_dtype, to_array, to_bits, to_value, view


class BlockDecoding(Decoding):
    """One row in flight. filled: tokens in its state. keep: outputs beside logits and state that a run hands over."""

    def __init__(
        self,
        decoder: Decoder,
        ids: Array,
        lengths: Array,
        limit: int,
        context: int,
        extras: Mapping[str, Value],
        keep: Sequence[str] = (),
    ) -> None:
        super().__init__(decoder, ids, lengths, limit, context, extras)
        self._keep, self.filled = tuple(keep), 0
        self.takes_chunks = not keep  # else the proposer reads what every position of the prompt gave
        self._kept: dict[str, Array] = {}
        self._fed: list[int] = []
        self._windows = [at for at, slot in enumerate(self.spec.slots) if self.spec.shared and GROWTH not in slot.dims]
        self._held: list[Array] = []

    def prompt(self) -> None:
        slots = self.spec.slots
        room = self.room
        self._buffers = shared_state(slots, 1, room.first, room.prompt) if self.spec.shared else []
        self._pasts = [] if self.spec.shared else empty_state(slots, 1)
        self._before = self._pasts
        self._run = binding.run_with_values(self.session, self.spec.origin)
        whole = self.ids[0, : self.width if self.chunk else int(self.lengths[0])].tolist()
        for start in range(0, len(whole), self.chunk or len(whole)):
            self.logits[0] = self.run(whole[start : start + (self.chunk or len(whole))], last=True)[0]
        self.first, self.lengths[:] = self.width, len(whole)

    def run(self, ids: Sequence[int], last: bool = False) -> Array:
        """Feed tokens behind those in the state. Returns float32 [tokens, vocab]: what follows each (or the last)."""
        end, self._fed = self.filled + len(ids), list(ids)
        self._held = [self._buffers[at].copy() for at in self._windows] if len(ids) > 1 else []
        feeds = self._feeds(ids, end)
        self.passes += 1
        try:
            made = self._in_place(feeds, end) if self.spec.shared else self._growing(feeds)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        self.filled = end
        # copies: what a run gave is memory of its values, which end here
        self._kept = {port: np.array(to_array(value)[0]) for port, value in zip(self._keep, made[1:], strict=True)}
        logits = to_array(made[0])[0]
        shape = (1 if last else len(ids), self.spec.vocab_size)
        return np.array(run_logits(logits[-1:] if last else logits, shape, self.spec.origin))

    def take_back(self, count: int) -> None:
        """Undo the last so many tokens of the last run, which had more.

        Raises ExecutionError `rewind`, with nothing changed, for a position that state of one size no longer holds.
        """
        if not count:
            return
        if self._windows or (not self.spec.shared and not self._history()):
            oldest = self.filled - len(self._fed) + 1
            if self.filled - count < oldest:
                what = f"the state can't go back to {self.filled - count} tokens: the oldest that it holds is {oldest}"
                raise ExecutionError("rewind", what, origin=self.spec.origin)
            self._put_back()
            self.run(self._fed[:-count])
            return
        self.filled -= count
        self._kept = {port: kept[:-count] for port, kept in self._kept.items()}
        if not self.spec.shared:
            self._pasts = [self._cut(value, slot.dims.index(GROWTH)) for value, slot in self._pairs()]

    def _put_back(self) -> None:
        """The state as it was before the last run. What grows in a shared buffer is written over by the next one."""
        for at, held in zip(self._windows, self._held, strict=True):
            self._buffers[at][...] = held
        if not self.spec.shared:
            self._pasts = self._before
        self.filled -= len(self._fed)

    def seeds(self, port: str) -> tuple[int, Array]:
        """(place of the first, [tokens, width]): a kept output of the last run, as far as it was not taken back."""
        kept = self._kept[port]
        start = self.filled - len(kept)
        return start, kept

    def borrow(self, past: str) -> Value:
        """The state that the next run would take at this port."""
        at = next(at for at, slot in enumerate(self.spec.slots) if slot.past == past)
        if not self.spec.shared:
            return self._pasts[at]
        slot = self.spec.slots[at]
        part = tuple(slice(0, self.filled) if dim == GROWTH else slice(None) for dim in slot.dims)
        return to_value(self._buffers[at][part], slot.dtype)

    # ---- a run -------------------------------------------------------------------------------------------------------

    def _feeds(self, ids: Sequence[int], end: int) -> dict[str, Value]:
        spec = self.spec
        places = np.arange(self.filled, end)[None]
        arrays = {spec.tokens: np.array([ids], dtype=NUMPY[spec.token_dtype])}
        if spec.mask is not None:
            arrays[spec.mask.port] = np.ones((1, end), dtype=NUMPY[spec.mask.dtype])
        if spec.positions is not None:
            arrays[spec.positions[0]] = self._positions_of(places)
        self._alive = arrays
        return {port: view(array) for port, array in arrays.items()} | dict(self.extras)

    def _growing(self, feeds: dict[str, Value]) -> Sequence[Value]:
        spec = self.spec
        self._before = self._pasts
        feeds.update(zip((slot.past for slot in spec.slots), self._pasts, strict=True))
        states = [slot.present for slot in spec.slots]
        made = self._run(feeds, [spec.logits, *self._keep, *states], None)
        first = 1 + len(self._keep)
        self._pasts = [made[first + at] for at in range(len(states))]
        return [made[at] for at in range(first)]

    def _in_place(self, feeds: dict[str, Value], end: int) -> Sequence[Value]:
        spec = self.spec
        while end > self.room.first and self.room.fixed is None:
            self.room = self.room.larger()
            self._buffers = grow(spec.slots, self._buffers, self.filled, self.room.first)
        bound = binding.new_bindings(self.session)
        for port, value in feeds.items():
            bound.bind_ortvalue_input(port, value)
        for port in (spec.logits, *self._keep):
            bound.bind_output(port, binding.CPU)
        for slot, buffer in zip(spec.slots, self._buffers, strict=True):
            value = view(buffer, slot.dtype)
            bound.bind_ortvalue_input(slot.past, value)
            bound.bind_ortvalue_output(slot.present, value)
        binding.run_bound(self.session, self.spec.origin)(bound, None)
        return [bound.get_outputs()[at] for at in range(1 + len(self._keep))]

    # ---- state that grows --------------------------------------------------------------------------------------------

    def _pairs(self) -> Iterator[tuple[Value, Slot]]:
        return zip(self._pasts, self.spec.slots, strict=True)

    def _history(self) -> bool:
        """Whether every state has one entry a token, so that cutting undoes a run."""
        return all(
            GROWTH in slot.dims and value.shape()[slot.dims.index(GROWTH)] == self.filled
            for value, slot in self._pairs()
        )

    def _cut(self, value: Value, axis: int) -> Value:
        part = (slice(None),) * axis + (slice(0, self.filled),)
        return to_value(to_bits(value)[part], bits_dtype(value))
