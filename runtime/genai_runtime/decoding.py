"""Driving a decoder whose step the workflow leaves to the runtime: state, mask, positions (standard, 10.3).

Rows are right-padded and each is read at its own last position. `logits`, `tokens` and every other buffer stay the same
arrays for the whole request, so that a step is a few stores and one session run.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_runtime import binding
from genai_runtime.front import Front
from genai_runtime.length_switch import Rebuilding, watch_switch
from genai_runtime.packing import Pages
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.request import Request
from genai_runtime.run_logits import run_logits
from genai_runtime.sessions import Sessions
from genai_runtime.state import Lengths as Lengths
from genai_runtime.state import Room, Slot, zeroed_scores
from genai_runtime.values import NUMPY, Array, Value, to_array, view


@dataclass(frozen=True)
class Mask:
    """The attention-mask port. columns: each column counts, else sums and width; fixed: its width may stay capacity."""

    port: str
    dtype: str
    columns: bool
    fixed: bool


@dataclass(frozen=True)
class DecoderSpec:
    """The decoder's ports and the shape of its state, all taken from the graph at compile time.

    positions: (port, dtype, rank): rank 2 is [rows, tokens], rank 3 three equal copies of that. one_token: a run takes
    one token a row; flat: at a port [rows], as positions are then. last_position: the port, int64 [rows, 1, 1], that
    says which position of each row the logits are of; "" where they are of all. logits_rank: 3 is [rows, positions,
    vocab], 2 [rows, vocab].
    counts: (port, dtype, kind) of ports that take a number a row: positions `written` before a run, or `valid` after
    it; `past`, [1], before it, the same of all rows; of one row, [1, 1] `last` is one less than these, [1] `current`
    the same, `room` what fits. front: (component, (its output, the decoder's input) pairs) where tokens become
    embeddings first; `tokens` is then a port of that component, also in an output's place where the decoder takes them
    too. pages: rows are packed into one axis and caches kept in pages; positions of rank 2 are then [tokens], of rank 3
    [3, tokens]. prompt_component: what runs with the prompt, "" for the same; one_by_step: but for a prompt of one
    token. window: (tokens a run, what fills the last run up) of a prompt. shift: caches move by what a run adds:
    (columns of past and new ones, what empty ones hold, whether padding stands before a prompt). alone: a run takes one
    row. lengths: what is fed in the place of a mask. left: ports of which what the last run gives is kept.
    """

    component: str
    origin: str
    tokens: str
    token_dtype: str
    logits: str
    logits_dtype: str
    mask: Mask | None
    positions: tuple[str, str, int] | None
    slots: tuple[Slot, ...]
    shared: bool
    capacity: int | None
    ragged: bool
    vocab_size: int
    one_token: bool
    last_position: str = ""
    logits_rank: int = 3
    counts: tuple[tuple[str, str, str], ...] = ()
    front: tuple[str, tuple[tuple[str, str], ...]] | None = None
    pages: Pages | None = None
    prompt_component: str = ""
    one_by_step: bool = False
    window: tuple[int, int] | None = None
    alone: bool = False
    switch: int = 0
    shift: tuple[int, int, bool] | None = None
    lengths: Lengths | None = None
    flat: bool = False
    left: tuple[str, ...] = ()


class Decoder:
    """A decoder's session, ready to start requests."""

    def __init__(self, sessions: Sessions, spec: DecoderSpec) -> None:
        self.spec = spec
        self.session, self.timings = sessions.session(spec.component), sessions.timings
        self.prompt_session = sessions.session(spec.prompt_component) if spec.prompt_component else self.session
        self._chunk, self._at_switch = sessions.prefill_chunk, sessions.length_switch
        self.policy_graphs = sessions.policy_graphs
        self.front: Front | None = None
        if spec.front is not None:
            component, streams = spec.front
            self.front = Front(sessions.session(component), spec.tokens, streams, spec.origin)

    def start(
        self,
        tokens: Value,
        request: Request,
        limit: int,
        extras: Mapping[str, Value] | None = None,
        own_prompt: bool = True,
        media: Mapping[str, Value] | None = None,
        later: Mapping[str, Value] | None = None,
        positions: Value | None = None,
    ) -> "Decoding":
        """State for one request. tokens: integer [rows, longest prompt], right-padded; limit: new tokens at most.

        extras: values of the decoder's own ports, for the whole request. media, later: what the front (the decoder,
        where there is none) takes beside the tokens, with the prompt and with each step. own_prompt: the tokens are the
        request's prompt, whose rows' lengths it knows; else every row is as long as the array. positions: the prompt's,
        where they are not negative.
        Raises RequestError `empty-prompt`, `ragged-rows`, `one-row`, `missing-input`, `wrong-shape`, `bad-value`,
        `length-switch`.
        """
        ids, lengths = to_array(tokens), request.prompt_lengths if own_prompt else None
        if not ids.size:
            raise RequestError("empty-prompt", "the prompt has no tokens", help="give at least one token a row")
        valid = np.asarray(lengths if lengths is not None else (ids.shape[1],) * ids.shape[0], dtype=np.int64)
        if not self.spec.ragged and (valid != ids.shape[1]).any():
            what = "this decoder has no way to tell rows of different length apart"
            raise RequestError("ragged-rows", what, help="run the rows one by one")
        if self.spec.alone and ids.shape[0] > 1:
            raise RequestError("one-row", "this decoder takes one row a run", help="run the rows one by one")
        decoding = self.kind(request, ids.shape[0])(self, ids, valid, limit, request.context_length, extras or {})
        decoding.media, decoding.later = media or {}, later or {}
        if positions is not None:
            decoding.take_positions(to_array(positions))
        decoding.in_chunks(self._chunk if request.prefill_chunk is None else request.prefill_chunk)
        if self.spec.switch and self._at_switch != "keep":
            watch_switch(decoding, self._at_switch, limit)
        return decoding

    def kind(self, request: Request, rows: int) -> "Kind":
        """What makes the decoding of a request with so many rows."""
        from genai_runtime.growing import GrowingDecoding
        from genai_runtime.in_place import InPlaceDecoding

        if self.spec.pages is not None:
            from genai_runtime.paged import PagedDecoding

            return PagedDecoding
        if self.spec.shift is not None:
            from genai_runtime.shifted import ShiftedDecoding

            return ShiftedDecoding
        if self.spec.window is not None and self.spec.shared:
            from genai_runtime.windowed import WindowedDecoding

            return WindowedDecoding
        return InPlaceDecoding if self.spec.shared else GrowingDecoding


BoundRow = tuple[Callable[[binding.Bindings, None], None], binding.Bindings, "memoryview[int]", int]
"""A session's run, the io-binding for it, what tells a run its place, and how many places the buffers have (room).

What tells it: the only row's mask [room], or where lengths are fed the positions written before the run, [1].
"""


class Decoding:
    """One request in flight. `logits` is float32 [rows, vocab]; `tokens` [rows, 1] is what the next `advance` feeds.

    filled: places of the state in use by the longest row. passes: runs of the session so far.

    Nothing in here holds the object itself, so that the buffers go with the request and don't wait for the garbage
    collector.
    """

    filled: int
    _positions: Array
    left: Mapping[str, Value]
    """What the last run gave at the ports of `spec.left`; only where there are such."""
    switch: Rebuilding | None = None
    """What runs the sequence again where the graph takes other tables; None: nothing does."""
    takes_switches = False
    chunk: int = 0
    """Tokens that a run of the prompt takes at most; 0: all at once."""
    takes_chunks = False

    def __init__(
        self, decoder: Decoder, ids: Array, lengths: Array, limit: int, context: int, extras: Mapping[str, Value]
    ) -> None:
        spec = self.spec = decoder.spec
        self.passes = 0
        self.session, self.extras, self.front = decoder.session, extras, decoder.front
        self.first_session = decoder.session if spec.one_by_step and ids.shape[1] == 1 else decoder.prompt_session
        self.timings, self.policy_graphs = decoder.timings, decoder.policy_graphs
        self.media: Mapping[str, Value] = {}
        self.later: Mapping[str, Value] = {}
        self.places: Array | None = None
        self.rows, self.width = ids.shape
        self.ids = np.ascontiguousarray(ids.astype(NUMPY[spec.token_dtype]))
        self.first = 1 if spec.one_token else self.width
        self.lengths = np.minimum(lengths, self.first)
        longest = int(lengths.max())
        self.room = Room(longest, min(longest + limit, spec.capacity or context or longest + limit), spec.capacity)
        self.tokens = np.zeros((self.rows, 1), dtype=NUMPY[spec.token_dtype])
        self.logits = zeroed_scores(self.rows, spec.vocab_size)

    def prompt(self) -> None:
        """Run the whole prompt; `logits` then holds each row's own last position."""
        raise NotImplementedError

    def advance(self) -> None:
        """Feed `tokens`; `logits` then holds what follows them."""
        raise NotImplementedError

    def row_at(self, place: int) -> BoundRow:
        """For a loop that drives the only row itself: what a run at `place` takes, larger buffers once these are full.

        Such a run needs `tokens` and a 1 in the mask at `place`, or `place` itself where lengths are fed. Only where a
        step needs no more than that: past and present in one buffer, a mask of constant width or lengths, no positions,
        float32 logits.
        """
        raise NotImplementedError

    def prompt_feeds(self, room: int = 0) -> dict[str, Array]:
        """Ids, mask and positions of the first `first` tokens of the prompt, by port. room: see counts_of."""
        spec = self.spec
        valid = np.arange(self.first) < self.lengths.reshape(-1, 1)
        feeds = {spec.tokens: self.as_fed(np.ascontiguousarray(self.ids[:, : self.first]))}
        if spec.mask is not None:
            feeds[spec.mask.port] = np.ascontiguousarray(valid.astype(NUMPY[spec.mask.dtype]))
        feeds |= self.lengths_of(self.lengths - 1, self.first)
        if spec.positions is not None:
            own = self._positions_of(np.where(valid, np.arange(self.first), 0)) if self.places is None else self.places
            feeds[spec.positions[0]] = self.as_fed(np.ascontiguousarray(own[..., : self.first]))
        if spec.last_position:
            feeds[spec.last_position] = np.ascontiguousarray((self.lengths - 1).reshape(-1, 1, 1))
        return feeds | self.counts_of(np.zeros_like(self.lengths), self.lengths, room)

    def as_fed(self, array: Array) -> Array:
        """Tokens or positions [rows, n] as their port has them: the same memory, [rows] where it has no axis for n."""
        return array.reshape(-1) if self.spec.flat else array

    def take_positions(self, given: Array) -> None:
        """The caller's positions of the prompt, [..., rows, tokens]; -1 throughout stands for none.

        Raises RequestError: `missing-input` where media come without, `wrong-shape`, `bad-value`.
        """
        if (given == -1).all():
            if self.front is not None and any(value.shape()[0] for value in self.media.values()):
                what = "media were given without positions, and what they are is the caller's to say"
                raise RequestError("missing-input", what, help="give the prompt's positions as well")
            return
        if given.shape[-2:] != (self.rows, self.width):
            what = f"positions have the shape {list(given.shape)}, the prompt has {self.rows} rows of {self.width}"
            raise RequestError("wrong-shape", what, help="give one position a token")
        if given.min() < 0:
            raise RequestError("bad-value", f"a position is {given.min()}", help="positions count from 0")
        _, dtype, _ = self.spec.positions or ("", "int64", 2)
        self.places = np.ascontiguousarray(given.astype(NUMPY[dtype]))

    def as_values(self, feeds: Mapping[str, Array]) -> dict[str, Value]:
        """Feeds of the prompt as the decoder takes them: tokens through the front, where there is one."""
        values = {port: view(array) for port, array in feeds.items()}
        return self.embedded(values.pop(self.spec.tokens), self.media) | values if self.front is not None else values

    def own(self, pairs: Mapping[str, Value]) -> Mapping[str, Value]:
        """Of what goes in beside the tokens, the decoder's own ports."""
        return pairs if self.front is None else {}

    def embedded(self, tokens: Value, media: Mapping[str, Value]) -> dict[str, Value]:
        """What the front makes of tokens, by the decoder's ports. tokens: integer [rows, n]."""
        assert self.front is not None
        try:
            return self.front.run(tokens, media)
        except binding.RUN_FAILURES as failure:
            raise self.failed(failure) from failure

    def counts_of(self, written: Array, valid: Array, room: int = 0) -> dict[str, Array]:
        """What the ports that count take: positions [rows] written before a run and valid ones after it.

        room: positions that the buffers have, 0 where they are as long as what is valid.
        """
        numbers = {"written": written, "valid": valid, "last": (valid - 1).reshape(-1, 1), "current": valid[:1]}
        numbers["past"] = written[:1]
        numbers["room"] = np.array([room]) if room else valid[:1]
        return {port: numbers[kind].astype(NUMPY[dtype]) for port, dtype, kind in self.spec.counts}

    def lengths_of(self, last: Array, width: int) -> dict[str, Array]:
        """What is fed in a mask's place, by port. last: each row's last position; width: what a mask would have."""
        ports = self.spec.lengths
        return {} if ports is None else {ports.last: last.astype(np.int32), ports.width: np.array([width], np.int32)}

    def recount(self, counts: Mapping[str, Array], written: Array, valid: Array) -> None:
        """Write the numbers of another run into the arrays; what the buffers have room for stays."""
        steady = {port for port, _, kind in self.spec.counts if kind == "room"}
        for port, array in self.counts_of(written, valid).items():
            if port not in steady:
                counts[port][...] = array

    def known_to(self, session: object, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Of these feeds, those that a session has inputs for: with the prompt another graph may run."""
        if not self.spec.prompt_component:
            return dict(feeds)
        names = {each.name for each in session.get_inputs()}  # type: ignore[attr-defined]
        return {port: each for port, each in feeds.items() if port in names}

    def only_position(self) -> dict[str, Array]:
        """By port: of one token a row, the first position is the last."""
        port = self.spec.last_position
        return {port: np.zeros((self.rows, 1, 1), dtype=np.int64)} if port else {}

    def in_chunks(self, size: int) -> None:
        """Let runs of the prompt take at most so many tokens (0: all), where nothing goes in beside them.

        Of one row only: behind a past, GroupQueryAttention takes several tokens of no more than one.
        """
        spec = self.spec
        crosses = 0 < spec.switch < self.width  # its first chunks would be made with other tables than the whole
        size = spec.window[0] if spec.window is not None else size
        own = (bool(spec.prompt_component) and spec.window is None) or crosses or spec.pages is not None
        own = own or bool(spec.left)  # the last run is the whole prompt's where no other follows
        plain = not own and self.front is None and not self.media and self.places is None and not spec.one_token
        alone = self.rows == 1 and int(self.lengths[0]) == self.width and not any(slot.once for slot in spec.slots)
        if self.takes_chunks and plain and alone and 0 < size < self.width:
            self.chunk = self.first = size
            self.lengths = np.minimum(self.lengths, size)

    def feed_chunks(self) -> None:
        """Run what of the prompt is behind its first chunk; `logits` then holds each row's last position."""
        if not self.chunk:
            return
        for start in range(self.first, self.width, self.chunk):
            end = min(start + self.chunk, self.width)
            self.lengths[:] = end - start
            self.run_chunk(self._chunk_feeds(start, end))
        self.first, self.lengths[:] = self.width, self.width

    def run_chunk(self, feeds: dict[str, Array]) -> None:
        """One run of several tokens behind those in the state; `logits` then holds what follows them."""
        raise NotImplementedError

    def _chunk_feeds(self, start: int, end: int) -> dict[str, Array]:
        spec, each = self.spec, np.full(self.rows, 1, dtype=np.int64)
        feeds = {spec.tokens: np.ascontiguousarray(self.ids[:, start:end])}
        if spec.mask is not None:
            feeds[spec.mask.port] = np.ones((self.rows, end), dtype=NUMPY[spec.mask.dtype])
        feeds |= self.lengths_of((end - 1) * each, end)
        if spec.positions is not None:
            feeds[spec.positions[0]] = self._positions_of(np.tile(np.arange(start, end), (self.rows, 1)))
        if spec.last_position:
            feeds[spec.last_position] = np.full((self.rows, 1, 1), end - start - 1, dtype=np.int64)
        return feeds | self.counts_of(start * each, end * each, self.room.first if spec.shared else 0)

    def feed_rest(self) -> None:
        """Run the tokens of the prompt behind the first `first`, one by one; rows are equally long."""
        for place in range(self.first, self.width):
            self.tokens[:, 0] = self.ids[:, place]
            if self.places is not None:
                self._positions[...] = self.places[..., place : place + 1]
            self.advance()
        if self.first < self.width:
            self.lengths[:] = self.width
            self._positions[...] = self.first_positions()

    def first_positions(self) -> Array:
        """[rows, 1] or [3, rows, 1]: the position of each row's next token, behind the largest of the prompt."""
        if self.places is not None:
            own = np.where(
                np.arange(self.width) < self.lengths.reshape(-1, 1), self.places, 0
            )  # padding counts nowhere
            largest = own.max(axis=-1, keepdims=True)
            return self._positions_of(1 + (largest.max(axis=0) if largest.ndim == 3 else largest))
        return self._positions_of(self.lengths.reshape(-1, 1))

    def _positions_of(self, places: Array) -> Array:
        """The positions port's tensor. places: [rows, tokens]. Text stands at one place on all three axes."""
        _, dtype, rank = self.spec.positions or ("", "int64", 2)
        copies = (3,) if rank == 3 else ()
        return np.array(np.broadcast_to(places, (*copies, *places.shape)), dtype=NUMPY[dtype], order="C")

    def take_own_last(self, value: Value) -> None:
        """`logits` := each row's last valid position of a run's logits, [rows, positions, vocab] or [rows, vocab]."""
        dtype = self.spec.logits_dtype
        found = binding.as_bits(value, dtype) if dtype == "bfloat16" else to_array(value)
        if found.ndim == 3:
            last = self.lengths - 1 if found.shape[1] > 1 else np.zeros_like(self.lengths)
            with suppress(IndexError):  # fewer rows or positions than it was given: told by its shape
                found = found[np.arange(self.rows), last]
        self.logits[:] = run_logits(found, self.logits.shape, self.spec.origin)

    def failed(self, failure: Exception) -> ExecutionError:
        """ONNX Runtime's failure, naming the step."""
        return ExecutionError("step-failed", str(failure), origin=self.spec.origin)


Kind = Callable[[Decoder, Array, Array, int, int, Mapping[str, Value]], Decoding]
"""Makes a decoding: decoder, ids, lengths, limit, context, extras."""
