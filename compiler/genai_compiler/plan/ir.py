"""The Plan: what will run, as frozen data. Typed SSA with structured regions.

A value is a name. Every value has one `Type`; a name is defined once, by an input, an op, or a loop that carries it
(the loop's name of a cell means the current value inside the body and the final value after the loop; standard, 2.9).
Ops keep the document path that asked for them in `origin`; it survives into generated code and tracebacks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from genai_compiler.plan.adapted import SelectAdapters
from genai_compiler.plan.audio_program import AudioProgram
from genai_compiler.plan.boundary import Boundary
from genai_compiler.plan.decoder_ops import Decode as Decode
from genai_compiler.plan.decoder_ops import LastRun as LastRun
from genai_compiler.plan.decoder_ops import SelectToken as SelectToken
from genai_compiler.plan.decoder_ops import SpeculativeBlock as SpeculativeBlock
from genai_compiler.plan.decoder_ops import StartPolicy as StartPolicy
from genai_compiler.plan.edits import Edit, Parts
from genai_compiler.plan.extent_checks import CapacityCheck as CapacityCheck
from genai_compiler.plan.extent_checks import Check as Check
from genai_compiler.plan.extent_checks import ExtentCheck as ExtentCheck
from genai_compiler.plan.extent_checks import FormCheck as FormCheck
from genai_compiler.plan.extent_checks import SymbolCheck as SymbolCheck
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.image_program import ImageProgram
from genai_compiler.plan.placement import Placement
from genai_compiler.plan.speculation import Speculation
from genai_compiler.plan.state import DecodeFacts, StateGroup
from genai_compiler.read.host_program import HostProgram
from genai_compiler.read.signature import UNDEFINED
from genai_compiler.read.single_numbers import NumberProgram

Dim = int | str | None
"""A fixed extent, a symbol, or unknown."""


Form = Literal["", "fused", "own", "host"]
"""How a component runs: linked with others, by a session of its own, or by numpy."""


@dataclass(frozen=True)
class Type:
    """dtype, symbolic shape (None: extents unknown), and the axis that holds one entry a request row (None: shared).

    ranked: False where a graph leaves the rank of a port open and no contract says it; `rank` is 0 then and means
    nothing.
    """

    dtype: str
    rank: int
    shape: tuple[Dim, ...] | None = None
    row_axis: int | None = None
    row_factor: int = 1
    ranked: bool = True

    def __str__(self) -> str:
        if not self.ranked:
            return f"{self.dtype}[...]"
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

    def joined(self, others: "Sequence[Type]") -> "Type":
        """What this type and others of its rank have in common: what differs becomes unknown."""
        dims = list(self.dims)
        for other in others:
            dims = [mine if mine == theirs else None for mine, theirs in zip(dims, other.dims, strict=False)]
        dtype = self.dtype if all(each.dtype == self.dtype for each in others) else UNDEFINED
        if not self.ranked or not all(each.ranked for each in others):
            return Type(dtype, 0, (), ranked=False)
        return replace(self, dtype=dtype, shape=tuple(dims))


@dataclass(frozen=True)
class Input:
    """A workflow input. `source` is request, application or literal; `role` the runtime role ("" when opaque).

    held: the session cell whose stored value takes its place for steps ("" for none). limits: (axis, least, most) of
    extents that a graph's own tables bound; patches: (pixels of an edge, how many a picture has), likewise. entries:
    how many token ids there are, of an input that holds such; 0 where that is not known.
    """

    name: str
    type: Type
    role: str
    source: str
    application_name: str
    required: bool
    default: bool | int | float | tuple[bool | int | float, ...] | None
    present_as: str
    origin: str
    held: str = ""
    limits: tuple[tuple[int, int, int], ...] = ()
    patches: tuple[int, int] | None = None
    entries: int = 0


@dataclass(frozen=True)
class Output:
    """A workflow output. `rowwise`: some emit into it is guarded or length-limited and it has a request axis (3.6)."""

    name: str
    type: Type
    role: str
    rowwise: bool
    origin: str
    value_range: str = ""


@dataclass(frozen=True)
class Component:
    """A graph one session runs: package-relative artifact, ports in graph order with the types that the graph gives.

    Components that are no graph have no artifact; `adapter` says which native code runs instead. edit: how the graph
    that runs differs from the artifact. form: how it is to run, "" where nothing has been decided (pass choose_forms);
    host: what numpy does in its place. parts: the two graphs that run instead, a session each.
    """

    name: str
    artifact: str
    inputs: tuple[tuple[str, Type], ...]
    outputs: tuple[tuple[str, Type], ...]
    pure: bool
    overridable: bool
    origin: str
    replacements: "tuple[Replacement, ...]" = ()
    adapter: "Adapter | None" = None
    edit: Edit | None = None
    form: Form = ""
    host: HostProgram | None = None
    parts: Parts | None = None

    @property
    def sessions(self) -> tuple[str, ...]:
        """The names of the graphs that sessions open for it."""
        return self.parts.names if self.parts is not None else (self.name,)


@dataclass(frozen=True)
class Adapter:
    """Native code behind a component: `name@version`, its contract's parameters, (role, port) pairs, what it runs."""

    abi: str
    parameters: tuple[tuple[str, bool | int | float | str], ...]
    roles: tuple[tuple[str, str], ...]
    program: AudioProgram | GraphProgram | ImageProgram | None = None

    def role(self, port: str) -> str:
        """The role of a port, or its own name when no role is bound to it."""
        return next((role for role, bound in self.roles if bound == port), port)


@dataclass(frozen=True)
class Replacement:
    """A component that a request may put in another's place (standard, 3.10): (port of the target, its own port)."""

    component: str
    ports: tuple[tuple[str, str], ...]


Recurrence = Literal["invariant", "growing", "bounded"]


@dataclass(frozen=True)
class Cell:
    """A state cell: its shape law between iterations, its life between invocations, its service group ("" none)."""

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


# ---- ops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Invoke:
    """One session run: (port, value) pairs in, (port, new value) pairs out; checks of inputs before, outputs after.

    held: the group of cells that the run updates in place, "" for none. adapted: the value that says which adapters
    change it, "" for none. steady: its results keep their extents, and nobody needs them behind the next iteration.
    numbers: what it computes for one row that has settled.
    """

    component: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    origin: str
    before: tuple[Check, ...] = ()
    after: tuple[Check, ...] = ()
    held: str = ""
    adapted: str = ""
    steady: bool = False
    numbers: NumberProgram | None = None


@dataclass(frozen=True)
class Fused:
    """An island with members that a request may replace: `run` when it replaces nothing, else the members in order."""

    run: Invoke
    members: tuple[Invoke, ...]
    origin: str


@dataclass(frozen=True)
class Copy:
    """A binding component without an executor: every output is the input of the same name (standard, 2.4).

    merges: with its first two axes taken together, in order.
    """

    component: str
    pairs: tuple[tuple[str, str], ...]
    origin: str
    merges: bool = False


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
    """A cell's way through a loop. merge: inactive rows keep theirs (no group cells). declared: the cell's own name.

    increment, maximum: the values that control a growing or bounded cell, "" for others. proved: the next value of this
    invariant cell has its shape in every run.
    """

    cell: str
    initial: str
    next: str
    merge: bool
    increment: str = ""
    maximum: str = ""
    declared: str = ""
    proved: bool = False


@dataclass(frozen=True)
class Loop:
    """A pre-test loop. `advance` runs only between two iterations: after the body, when another iteration follows.

    released_on_entry: values that only its entry reads, whose storage may go once the cells have them. steady: values
    of the body that have the same extents in every iteration, when no request replaces a component.
    """

    continue_when: str
    max_iterations: str
    body: "tuple[Op, ...]"
    carried: tuple[Carry, ...]
    termination: Literal["predicate", "generation_eos"]
    iteration: str
    origin: str
    advance: "tuple[Op, ...]" = ()
    released_on_entry: tuple[str, ...] = ()
    steady: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class Keep:
    """From here on the session's cell holds this value; it is stored when the invocation succeeds (standard, 3.8)."""

    cell: str
    value: str
    origin: str


@dataclass(frozen=True)
class Hold:
    """Before a loop: a component takes cells over into buffers that it updates in place (pass hold_state).

    cells: (declared name, initial value); pairs: (past port, present port) a cell; lengths: (kind, port): which
    inputs tell lengths (genai_runtime.held.HeldSpec); axis: the sequence axis; run: the invoke that uses the buffers.
    """

    group: str
    cells: tuple[tuple[str, str], ...]
    pairs: tuple[tuple[str, str], ...]
    lengths: tuple[tuple[str, str], ...]
    max_iterations: str
    axis: int
    run: Invoke
    origin: str


@dataclass(frozen=True)
class CheckHeld:
    """At the end of an iteration: the held cells' extent is within `maximum`."""

    group: str
    maximum: str
    origin: str


Op = (
    Invoke | Fused | SelectAdapters | Copy | Decode | StartPolicy | SelectToken | SpeculativeBlock | Emit | Loop
    | Branch | Release | Keep | Hold | CheckHeld | LastRun
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """A whole package. `types` has every value; `decisions` says in words what passes chose and why, in order."""

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
    capabilities: tuple[str, ...]
    placements: tuple[Placement, ...] = ()
    decisions: tuple[str, ...] = field(default=())
    boundaries: tuple[Boundary, ...] = ()
    speculation: Speculation | None = None

    def component(self, name: str) -> Component:
        """The component of that name; KeyError when there is none."""
        return self._components[name]

    def cell(self, name: str) -> Cell:
        """The cell of that name; KeyError when there is none."""
        return self._cells[name]

    @cached_property
    def _components(self) -> Mapping[str, Component]:
        return {each.name: each for each in reversed(self.components)}

    @cached_property
    def _cells(self) -> Mapping[str, Cell]:
        return {each.name: each for each in reversed(self.cells)}
