"""Tensor contracts, and what enters and leaves a workflow (sections 2.1-2.3 of the metadata standard)."""

from typing import Annotated, Literal

from pydantic import Field

from genai_compiler.read.fields import Closed, Count, Count16, Count32, Dimension, Items, LiteralValue, Tagged
from genai_compiler.read.vocabularies import TensorDType


class Shared(Tagged):
    """The same value for every request row."""

    kind: Literal["shared"] = "shared"


class RequestAligned(Tagged):
    """One entry per request row along `axis`."""

    kind: Literal["request_aligned"] = "request_aligned"
    axis: Count


class RequestExpanded(Tagged):
    """`factor` consecutive entries per request row along `axis` (guidance rows); extent = rows x factor."""

    kind: Literal["request_expanded"] = "request_expanded"
    axis: Count
    factor: Count


class TokenPacked(Tagged):
    """A ragged concatenation along `axis`; `offsets` and `owner` name the values that split it into rows."""

    kind: Literal["token_packed"] = "token_packed"
    offsets: str
    owner: str
    axis: Count


class RuntimeSequenceState(Tagged):
    """Per-sequence storage that only the runtime sees."""

    kind: Literal["runtime_sequence_state"] = "runtime_sequence_state"


BatchLayout = Annotated[
    Shared | RequestAligned | RequestExpanded | TokenPacked | RuntimeSequenceState, Field(discriminator="kind")
]


class TensorContract(Closed):
    """What a tensor looks like. `shape` None = unknown dims; an entry is a fixed extent or a symbol."""

    dtype: TensorDType
    rank: Count
    shape: Items[Dimension] | None = None
    optional: bool = False
    batch_layout: BatchLayout = Shared()


RoleName = Literal[
    "prompt_text", "prompt_tokens", "negative_prompt_text", "negative_prompt_tokens", "media",
    "max_iterations", "max_output_tokens", "seed", "guidance_scale", "width", "height", "denoising_strength",
    "sampling_temperature", "sampling_top_k", "sampling_top_p", "sampling_min_p", "constraint", "session_id",
    "row_selection", "adapter_segments", "adapter_counts", "adapter_scales", "adapter_active", "eos_token_ids",
]  # fmt: skip


class RuntimeRole(Tagged):
    """The input is a known request field; `version` is free text except for adapter selection inputs."""

    kind: Literal["runtime"] = "runtime"
    version: str
    role: RoleName


class OpaqueRole(Tagged):
    """The input means something to the package only."""

    kind: Literal["opaque"] = "opaque"


class RequestSource(Tagged):
    """Derived from the request by role, or supplied under the input's own name."""

    kind: Literal["request"] = "request"


class ApplicationSource(Tagged):
    """Supplied by the application under `name` (or the input's own name)."""

    kind: Literal["application"] = "application"
    name: str


class LiteralSource(Tagged):
    """Always the input's `default`, unless supplied under the input's own name."""

    kind: Literal["literal"] = "literal"


class ArtifactSource(Tagged):
    """A file of the package, `path` relative to its root."""

    kind: Literal["artifact"] = "artifact"
    path: str


InputRole = Annotated[RuntimeRole | OpaqueRole, Field(discriminator="kind")]
InputSource = Annotated[RequestSource | ApplicationSource | LiteralSource | ArtifactSource, Field(discriminator="kind")]


class WorkflowInput(Closed):
    """One way in. `default` is a scalar that fills the tensor, or its elements in row-major order."""

    contract: TensorContract
    role: InputRole
    source: InputSource
    required: bool = True
    default: LiteralValue | None = None
    present_as: str | None = None
    externally_suppliable: bool = False


class Media(Closed):
    """How an audio output becomes a file; rates in Hz."""

    container: Literal["raw", "wav"]
    encoding: Literal["pcm_s16_le", "pcm_f32_le"]
    sample_rate_hz: Count32 | None = None
    source_sample_rate_hz: Count32 | None = None
    channels: Count16 | None = None
    delivery: Literal["buffered", "streaming"] = "buffered"


class WorkflowOutput(Closed):
    """One way out; its name is no SSA value."""

    contract: TensorContract
    role: Literal["tokens", "text", "image", "video", "audio", "tensor", "event"]
    stage: Literal["pre_adapter", "post_adapter"]
    value_range: Literal["zero_to_one", "negative_one_to_one", "zero_to_255"] | None = None
    media: Media | None = None
