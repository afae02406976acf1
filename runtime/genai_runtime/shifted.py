"""Decoding with caches that move: a run takes the past columns and gives the new ones, and the oldest drop out.

A cache is a view of a strip of memory that goes on by as many elements as a column has. Every column is then one place
nearer to the start, without a copy; the places at the end, where those that dropped out of the next row stood, take the
new columns. So a step writes one column a cache.

The caches are what a step binds anew: a place that moves can't be bound once, and at one place all of their columns
would be copied at every step. It tells where they begin (`binding.bind_at`), and makes no tensor of them.
"""

from collections.abc import Mapping
from math import prod

import numpy as np

from genai_runtime import binding
from genai_runtime.decoding import Decoding
from genai_runtime.problem import RequestError
from genai_runtime.run_logits import by_position, run_logits
from genai_runtime.sample import to_float32
from genai_runtime.state import GROWTH, UNHELD, Slot, shape_of
from genai_runtime.values import NUMPY, Array, to_array, view
from genai_runtime.window_feeds import placed, streams_of


class Strip:
    """A cache of so many columns of one row, in memory for so many moves. fill: what its columns hold first.

    Raises RequestError `state-memory`.
    """

    def __init__(self, slot: Slot, columns: int, moves: int, fill: int) -> None:
        self.slot, self.axis = slot, slot.dims.index(GROWTH)
        self._shape = shape_of(slot, 1, columns)
        self._count, self._column = prod(self._shape), prod(self._shape[self.axis + 1 :])
        size, dtype = self._count + moves * self._column, np.dtype(NUMPY[slot.dtype])
        try:
            self._memory: Array = np.full(size, fill, dtype=dtype)
        except UNHELD as failure:
            what = f"the cache {slot.past!r} takes {size * dtype.itemsize / 1e6:.0f} MB, which this process can't have"
            raise RequestError("state-memory", what, help="give a shorter prompt, ask for fewer tokens") from failure
        self._start = 0
        self._base, self._width, self._dims = self._memory.ctypes.data, self._memory.itemsize, list(self._shape)

    def bind(self, bound: binding.Bindings) -> None:
        """The columns of the moment as an input, until the next move; the strip outlives the run."""
        address = self._base + self._start * self._width
        binding.bind_at(bound, self.slot.past, self.slot.dtype, self._dims, address)

    @property
    def array(self) -> Array:
        """The columns, oldest first: a view."""
        return self._memory[self._start : self._start + self._count].reshape(self._shape)

    def move(self, new: Array) -> None:
        """Let the oldest columns go and the new ones in."""
        self._start += new.shape[self.axis] * self._column
        self.put(new)

    def put(self, new: Array) -> None:
        """Write these columns in the place of the last ones; of more than there are, the last."""
        end = np.moveaxis(self.array, self.axis, 0)
        count = min(len(end), new.shape[self.axis])
        if count:
            end[-count:] = np.moveaxis(new, self.axis, 0)[-count:]


class ShiftedDecoding(Decoding):
    """One row, whose mask tells which columns hold a token of it; padding of the prompt counts nowhere."""

    def prompt(self) -> None:
        spec = self.spec
        assert spec.window is not None
        assert spec.shift is not None
        (size, pad), (columns, fill, first) = spec.window, spec.shift
        count = -(-self.width // size)
        start = count * size - self.width if first else 0
        self._check_room(self.width if first else count * size, columns)
        streams = streams_of(self, start, count * size - self.width - start, pad)
        places = np.arange(count * size) - start
        real = (places >= 0) & (places < self.width)
        positions = placed(self, self._positions_of(np.where(real, places, 0).reshape(1, -1)), start)
        strips = [Strip(slot, columns - size, count * size, fill) for slot in spec.slots]
        seen = np.zeros(columns, dtype=np.bool_)
        made: list[Array] = []
        for at in range(count):
            for strip, new in zip(strips, made, strict=False):
                strip.move(new)
            part = slice(at * size, (at + 1) * size)
            seen = np.concatenate([seen[size:], real[part]])
            fed = {port: (each.part(at * size, size), each.dtype) for port, each in streams.items()}
            logits, *made = self._run_window(fed, positions[..., part], seen, strips)
        rows = by_position(logits)
        last = start + self.width - 1 - (count - 1) * size
        place = last if len(rows) > 1 else 0
        self.logits[:] = run_logits(rows[place : place + 1], self.logits.shape, spec.origin)
        moves = max(self.room.most - self.width, 0)
        self._strips = [
            _without_padding(*pair, seen, moves, (columns, fill)) for pair in zip(strips, made, strict=True)
        ]
        self._positions, self.filled = self.first_positions(), self.width
        self._bind_step(columns)

    def _check_room(self, needed: int, columns: int) -> None:
        if needed > columns:
            what = f"the prompt takes {needed} columns in windows, and the caches have {columns}"
            raise RequestError("prompt-too-long", what, help="give a shorter prompt")

    def _run_window(
        self, fed: Mapping[str, tuple[Array, str]], places: Array, seen: Array, strips: list[Strip]
    ) -> list[Array]:
        """Logits, then the new columns of every cache. fed: arrays [1, n, ...] and what they are where numpy lacks it;
        places: positions of n tokens, as the port takes them; seen: bool [columns].
        """
        spec = self.spec
        arrays = dict(fed)
        if spec.mask is not None:
            arrays[spec.mask.port] = seen.reshape(1, -1).astype(NUMPY[spec.mask.dtype]), ""
        if spec.positions is not None:
            arrays[spec.positions[0]] = np.ascontiguousarray(places), ""
        feeds = {port: view(array, dtype) for port, (array, dtype) in arrays.items()}
        feeds |= {each.slot.past: view(each.array, each.slot.dtype) for each in strips}
        feeds |= {**self.extras, **self.own(self.media)}
        run = binding.run_with_values(self.first_session, spec.origin)
        self.passes += 1
        try:
            made = run(
                self.known_to(self.first_session, feeds), [spec.logits, *(each.present for each in spec.slots)], None
            )
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        dtypes = (spec.logits_dtype, *(each.dtype for each in spec.slots))
        return [
            binding.as_bits(value, dtype) if dtype == "bfloat16" else to_array(value)
            for value, dtype in zip(made, dtypes, strict=True)
        ]

    def _bind_step(self, columns: int) -> None:
        """One io-binding for all steps; the caches in it move."""
        spec = self.spec
        self._bound = bound = binding.new_bindings(self.session)
        self._run = binding.run_bound(self.session, spec.origin)
        self._mask = np.zeros((1, columns), dtype=NUMPY[spec.mask.dtype if spec.mask is not None else "int64"])
        self._mask[0, columns - self.width :] = 1
        self._ids = view(self.tokens)
        fed = {spec.tokens: self.tokens} if self.front is None else dict[str, Array]()
        if spec.mask is not None:
            fed[spec.mask.port] = self._mask
        if spec.positions is not None:
            fed[spec.positions[0]] = self._positions
        for port, array in fed.items():
            bound.bind_ortvalue_input(port, view(array))
        for port, extra in {**self.extras, **self.own(self.later)}.items():
            bound.bind_ortvalue_input(port, extra)
        self._raw: Array = self.logits if spec.logits_rank == 2 else self.logits.reshape(1, 1, -1)
        if spec.logits_dtype != "float32":
            self._raw = np.zeros(self._raw.shape, dtype=NUMPY[spec.logits_dtype])
        bound.bind_ortvalue_output(spec.logits, view(self._raw, spec.logits_dtype))
        self._new = [np.zeros(shape_of(each, 1, 1), dtype=NUMPY[each.dtype]) for each in spec.slots]
        for slot, array in zip(spec.slots, self._new, strict=True):
            bound.bind_ortvalue_output(slot.present, view(array, slot.dtype))

    def advance(self) -> None:
        self.filled += 1
        self._mask[0, -self.filled :] = 1
        for strip in self._strips:
            strip.bind(self._bound)
        if self.front is not None:
            self._made = self.embedded(self._ids, self.later)
            for port, value in self._made.items():
                self._bound.bind_ortvalue_input(port, value)
        self.passes += 1
        try:
            self._run(self._bound, None)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure
        for strip, new in zip(self._strips, self._new, strict=True):
            strip.move(new)
        self.lengths = self.lengths + 1
        self._positions += 1
        if self.spec.logits_dtype != "float32":
            self.logits[:] = to_float32(self._raw.reshape(1, -1))


def _without_padding(strip: Strip, new: Array, seen: Array, moves: int, shift: tuple[int, int]) -> Strip:
    """The cache for steps of one token: what the mask has seen of its past and new columns. shift: columns, fill."""
    columns, fill = shift
    whole = np.concatenate([strip.array, new], axis=strip.axis)
    made = Strip(strip.slot, columns - 1, moves, fill)
    made.put(np.compress(seen, whole, axis=strip.axis))
    return made
