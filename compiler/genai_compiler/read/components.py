"""Invokable things and the effects they touch (sections 2.4, 2.5 of the metadata standard)."""

from typing import Annotated, Literal

from pydantic import Field

from genai_compiler.read.contracts import TensorContract
from genai_compiler.read.fields import Closed, Count, Items, Scalar, Tagged, UniqueNames


class OnnxImplementation(Tagged):
    """An ONNX graph of the package, `artifact` relative to its root."""

    kind: Literal["onnx"] = "onnx"
    artifact: str


class AdapterImplementation(Tagged):
    """A native implementation chosen by its exact (`abi`, `version`)."""

    kind: Literal["adapter"] = "adapter"
    abi: str
    version: str
    artifact: str | None = None


class BindingImplementation(Tagged):
    """A step the runtime supplies by contract, or else an identity of equally named ports."""

    kind: Literal["binding"] = "binding"


Implementation = Annotated[
    OnnxImplementation | AdapterImplementation | BindingImplementation, Field(discriminator="kind")
]
PortRole = Literal[
    "token_ids", "inputs_embeds", "attention_mask", "position_ids", "logits", "hidden_states",
    "encoder_hidden_states", "audio_features",
]  # fmt: skip


class Ports(Closed):
    """Declared ports; an ONNX component that declares none takes them from its graph."""

    inputs: dict[str, TensorContract] = Field(default_factory=dict)
    outputs: dict[str, TensorContract] = Field(default_factory=dict)
    roles: dict[str, PortRole] = Field(default_factory=dict)


class ComponentContract(Closed):
    """The semantics label of a component: contract `id` and `version`, its roles bound to ports, its parameters."""

    id: str
    version: str
    equivalence: Literal["bitwise", "distribution_preserving", "semantic"] = "semantic"
    bindings: dict[str, str] = Field(default_factory=dict)
    parameters: dict[str, Scalar] = Field(default_factory=dict)


class RowScope(Closed):
    """The row axis by which a runtime may compact or release rows of this component."""

    axis: Count
    stateful: bool = False


class Component(Closed):
    """One invokable thing of a workflow."""

    implementation: Implementation
    ports: Ports = Ports()
    contract: ComponentContract | None = None
    application_overridable: bool = False
    effects: Items[str] = ()
    row_scope: RowScope | None = None
    cache_affects_state: UniqueNames = ()


class NoSafety(Tagged):
    """The effect can be neither cloned nor undone."""

    kind: Literal["none"] = "none"


class Clonable(Tagged):
    """The effect's state can be copied before a speculative block."""

    kind: Literal["clonable"] = "clonable"


class Rewindable(Tagged):
    """The effect can be undone by up to `max_depth` steps."""

    kind: Literal["rewindable"] = "rewindable"
    max_depth: Count


SpeculationSafety = Annotated[NoSafety | Clonable | Rewindable, Field(discriminator="kind")]


class EffectContract(Closed):
    """One external mutation domain."""

    retry: Literal["pure", "idempotent", "transactional", "non_retryable"]
    speculation_safety: SpeculationSafety = NoSafety()
