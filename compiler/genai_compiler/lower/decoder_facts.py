"""What is known of a single-graph decoder once its configuration and its graph have been brought together."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from genai_compiler.read.graph_facts import LengthSwitch, MaskUse
from genai_compiler.read.signature import Port, Signature

Aliasing = Literal["forbidden", "permitted", "required"]
PROMPT = "request.input_ids"
"""The workflow input of the request's tokens (standard, 10.3)."""

# Bytes of one element of the dtypes that caches are kept in.
ELEMENT_BYTES = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64"), 8),
}


@dataclass(frozen=True)
class StatePort:
    """One cache tensor [batch, heads, positions, head_dim]: `input` takes the past, `output` gives the present.

    capacity: the past length when the graph fixes it, None when it grows.
    """

    role: Literal["key", "value"]
    layer: int
    input: str
    output: str
    dtype: str
    heads: int
    head_dim: int
    capacity: int | None

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position of one row takes."""
        return self.heads * self.head_dim * ELEMENT_BYTES.get(self.dtype, 4)


@dataclass(frozen=True)
class CrossState(StatePort):
    """A cache over what an encoder made: the decoder's first run gives it, later ones take it. capacity: its extent."""


@dataclass(frozen=True)
class Flag:
    """An input that picks one network for the prompt and another for later tokens; later: its value there."""

    port: Port
    later: bool


@dataclass(frozen=True)
class CombinedState:
    """Keys and values of a layer in one tensor, [2, batch, heads, positions, head_dim], that grows."""

    layer: int
    input: str
    output: str
    dtype: str
    heads: int
    head_dim: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position of one row takes."""
        return 2 * self.heads * self.head_dim * ELEMENT_BYTES.get(self.dtype, 4)


@dataclass(frozen=True)
class FixedState:
    """One state tensor that each step replaces: `input` takes the last one, `output` gives the next.

    [batch, *shape], or with the rows between the extents of `shape`; axis: that of the rows.
    """

    layer: int
    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    axis: int = 0

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row, however long it gets."""
        return prod(self.shape) * ELEMENT_BYTES.get(self.dtype, 4)


@dataclass(frozen=True)
class StaticState:
    """One cache of the graph's own capacity, [batch, *shape], that a run updates at given positions.

    axis: the axis of positions, of the whole tensor; shape[axis - 1] is the capacity.
    """

    role: Literal["key", "value"]
    layer: int
    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    axis: int

    @property
    def capacity(self) -> int:
        """Positions it holds."""
        return self.shape[self.axis - 1]

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row, however long it gets."""
        return prod(self.shape) * ELEMENT_BYTES.get(self.dtype, 4)


@dataclass(frozen=True)
class StaticCache:
    """Caches of fixed capacity, and the ports that say where a run writes and how much is valid after it.

    write_indices, lengths: int [batch].
    """

    write_indices: Port
    lengths: Port
    states: tuple[StaticState, ...]


@dataclass(frozen=True)
class PagedState:
    """One cache in pages, [pages of all rows, block, heads, head_dim]; `block` positions a page, written in place.

    pages: as many as the longest text of one row needs.
    """

    role: Literal["key", "value"]
    layer: int
    input: str
    output: str
    dtype: str
    block: int
    heads: int
    head_dim: int
    pages: int = 1

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position of one row takes."""
        return self.heads * self.head_dim * ELEMENT_BYTES.get(self.dtype, 4)


@dataclass(frozen=True)
class PagedCache:
    """Caches in pages, and the ports that tell rows and pages apart; tokens of all rows stand in one axis.

    cumulative: int32 [rows + 1]; past: int32 [rows]; table: int32 [rows, pages a row]; metadata: int32 [2 or 3], bounds
    of the longest row.
    """

    cumulative: Port
    past: Port
    table: Port
    metadata: Port | None
    states: tuple[PagedState, ...]


_RESERVED = frozenset(("decoder", "token_policy", "packed_tokens", "request", "package")) | frozenset(
    ("application", "step", "body", "loop", "media", "given")
)


def component_of(model: str) -> str:
    """The component for a model beside the decoder: its own name, where the workflow has no other use for it."""
    return f"{model}_model" if model in _RESERVED else model


Role = Literal["past_sequence_length", "current_sequence_length", "total_sequence_length", "past_length"]


@dataclass(frozen=True)
class LengthPort:
    """An integer input of one number that tells a decoder its length. role: of the step's contract.

    past_length: of all rows, which are equally long; others are of a decoder of one row.
    """

    role: Role
    port: Port


@dataclass(frozen=True)
class ShiftedState:
    """One cache of which a run takes the past columns and gives the new ones; the oldest drop out.

    dims: numbers, "batch" for the rows and "positions" for the columns; axis: that of the columns.
    """

    role: Literal["key", "value"]
    layer: int
    input: str
    output: str
    dtype: str
    dims: tuple[int | str, ...]
    axis: int

    @property
    def bytes_per_column(self) -> int:
        """Bytes that one column of the only row takes."""
        return prod(each for each in self.dims if isinstance(each, int)) * ELEMENT_BYTES.get(self.dtype, 4)


@dataclass(frozen=True)
class CacheShift:
    """Caches that move by the new tokens: how many columns past and new ones are together, and what empty ones hold.

    first: the padding of a prompt stands before it, else behind it.
    """

    columns: int
    fill: int
    first: bool


@dataclass(frozen=True)
class PromptWindow:
    """A prompt goes in by so many tokens at a time; where it does not come out even, it is filled up with `pad`."""

    size: int
    pad: int


@dataclass(frozen=True)
class Extra:
    """An input of the decoder that is the same for a whole request. role: of the standard, "" for none.

    value: the workflow value that feeds it, "" when the application gives it.
    """

    role: str
    port: Port
    value: str = ""


@dataclass(frozen=True)
class FrontFacts:
    """The model that makes embeddings of tokens before every pass of the decoder.

    streams: (its output, the decoder's input). media: (its input, the value there with the prompt); with later tokens
    it takes an empty tensor. Its tokens are the decoder's `token_ids`. places_media: positions beside media are not
    those of text, so that the caller gives them. entries: its input -> the token in whose places its entries go.
    """

    name: str
    artifact: str
    streams: tuple[tuple[Port, Port], ...]
    media: tuple[tuple[Port, str], ...]
    places_media: bool = False
    entries: tuple[tuple[str, int], ...] = ()

    @property
    def component(self) -> str:
        """Its component in the workflow."""
        return component_of(self.name)


@dataclass(frozen=True)
class DecoderFacts:
    """A decoder graph and how to drive it.

    token_ids int [batch, sequence], or [batch] where a call takes one token a row; attention_mask int [batch, total];
    position_ids int [batch, sequence], or three copies of that, [3, batch, sequence], or [batch] as token_ids; logits
    float [batch, sequence | 1, vocabulary] or [batch, vocabulary]. hidden: an extra output that the package names.
    zero_inputs: int64 [1] inputs that are fed a constant 0. fixed_states: what each step replaces. max_sequence_length:
    positions that prompt and output may have together. vocab_size: width of a row of logits, None when nobody says.
    sampled_ids: only ids below it may be chosen. one_token: a call takes one token a row, so a prompt goes in one by
    one.
    static_cache: caches that a call updates at given positions. windows: caches of one size whose operator drops what
    left its window. combined: caches that hold keys and values together. extras: what stays the same for a request.
    paged: caches in pages, over tokens of all rows in one axis: token_ids int [tokens], position_ids int [tokens] or
    [3, tokens], logits float [tokens, vocabulary] or [batch, vocabulary]. lengths: inputs that tell one row its length;
    window: how its prompt is cut. unread: inputs that no node reads. front: what the tokens go through first. prompt:
    the workflow input that the decoder starts from; start: the token there when nobody gives one, None when nobody
    says. mask_use: see read.graph_facts. aliasing: whether past and present may (or must) be one buffer. flag: what
    picks a network; crossed: the caches that the network for the prompt alone gives. shifted: caches that drop their
    oldest columns; shift: how they move. own_tokens: the decoder's own input for the ids of which a front makes
    embeddings, [batch, sequence], None where embeddings are all it takes of them.
    """

    artifact: str
    signature: Signature
    token_ids: Port
    attention_mask: Port | None
    position_ids: Port | None
    logits: Port
    hidden: Port | None
    zero_inputs: tuple[Port, ...]
    states: tuple[StatePort, ...]
    fixed_states: tuple[FixedState, ...]
    aliasing: Aliasing
    max_sequence_length: int
    vocab_size: int | None
    sampled_ids: int | None
    mask_use: MaskUse
    last_token_only: bool
    one_token: bool
    length_switches: tuple[LengthSwitch, ...]
    static_cache: StaticCache | None = None
    windows: tuple[StaticState, ...] = ()
    combined: tuple[CombinedState, ...] = ()
    extras: tuple[Extra, ...] = ()
    unread: tuple[Port, ...] = ()
    front: FrontFacts | None = None
    prompt: str = PROMPT
    start: int | None = None
    paged: PagedCache | None = None
    lengths: tuple[LengthPort, ...] = ()
    window: PromptWindow | None = None
    flag: Flag | None = None
    crossed: tuple[CrossState, ...] = ()
    shifted: tuple[ShiftedState, ...] = ()
    shift: CacheShift | None = None
    own_tokens: Port | None = None

    @property
    def flat(self) -> bool:
        """Whether the token ids are [batch], one of each row, without an axis of tokens."""
        return self.paged is None and self.token_ids.shape is not None and len(self.token_ids.shape) == 1

    @property
    def paged_states(self) -> tuple[PagedState, ...]:
        """The caches in pages, () when there are none."""
        return self.paged.states if self.paged is not None else ()

    @property
    def static_states(self) -> tuple[StaticState, ...]:
        """The caches of fixed capacity, () when there are none."""
        return self.static_cache.states if self.static_cache is not None else ()

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes of all caches for one position of one row."""
        grown: tuple[StatePort | CombinedState | PagedState, ...] = (
            *self.states,
            *self.combined,
            *self.paged_states,
        )
        return sum(each.bytes_per_token for each in grown)

    @property
    def fixed_capacity(self) -> int | None:
        """The cache length that the graph fixes, None when caches grow."""
        return next((each.capacity for each in self.states if each.capacity is not None), None)


def told_cache(facts: DecoderFacts) -> str:
    """What caches cost and how far they go, for the notes; without caches how far positions go."""
    size, most = facts.cache_bytes_per_token, facts.max_sequence_length
    return f"cache: {size} bytes a token and row, up to {most} positions" if size else f"positions: up to {most}"
