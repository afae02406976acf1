"""State of a decoder as facts: which tensors live and grow together, where they are kept, how its step is driven."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from genai_compiler.plan.dtypes import SIZE

ROWS, GROWTH, PAGES = -1, -2, -3
"""Marks in a slot's dims: the axis of request rows, one that holds an entry a token, one that holds pages of tokens."""

Storage = Literal["growing", "constant", "once", "shared-buffer", "pages", "shifted"]


@dataclass(frozen=True)
class Slot:
    """One tensor of a decoder's state: fed at `past`, read at `present`. dims: numbers, ROWS, GROWTH, PAGES.

    once: what the first run gives is fed ever after (cross-attention); its GROWTH is no token's.
    """

    past: str
    present: str
    dtype: str
    dims: tuple[int, ...]
    once: bool = False


@dataclass(frozen=True)
class StateGroup:
    """Tensors that live and grow together, and how they are kept.

    storage: `growing` present becomes past, allocated by the session; `constant` the same, of one size; `once` what the
    first run gives stays past; `shared-buffer` past and present are one buffer, with room to grow or of the graph's own
    capacity; `pages` one buffer, too, of pages that a table gives to rows; `shifted` a run gives the new entries alone,
    the oldest of `capacity` drop out. reason: why, in words.
    """

    name: str
    component: str
    storage: Storage
    slots: tuple[Slot, ...]
    capacity: int | None
    reason: str
    origin: str

    @property
    def bytes_per_token(self) -> int:
        """Bytes one more token of one row costs, over all slots."""
        return sum(_per_token(each) for each in self.slots)

    @property
    def bytes_per_row(self) -> int | None:
        """Bytes of one row where every slot keeps its size, None where any grows."""
        if any({GROWTH, PAGES} & {*each.dims} for each in self.slots):
            return None
        return sum(SIZE[each.dtype] * prod(dim for dim in each.dims if dim > 0) for each in self.slots)

    @property
    def size(self) -> str:
        """What it takes, in words."""
        if self.bytes_per_row is not None:
            return f"{self.bytes_per_row} bytes a row"
        if all(each.once for each in self.slots):
            return "as large as the first run makes it"
        return f"{self.bytes_per_token} bytes a token"


@dataclass(frozen=True)
class Mask:
    """The attention-mask port. use: `lengths` only row sums and width matter; `columns` each column does.

    constant_width: its width reaches nothing but in-place attention, so one buffer of full capacity may stay bound.
    """

    port: str
    dtype: str
    use: Literal["lengths", "columns"]
    constant_width: bool


@dataclass(frozen=True)
class FedLengths:
    """Ports in the place of a mask that is read by its lengths alone: each row's last position, int32 [rows], and how
    wide the mask would be, int32 [1].
    """

    last: str
    width: str


@dataclass(frozen=True)
class Count:
    """A port that takes one number a row. kind: `written` positions before a run, or `valid` ones after it.

    `past`: positions before a run, [1], the same of all rows. For a decoder of one row: `last` is one less than
    `valid`, [1, 1]; `current` is `valid`, [1]; `room` how many positions the caches have room for, [1].
    """

    port: str
    dtype: str
    kind: Literal["written", "valid", "past", "last", "current", "room"]


LENGTHS_OF_ALL_ROWS: Mapping[str, Literal["past"]] = {"past_length": "past"}
LENGTHS_OF_ONE_ROW: Mapping[str, Literal["last", "current", "room"]] = {
    "past_sequence_length": "last",
    "current_sequence_length": "current",
    "total_sequence_length": "room",
}
"""Role that the step's contract binds -> kind of count; so above."""


@dataclass(frozen=True)
class Window:
    """A prompt goes in by `size` tokens a run; the last run is filled up with the token `pad`."""

    size: int
    pad: int


@dataclass(frozen=True)
class Shift:
    """Caches move by what a run adds: past and new columns together, what empty ones hold, and where padding stands.

    first: the padding of a prompt stands before it, else behind it.
    """

    columns: int
    fill: int
    first: bool


@dataclass(frozen=True)
class Front:
    """The component that makes embeddings of tokens before every pass.

    streams: (its output, the decoder's input); (its input for tokens, the decoder's) where the decoder takes them too.
    """

    component: str
    streams: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pages:
    """How a decoder over packed rows is told which tokens and which pages are whose.

    Ports in pairs with their dtype. cumulative: where rows begin and end among the tokens, [rows + 1]; past: positions
    of each row before a run, [rows]; table: its pages, [rows, pages]; bounds: (port, dtype, how many) of the longest
    row, None where the graph does without. block: positions a page. per_token: there are logits of every token, else
    of each row's last.
    """

    cumulative: tuple[str, str]
    past: tuple[str, str]
    table: tuple[str, str]
    bounds: tuple[str, str, int] | None
    block: int
    per_token: bool


@dataclass(frozen=True)
class DecodeFacts:
    """How the runtime drives a decoder whose step the workflow leaves to it (contract autoregressive-decode, 10.3).

    positions: (port, dtype, rank): rank 2 is [rows, tokens], rank 3 three equal copies of that. one_token: a run takes
    one token a row, so that a prompt goes in one by one; flat: and its port of tokens is [rows], as positions are then.
    last_position: the port that says which position of each row the logits are of, "" where the graph gives all.
    logits_rank: 3 is [rows, positions, vocab], 2 [rows, vocab].
    counts: ports that tell where a run writes its caches. front: what takes the tokens where the decoder takes
    embeddings; `tokens` is then its port. switched: ports of its own take one value with the prompt and another with
    later tokens. pages: rows are packed into one axis and caches kept in pages; positions are then [tokens] or
    [3, tokens], logits [tokens, vocab] or [rows, vocab]. prompt_component: what runs with the prompt, "" where it is
    the same; one_by_step: but for a prompt of one token. window: how prompts are cut. shift: how caches move. alone: it
    takes one row a run. by_graph: ways of drawing a token that a graph of ours takes unless a caller wants it
    otherwise; None where there are no such graphs. switch: positions for which the graph takes its first tables, 0
    where it has one set. lengths: what is fed in the place of a mask (pass feed_lengths). chunk: tokens of one row's
    prompt that a run takes unless a caller wants it otherwise, 0 for all. left: ports of which what the last run gave
    is read behind the loop.
    """

    component: str
    tokens: str
    token_dtype: str
    mask: Mask | None
    positions: tuple[str, str, int] | None
    logits: str
    logits_dtype: str
    last_logits_only: bool
    ragged: bool
    vocab_size: int
    one_token: bool
    last_position: str = ""
    logits_rank: int = 3
    counts: tuple[Count, ...] = ()
    front: Front | None = None
    switched: bool = False
    pages: Pages | None = None
    prompt_component: str = ""
    one_by_step: bool = False
    window: Window | None = None
    alone: bool = False
    switch: int = 0
    shift: Shift | None = None
    by_graph: tuple[str, ...] | None = None
    lengths: FedLengths | None = None
    flat: bool = False
    chunk: int = 0
    left: tuple[str, ...] = ()


def _per_token(slot: Slot) -> int:
    count = SIZE[slot.dtype]
    paged = PAGES in slot.dims
    for dim in slot.dims[2:] if paged else slot.dims:  # [pages, positions a page, ...]
        count *= dim if dim > 0 else 1
    return count if paged or (GROWTH in slot.dims and not slot.once) else 0
