"""Immutable facts about the model's architecture (section 1.5) and intended precision and hardware (1.6)."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from genai_compiler.read.fields import Amount, Closed, Count, Int32, Items, Name, Open, Positive, SomeItems, UniqueNames
from genai_compiler.read.model_io import ModelIo
from genai_compiler.read.vocabularies import (
    AttentionType,
    ExpertRepresentation,
    HardwareDType,
    Precision,
    RouterGroupScore,
    RouterScore,
    RouterSelection,
)

GROUPED_ROUTER_FIELDS = ("group_count", "groups_per_token", "group_score")


class KeySequenceLengths(Open):
    """Which representation of key lengths the attention accepts besides int32 [batch]."""

    scalar_broadcast: Literal["unit_batch"] | None = None


class Attention(Open):
    """Attention architecture and dimensions."""

    type: AttentionType
    num_kv_heads: Positive | None = None
    num_attention_heads: Positive | None = None
    head_dim: Positive | None = None
    sliding_window: Positive | None = None
    sink_tokens: Count | None = None
    key_sequence_lengths: KeySequenceLengths | None = None
    fallback_behavior: AttentionType | None = None


class ChunkedPrefill(Open):
    """Preferred prompt tokens per prefill chunk."""

    chunk_size: Positive | None = None


class RuntimeConfigurable(Closed):
    """What a runtime may turn on."""

    prefix_cache: bool | None = None
    continuous_batching: bool | None = None
    chunked_prefill: ChunkedPrefill | None = None


def _grouped_needs_groups(schema: dict[str, Any]) -> None:
    grouped = {
        "properties": {"selection_method": {"const": "grouped_top_k"}},
        "required": ["selection_method"],
    }
    given: dict[str, Any] = {name: {"not": {"type": "null"}} for name in GROUPED_ROUTER_FIELDS}  # null is absent
    schema["allOf"] = [{"if": grouped, "then": {"properties": given, "required": list(given)}}]


class Router(Open):
    """How tokens choose experts; the group fields are mandatory for `grouped_top_k`."""

    model_config = ConfigDict(json_schema_extra=_grouped_needs_groups)

    score_function: RouterScore
    selection_method: RouterSelection
    normalize_weights: bool
    scaling_factor: Amount
    group_count: Positive | None = None
    groups_per_token: Positive | None = None
    group_score: RouterGroupScore | None = None


class MixtureOfExperts(Open):
    """Expert counts and sizes."""

    representation: ExpertRepresentation
    routed_expert_count: Positive
    shared_expert_count: Count
    experts_per_token: Positive
    expert_intermediate_size: Positive
    shared_expert_intermediate_size: Count
    activation: Name
    router: Router


class TensorShards(Closed):
    """How one target may be split across devices."""

    shard_axis: Count
    max_shards: Positive
    replicated: UniqueNames = ()


class PipelineStage(Closed):
    """Components that may live on one device."""

    components: SomeItems[str]
    outputs: Items[str] = ()
    state_groups: UniqueNames = ()


class ExpertShards(Closed):
    """How experts may be distributed."""

    expert_count: Positive
    contiguous_groups_only: bool = False
    replicated: UniqueNames = ()


class Sharding(Closed):
    """What the artifact permits, never a placement."""

    tensor_parallel: dict[str, TensorShards] = Field(default_factory=dict)
    pipeline_parallel: Items[PipelineStage] = ()
    expert_parallel: ExpertShards | None = None


class ModelFacts(Open):
    """`model`: limits, attention, experts, and the retired decoder ports `io`."""

    attention: Attention | None = None
    max_sequence_length: Positive | None = None
    vocab_size: Positive | None = None
    runtime_configurable: RuntimeConfigurable | None = None
    io: ModelIo | None = None
    mixture_of_experts: MixtureOfExperts | None = None
    sharding: Sharding | None = None


class QuantizationOverride(Open):
    """Another precision for a component or for layers (negative ones count from the last)."""

    precision: Precision
    component: Name | None = None
    layers: Items[Int32] | None = None


class Quantization(Open):
    """Intended precision."""

    default: Precision | None = None
    overrides: Items[QuantizationOverride] | None = None


class HardwareRequirements(Open):
    """Minimum hardware facts: gigabytes, megabytes per 1000 tokens, devices."""

    min_memory_gb: Amount | None = None
    required_dtypes: Items[HardwareDType] | None = None
    beneficial_dtypes: Items[HardwareDType] | None = None
    kv_cache_memory_per_1k_tokens_mb: Amount | None = None
    supports_tensor_parallel: bool | None = None
    min_tp_degree: Positive | None = None
