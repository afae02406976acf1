"""Driving a decoder whose step the workflow leaves to the runtime: state, mask, positions (standard, 10.3).

Rows are right-padded and each is read at its own last position. `logits`, `tokens` and every other buffer stay the same
arrays for the whole request, so that a step is a few stores and one session run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from genai_runtime import binding
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.request import Request
from genai_runtime.sample import to_float32
from genai_runtime.sessions import Sessions
from genai_runtime.state import Room, Slot
from genai_runtime.values import NUMPY, Array, Value, to_array


@dataclass(frozen=True)
class Mask:
    """The attention-mask port. columns: each column counts, else sums and width; fixed: its width may stay capacity."""

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
        """State for one request. tokens: integer [rows, longest prompt], right-padded; limit: new tokens at most.

        Raises RequestError `empty-prompt`, `ragged-rows`.
        """
        from genai_runtime.growing import GrowingDecoding
        from genai_runtime.in_place import InPlaceDecoding

        ids, lengths = to_array(tokens), request.prompt_lengths
        if not ids.size:
            raise RequestError("empty-prompt", "the prompt has no tokens", help="give at least one token a row")
        valid = np.asarray(lengths if lengths is not None else (ids.shape[1],) * ids.shape[0], dtype=np.int64)
        if not self.spec.ragged and (valid != ids.shape[1]).any():
            what = "this decoder has no way to tell rows of different length apart"
            raise RequestError("ragged-rows", what, help="run the rows one by one")
        kind = InPlaceDecoding if self.spec.shared else GrowingDecoding
        return kind(self, ids, valid, limit, request.context_length, extras or {})


class Decoding:
    """One request in flight. `logits` is float32 [rows, vocab]; `tokens` [rows, 1] is what the next `advance` feeds.

    advance: feeds `tokens`; `logits` then holds what follows them. It is a closure over the request's buffers.
    """

    advance: Callable[[], None]

    def __init__(
        self, decoder: Decoder, ids: Array, lengths: Array, limit: int, context: int, extras: Mapping[str, Value]
    ) -> None:
        spec = self.spec = decoder.spec
        self.session, self.extras = decoder.session, extras
        self.rows, self.width = ids.shape
        self.ids, self.lengths = np.ascontiguousarray(ids.astype(NUMPY[spec.token_dtype])), lengths
        longest = int(lengths.max())
        self.room = Room(longest, min(longest + limit, spec.capacity or context or longest + limit), spec.capacity)
        self.tokens = np.zeros((self.rows, 1), dtype=NUMPY[spec.token_dtype])
        self.logits = np.zeros((self.rows, spec.vocab_size), dtype=np.float32)

    def prompt(self) -> None:
        """Run the whole prompt; `logits` then holds each row's own last position."""
        raise NotImplementedError

    def prompt_feeds(self) -> dict[str, Array]:
        """Ids, mask and positions of the prompt, by port."""
        spec = self.spec
        valid = np.arange(self.width) < self.lengths.reshape(-1, 1)
        feeds = {spec.tokens: self.ids}
        if spec.mask is not None:
            feeds[spec.mask.port] = np.ascontiguousarray(valid.astype(NUMPY[spec.mask.dtype]))
        if spec.positions is not None:
            port, dtype = spec.positions
            feeds[port] = np.ascontiguousarray(np.where(valid, np.arange(self.width), 0).astype(NUMPY[dtype]))
        return feeds

    def first_positions(self) -> Array:
        """[rows, 1]: the position of each row's first new token."""
        dtype = NUMPY[self.spec.positions[1]] if self.spec.positions is not None else np.int64
        return self.lengths.reshape(-1, 1).astype(dtype)

    def take_own_last(self, value: Value) -> None:
        """`logits` := each row's last valid position of a run's logits, [rows, positions, vocab] or [rows, vocab]."""
        dtype = self.spec.logits_dtype
        found = binding.as_bits(value, dtype) if dtype == "bfloat16" else to_array(value)
        if found.ndim == 3:
            last = self.lengths - 1 if found.shape[1] > 1 else np.zeros_like(self.lengths)
            found = found[np.arange(self.rows), last]
        self.logits[:] = to_float32(found)

    def failed(self, failure: Exception) -> ExecutionError:
        """ONNX Runtime's failure, naming the step."""
        return ExecutionError("step-failed", str(failure), origin=self.spec.origin)
