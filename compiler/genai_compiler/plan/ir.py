"""The Plan: what will run, as frozen data. Typed SSA with structured regions.

A value is a name. Every value has one `Type`; a name is defined once, by an input, an op, or a loop that carries it (the
loop's name of a cell means the current value inside the body and the final value after the loop; standard, section 2.9).
Ops keep the document path that asked for them in `origin`; it survives into generated code and tracebacks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from genai_compiler.plan.dtypes import SIZE

Dim = int | str | None
"""A fixed extent, a symbol, or unknown."""


@dataclass(frozen=True)
class Type:
    """dtype, symbolic shape (None: extents unknown), and the axis that holds one entry a request row (None: shared)."""

    dtype: str
    rank: int
    shape: tuple[Dim, ...] | None = None
    row_axis: int | None = None
    row_factor: int = 1

    def __str__(self) -> str:
        dims = ", ".join("?" if each is None else str(each) for each in self.dims)
        factor = f"*{self.row_factor}" if self.row_factor != 1 else ""
        rows = "" if self.row_axis is None else f" rows@{self.row_axis}{factor}"
        return f"{self.dtype}[{dims}]{rows}"

    @property
    def dims(self) -> tuple[Dim, ...]:
        """One entry an axis, None where the extent is unknown."""
        return self.shape if self.shape is not None else (None,) * self.rank

    def without(self, symbols: frozenset[str]) -> "Type":
        """The type with these symbols unknown."""
        return replace(self, shape=tuple(None if each in symbols else each for each in self.dims))

    def with_dim(self, axis: int, dim: Dim) -> "Type":
        """The type with another extent on one axis."""
        return replace(self, shape=(*self.dims[:axis], dim, *self.dims[axis + 1 :]))

    def joined(self, others: "Iterable[Type]") -> "Type":
        """What this type and others of its rank have in common: extents that differ become unknown."""
        dims = list(self.dims)
        for other in others:
            dims = [mine if mine == theirs else None for mine, theirs in zip(dims, other.dims, strict=False)]
        return replace(self, shape=tuple(dims))


@dataclass(frozen=True)
class Input:
    """A workflow input. `source` is request, application or literal; `role` the runtime role ("" when opaque)."""

    name: str
    type: Type
    role: str
    source: str
    application_name: str
    required: bool
    default: bool | int | float | tuple[bool | int | float, ...] | None
    present_as: str
    origin: str


@dataclass(frozen=True)
class Output:
    """A workflow output. `rowwise`: some emit into it is guarded or length-limited and it has a request axis (3.6)."""

    name: str
    type: Type
    role: str
    rowwise: bool
    origin: str


@dataclass(frozen=True)
class Component:
    """A graph one session runs: package-relative artifact, ports in graph order with the types the graph itself gives."""

    name: str
    artifact: str
    inputs: tuple[tuple[str, Type], ...]
    outputs: tuple[tuple[str, Type], ...]
    pure: bool
    overridable: bool
    origin: str
    replacements: "tuple[Replacement, ...]" = ()


@dataclass(frozen=True)
class Replacement:
    """A component that a request may put in another's place (standard, 3.10): (port of the target, its own port)."""

    component: str
    ports: tuple[tuple[str, str], ...]


Recurrence = Literal["invariant", "growing", "bounded"]


@dataclass(frozen=True)
class Cell:
    """A state cell: its shape law between iterations, where it lives between invocations, and its service group ("" none)."""

    name: str
    type: Type
    scope: str
    initializer: str
    recurrence: Recurrence
    axis: int
    increment: str
    maximum: str
    group: str
    origin: str


Storage = Literal["carried", "growing", "shared-buffer", "fixed"]


@dataclass(frozen=True)
class Slot:
    """One tensor of a decoder's state: fed at `past`, read at `present`. dims: -1 is the row axis, -2 the growth axis."""

    past: str
    present: str
    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class StateGroup:
    """Tensors that live and grow together, and how they are kept.

    storage: `carried` ordinary values; `growing` present becomes past, allocated by the session; `shared-buffer` past and
    present are one buffer with room to grow; `fixed` one buffer of the graph's own capacity. reason: why, in words.
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
class DecodeFacts:
    """How the runtime drives a decoder whose step the workflow leaves to it (contract autoregressive-decode, 10.3).

    extras: (port, value) pairs that stay the same for a whole request.
    """

    component: str
    tokens: str
    token_dtype: str
    mask: Mask | None
    positions: tuple[str, str] | None
    logits: str
    logits_dtype: str
    last_logits_only: bool
    group: str
    ragged: bool
    vocab_size: int
    extras: tuple[tuple[str, str], ...] = ()


# ---- ops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SymbolCheck:
    """Extents that one invoke's ports call by one symbol and that could not be proved equal: (value, axis, factor)."""

    symbol: str
    places: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class ExtentCheck:
    """A fixed extent that a value must have and that could not be proved."""

    value: str
    axis: int
    extent: int


@dataclass(frozen=True)
class CapacityCheck:
    """Writes into a fixed-capacity state (standard, 3.9): destinations and lengths within it, states exactly it.

    lengths is "" where no logical length is in scope; states are (value, sequence axis).
    """

    group: str
    destinations: str
    capacity: str
    lengths: str
    states: tuple[tuple[str, int], ...]


Check = SymbolCheck | ExtentCheck | CapacityCheck


@dataclass(frozen=True)
class Invoke:
    """One session run: (port, value) pairs in; (port, new value) pairs out. Checks run before (inputs) and after (outputs)."""

    component: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    origin: str
    before: tuple[Check, ...] = ()
    after: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Copy:
    """A binding component without an executor: every output is the input of the same name (standard, 2.4)."""

    component: str
    pairs: tuple[tuple[str, str], ...]
    origin: str


@dataclass(frozen=True)
class Decode:
    """One decoder pass whose state, mask and positions the runtime owns. phase `prompt` takes the request's tokens."""

    component: str
    group: str
    phase: Literal["prompt", "step"]
    tokens: str
    logits: str
    origin: str


@dataclass(frozen=True)
class SelectToken:
    """The runtime's token policy: logits in; token [rows, 1], liveness and per-row accepted length out."""

    logits: str
    token: str
    active: str
    done: str
    accepted: str
    origin: str


@dataclass(frozen=True)
class Emit:
    """Publish `value` to `output`. `when` and `valid_length` are "" when absent; `axis` is resolved."""

    value: str
    output: str
    mode: Literal["replace", "append", "event"]
    when: str
    valid_length: str
    axis: int
    rowwise: bool
    origin: str


@dataclass(frozen=True)
class Carry:
    """A cell's way through a loop. merge: inactive rows keep theirs (not for group cells).

    increment, maximum: the values that control a growing or bounded cell, "" for others.
    """

    cell: str
    initial: str
    next: str
    merge: bool
    increment: str = ""
    maximum: str = ""


@dataclass(frozen=True)
class Loop:
    """A pre-test loop. `advance` runs only between two iterations: after the body, when another iteration follows."""

    continue_when: str
    max_iterations: str
    body: "tuple[Op, ...]"
    carried: tuple[Carry, ...]
    termination: Literal["predicate", "generation_eos"]
    iteration: str
    origin: str
    advance: "tuple[Op, ...]" = ()


@dataclass(frozen=True)
class Join:
    """A branch's result: which value each case gives it; `default` is "" when the branch has none."""

    name: str
    cases: tuple[tuple[str, str], ...]
    default: str


@dataclass(frozen=True)
class Branch:
    """Choose one region by a one-element predicate: bool keys are `true`/`false`, integer keys decimal strings."""

    predicate: str
    cases: "tuple[tuple[str, tuple[Op, ...]], ...]"
    default: "tuple[Op, ...] | None"
    joins: tuple[Join, ...]
    origin: str


@dataclass(frozen=True)
class Release:
    """The last read of these values lies behind: their storage may go."""

    values: tuple[str, ...]
    origin: str = ""


Op = Invoke | Copy | Decode | SelectToken | Emit | Loop | Branch | Release


@dataclass(frozen=True)
class Plan:
    """A whole package. `types` has every value; `stores` what session cells hold after a run (cell, value);

    `decisions` says in words what passes chose and why, in order.
    """

    name: str
    dialect: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    components: tuple[Component, ...]
    cells: tuple[Cell, ...]
    groups: tuple[StateGroup, ...]
    decoder: DecodeFacts | None
    body: tuple[Op, ...]
    types: Mapping[str, Type]
    stores: tuple[tuple[str, str], ...]
    capabilities: tuple[str, ...]
    decisions: tuple[str, ...] = field(default=())

    def component(self, name: str) -> Component:
        """The component of that name; KeyError when there is none."""
        return _named(self.components, name)

    def cell(self, name: str) -> Cell:
        """The cell of that name; KeyError when there is none."""
        return _named(self.cells, name)

    def group(self, name: str) -> StateGroup:
        """The state group of that name; KeyError when there is none."""
        return _named(self.groups, name)


def regions(op: Op) -> Iterator[tuple[Op, ...]]:
    """The op lists nested directly in an op, in order of execution."""
    match op:
        case Loop():
            yield op.body
            yield op.advance
        case Branch():
            for _, ops in op.cases:
                yield ops
            yield op.default or ()
        case _:
            pass


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Every op, each before what it holds."""
    for op in ops:
        yield op
        for region in regions(op):
            yield from walk(region)


Named = TypeVar("Named", Component, Cell, StateGroup)


def _named(items: tuple[Named, ...], name: str) -> Named:
    for each in items:
        if each.name == name:
            return each
    raise KeyError(name)


def _per_token(slot: Slot) -> int:
    count = SIZE[slot.dtype]
    for dim in slot.dims:
        count *= dim if dim > 0 else 1
    return count if -2 in slot.dims else 0
