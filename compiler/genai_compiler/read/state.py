"""State cells, and the storage a runtime serves them from (sections 2.6, 2.7 of the metadata standard)."""

from typing import Annotated, Literal

from pydantic import Field

from genai_compiler.read.contracts import TensorContract
from genai_compiler.read.fields import Closed, Count, Name, Tagged, UniqueNames


class Invariant(Tagged):
    """The shape never changes."""

    kind: Literal["invariant"] = "invariant"


class Growing(Tagged):
    """`axis` grows by the value `increment` each iteration, up to the value `max`."""

    kind: Literal["growing"] = "growing"
    axis: Count
    increment: str
    max: str


class Bounded(Tagged):
    """`axis` varies freely up to the value `max`."""

    kind: Literal["bounded"] = "bounded"
    axis: Count
    max: str


Recurrence = Annotated[Invariant | Growing | Bounded, Field(discriminator="kind")]


class PromptPrefix(Tagged):
    """The cell is the conversation as token ids: it precedes `prompt_input` and collects `tokens_output` (3.8)."""

    kind: Literal["prompt_prefix"]
    prompt_input: str
    tokens_output: str


class SessionLease(Closed):
    """How a session holds the cell between turns."""

    policy: Literal["exclusive", "copy_on_write"] = "exclusive"
    ttl_seconds: Count | None = None
    optimistic_metadata_version: bool = False
    continuation: PromptPrefix | None = None


class StateCell(Closed):
    """A named recurrent value. `state_class` is the document's `class`."""

    contract: TensorContract
    state_class: Literal["semantic", "advisory"] = Field("semantic", alias="class")
    scope: Literal["invocation", "session"]
    initializer: str
    recurrence: Recurrence
    management: Literal["workflow", "runtime", "external"] = "workflow"
    release_boundary: Literal["invocation", "session", "row"] | None = None
    service_group: str | None = None
    session: SessionLease | None = None


class AppendUpdate(Tagged):
    """The graph returns past and new positions together."""

    kind: Literal["append"] = "append"


class ReplaceUpdate(Tagged):
    """The graph returns a whole new state of the same shape."""

    kind: Literal["replace"] = "replace"


class IndexedScatter(Tagged):
    """The graph writes new positions at `write_indices` (a cell) into a cache of `capacity` positions (a value)."""

    kind: Literal["indexed_scatter"] = "indexed_scatter"
    write_indices: Name
    capacity: Name
    write_indices_ports: dict[str, str] = Field(default_factory=dict)
    kv_length_ports: dict[str, str] = Field(default_factory=dict)


StateUpdate = Annotated[AppendUpdate | ReplaceUpdate | IndexedScatter, Field(discriminator="kind")]


class StateReuse(Closed):
    """Whether a prefix of the state may serve another request."""

    prefix_reusable: bool = False
    evictable_prefix: bool = False


class StateCapabilities(Closed):
    """What the runtime may do with the group's storage."""

    rollback_positions: Count | None = None
    snapshot: bool = False
    fork: bool = False
    cascade: UniqueNames = ()


class Checkpoint(Closed):
    """The adapter that exports runtime-owned state."""

    adapter: Name
    version: Name


class StatePortAlias(Closed):
    """Which ports of a component read and write one cell of a group."""

    input: str
    output: str | None = None
    access: Literal["read_write", "read_only"] = "read_write"
    role: Literal["key", "value", "combined"] | None = None
    layer: Count | None = None


StateKind = Literal[
    "full_attention", "sliding_attention", "multi_latent_attention", "recurrent", "cross_attention", "encoder"
]


class StateGroup(Closed):
    """Cells that share storage, lengths and update. `ports` maps component -> cell -> alias."""

    kind: StateKind
    sequence_axis: Count | None = None
    layout: str
    logical_lengths: str | None = None
    aliasing: Literal["forbidden", "permitted", "required"] = "forbidden"
    update: StateUpdate | None = None
    total_length: str | None = None
    reuse: StateReuse = StateReuse()
    capabilities: StateCapabilities = StateCapabilities()
    checkpoint: Checkpoint | None = None
    ports: dict[str, dict[str, StatePortAlias]] = Field(default_factory=dict)


class StateService(Closed):
    """The state-service groups by name."""

    groups: dict[str, StateGroup] = Field(default_factory=dict)


class Serving(Closed):
    """Row liveness (value names) and the state service."""

    active: str
    done: str
    accepted_len: str | None = None
    state_service: StateService
