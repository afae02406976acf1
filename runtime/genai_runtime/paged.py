"""Decoding with caches in pages: rows of any length run together, packed, and no token of one is another's padding."""

import numpy as np

from genai_runtime import binding, packing
from genai_runtime.decoding import Decoding
from genai_runtime.run_logits import run_logits
from genai_runtime.state import PAGES, shape_of
from genai_runtime.values import NUMPY, Array, Value, to_array, view


class PagedDecoding(Decoding):
    """A request whose attention finds each row's past by a table of pages and writes into them in place.

    State of one size has an entry a row, starts as zeros, and what a run gives is what the next one takes.
    """

    def prompt(self) -> None:
        spec, pages = self.spec, self._pages
        self._most = self.room.most
        table = packing.page_table(self.rows, self._most, pages.block)
        self._home = binding.home_of(self.session)
        self._bound = bound = binding.new_bindings(self.session)
        self._run = binding.run_bound(self.session, spec.origin)
        self._kept: dict[str, Array] = {}
        self._feed(pages.table[0], table.astype(NUMPY[pages.table[1]]))
        for port, extra in self.extras.items():
            bound.bind_ortvalue_input(port, extra)
        self._state: list[Value] = []
        self._outputs: list[tuple[str, object]] = [(spec.logits, binding.CPU)]
        self._next: list[tuple[int, str]] = []
        self._bind_state(table.size)
        self._take(packing.packed(self.ids, self.lengths), np.zeros_like(self.lengths), self.lengths)
        self.filled = int(self.lengths.max())

    def advance(self) -> None:
        past = self.lengths
        self._take(self.tokens.reshape(-1), past, np.ones_like(past))
        # a row that is full has ended: it only repeats its last place while others go on
        self.lengths = np.minimum(past + 1, self._most - 1)
        self.filled = min(self.filled + 1, self._most)

    @property
    def _pages(self) -> packing.Pages:
        assert self.spec.pages is not None
        return self.spec.pages

    def _bind_state(self, count: int) -> None:
        """Pages are one buffer, past and present; what is replaced is a new tensor of every run."""
        bound = self._bound
        bound.bind_output(self.spec.logits, binding.CPU)
        for slot in self.spec.slots:
            first = np.zeros(shape_of(slot, self.rows, 0, count), dtype=NUMPY[slot.dtype])
            value = binding.placed(first, slot.dtype, self._home)
            self._kept[slot.past] = first
            self._state.append(value)
            bound.bind_ortvalue_input(slot.past, value)
            if PAGES in slot.dims:
                bound.bind_ortvalue_output(slot.present, value)
            else:
                bound.bind_output(slot.present, self._home)
                self._outputs.append((slot.present, self._home))
                self._next.append((len(self._state), slot.past))

    def _feed(self, port: str, array: Array) -> None:
        self._kept[port] = np.ascontiguousarray(array)
        self._bound.bind_ortvalue_input(port, view(self._kept[port]))

    def _take(self, tokens: Array, past: Array, new: Array) -> None:
        """Run the packed tokens; `logits` := what follows each row's last."""
        spec, pages = self.spec, self._pages
        self._feed(spec.tokens, tokens)
        for port, array in packing.described(pages, past, new).items():
            self._feed(port, array)
        if spec.positions is not None:
            port, dtype, rank = spec.positions
            where = packing.places(past, new).astype(NUMPY[dtype])
            self._feed(port, np.broadcast_to(where, (3, where.size)) if rank == 3 else where)
        for port, home in self._outputs:  # their extents are those of this run's tokens
            self._bound.bind_output(port, home)
        self.passes += 1
        try:
            self._run(self._bound, None)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        made = self._bound.get_outputs()
        found = binding.as_bits(made[0], "bfloat16") if spec.logits_dtype == "bfloat16" else to_array(made[0])
        ends = packing.boundaries(new)[1:] - 1
        last = found[ends] if pages.per_token and len(found) > ends[-1] else found
        self.logits[:] = run_logits(last, self.logits.shape, spec.origin)
        for at, past_port in self._next:
            self._state[at - 1] = made[at]
            self._bound.bind_ortvalue_input(past_port, made[at])
