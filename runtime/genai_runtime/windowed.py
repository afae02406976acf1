"""A prompt that goes in by windows of so many tokens, each at its own place of caches that keep every position.

The last window is filled up behind the prompt. What that writes into the caches lies behind every position that counts,
and the tokens that follow overwrite it.
"""

from dataclasses import replace

import numpy as np

from genai_runtime import binding
from genai_runtime.in_place import InPlaceDecoding
from genai_runtime.problem import RequestError
from genai_runtime.run_logits import by_position, run_logits
from genai_runtime.state import shared_state
from genai_runtime.values import NUMPY, Value, to_array, view
from genai_runtime.window_feeds import placed, streams_of


class WindowedDecoding(InPlaceDecoding):
    """One row; numbers tell its lengths, or how many ones a mask has."""

    takes_chunks = False

    takes_switches = False

    def prompt(self) -> None:
        spec = self.spec
        size, pad = spec.window or (self.width, 0)
        count = -(-self.width // size)
        self._make_room(count * size)
        streams = streams_of(self, 0, count * size - self.width, pad)
        taken = {port: each.part(0, size) for port, each in streams.items()}
        places = placed(self, self._positions_of(np.arange(count * size).reshape(1, -1)), 0)
        counts = self.counts_of(np.zeros_like(self.lengths), self.lengths, self.room.first)
        session = self.first_session
        bound, run = binding.new_bindings(session), binding.run_bound(session, spec.origin)
        self._bind_state(bound, session, self.own(self.media))
        at_places = np.ascontiguousarray(places[..., :size])
        fed = {port: streams[port].value(array) for port, array in taken.items()}
        fed |= {port: view(array) for port, array in counts.items()}
        fed |= {spec.positions[0]: view(at_places)} if spec.positions is not None else {}
        for port, value in self.known_to(session, fed).items():
            bound.bind_ortvalue_input(port, value)
        bound.bind_output(spec.logits, binding.CPU)
        for at in range(count):
            for port, array in taken.items():
                array[...] = streams[port].part(at * size, size)
            before = np.array([at * size])
            self.recount(counts, before, before + size)
            at_places[...] = places[..., at * size : (at + 1) * size]
            self._mask_window(bound, (at + 1) * size)
            self.passes += 1
            try:
                run(bound, None)
            except binding.RUN_FAILURES as failure:
                raise self.failed(failure) from failure
        self._take_place(bound.get_outputs()[len(spec.slots)], self.width - (count - 1) * size - 1)
        self._run = binding.run_bound(self.session, spec.origin)
        self._positions, self.filled = self.first_positions(), self.width
        self._each = np.arange(1)
        self._bind_step()

    def _mask_window(self, bound: binding.Bindings, written: int) -> None:
        """Bind a mask of so many ones, which counts the padding of a window as it is written."""
        mask = self.spec.mask
        if mask is not None:
            self._part = np.zeros((1, self.room.first if mask.fixed else written), dtype=NUMPY[mask.dtype])
            self._part[0, :written] = 1
            bound.bind_ortvalue_input(mask.port, view(self._part))

    def _make_room(self, padded: int) -> None:
        """Buffers that the windows fit into. Raises RequestError `prompt-too-long`."""
        if self.room.fixed is not None and padded > self.room.fixed:
            what = f"the prompt takes {padded} positions in windows, and the caches hold {self.room.fixed}"
            raise RequestError("prompt-too-long", what, help="give a shorter prompt")
        self.room = replace(self.room, prompt=padded, most=max(self.room.most, padded + 1))
        self.state = shared_state(self.spec.slots, self.rows, self.room.first, padded)

    def _take_place(self, value: Value, place: int) -> None:
        """`logits` := of one position of the last window."""
        dtype = self.spec.logits_dtype
        found = binding.as_bits(value, dtype) if dtype == "bfloat16" else to_array(value)
        rows = by_position(found)
        at = place if len(rows) > 1 else 0
        self.logits[:] = run_logits(rows[at : at + 1], self.logits.shape, self.spec.origin)
