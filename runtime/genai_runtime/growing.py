"""Decoding whose present becomes past: the tensors that one run makes are fed to the next, untouched by numpy."""

import numpy as np

from genai_runtime import binding
from genai_runtime.decoding import Decoding, Mask
from genai_runtime.state import empty_state
from genai_runtime.values import NUMPY, Array, view

MASK_ROOM = 256
"""Columns by which the mask buffer grows."""


class GrowingDecoding(Decoding):
    """A request whose attention operators append: past is exactly what is valid, and present is longer.

    State of one size starts as zeros, and what a run gives is what the next one takes; or what the first run gives is.
    """

    takes_chunks = takes_switches = True

    def prompt(self) -> None:
        spec = self.spec
        self._run = binding.run_with_values(self.first_session, spec.origin)
        self._outputs = [spec.logits, *(slot.present for slot in spec.slots), *spec.left]
        self._pasts = [slot.past for slot in spec.slots]
        arrays = self.prompt_feeds()
        self._feeds = self.as_values(arrays) | dict(self.extras) | dict(self.own(self.media))
        self._feeds.update(zip(self._pasts, empty_state(spec.slots, self.rows), strict=True))
        feeds = self._feeds
        self._feeds = self.known_to(self.first_session, feeds)
        self._take()
        self.feed_chunks()
        self._feeds = self.known_to(self.session, {**feeds, **self._feeds})
        self._run = binding.run_with_values(self.session, spec.origin)
        self._positions, self.filled = self.first_positions(), self.first
        self._feeds.update(self.own(self.later))
        kept = [slot for slot in spec.slots if not slot.once]
        self._outputs = [spec.logits, *(slot.present for slot in kept), *spec.left]
        self._pasts = [slot.past for slot in kept]
        if spec.mask is not None:
            self._mask = np.zeros((self.rows, self.width + MASK_ROOM), dtype=NUMPY[spec.mask.dtype])
            self._mask[:, : self.first] = np.arange(self.first) < self.lengths.reshape(-1, 1)
        self._ids = view(self.as_fed(self.tokens))
        if self.front is None:
            self._feeds[spec.tokens] = self._ids
        if spec.positions is not None:
            self._feeds[spec.positions[0]] = view(self.as_fed(self._positions))
        self._only = self.only_position()
        self._counted = self.counts_of(self.lengths, self.lengths + 1)
        self._feeds.update((port, view(array)) for port, array in (self._only | self._counted).items())
        self.feed_rest()

    def run_chunk(self, feeds: dict[str, Array]) -> None:
        self._feeds.update(self.known_to(self.first_session, {port: view(array) for port, array in feeds.items()}))
        self._take()

    def advance(self) -> None:
        if self.switch is not None and self.switch.due(self.tokens, self.filled):
            self.switch.again(self)
            return
        if self.spec.mask is not None:
            self._feed_mask(self.spec.mask)
        self.filled += 1
        if self.front is not None:
            self._feeds.update(self.embedded(self._ids, self.later))
        self.lengths = self.lengths + 1
        self._take()
        for numbers in self._counted.values():
            numbers += 1
        # a row that is full has ended: its position only has to stay one that exists while others go on
        self._positions += (self.lengths < self.room.most).reshape(-1, 1)

    def _feed_mask(self, mask: Mask) -> None:
        if self.filled == self._mask.shape[1]:
            more = np.zeros((self.rows, MASK_ROOM), dtype=self._mask.dtype)
            self._mask = np.concatenate([self._mask, more], axis=1)
        if mask.columns:
            self._mask[:, self.filled] = 1
        else:
            self._mask[np.arange(self.rows), self.lengths] = 1
        self._part = np.ascontiguousarray(self._mask[:, : self.filled + 1])
        self._feeds[mask.port] = view(self._part)

    def _take(self) -> None:
        self.passes += 1
        try:
            made = self._run(self._feeds, self._outputs, None)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        self.take_own_last(made[0])
        for place, port in enumerate(self._pasts, start=1):
            self._feeds[port] = made[place]
        if self.spec.left:
            self.left = {port: made[place] for place, port in enumerate(self.spec.left, start=1 + len(self._pasts))}
