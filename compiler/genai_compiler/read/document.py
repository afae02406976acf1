"""The whole metadata document as frozen, typed data (sections 1-7 of the metadata standard).

Maps keep the document's order. The models state what one value may look like (levels P and J of section 12.1); what
values say about each other is for later stages. Read a document with `validate.parse_metadata`, never with pydantic.
"""

from typing import Any

from pydantic import ConfigDict, Field

from genai_compiler.read.adapters import (
    AdapterArtifact,
    AdapterBinding,
    AdapterCache,
    AdapterPlanning,
    AdapterSelection,
    AdapterService,
    AdapterTarget,
    AdapterWeights,
    GraphInputs,
    Provenance,
    TargetManifest,
    TargetSlice,
)
from genai_compiler.read.components import (
    AdapterImplementation,
    BindingImplementation,
    Clonable,
    Component,
    ComponentContract,
    EffectContract,
    Implementation,
    NoSafety,
    OnnxImplementation,
    PortRole,
    Ports,
    Rewindable,
    RowScope,
    SpeculationSafety,
)
from genai_compiler.read.contracts import (
    ApplicationSource,
    ArtifactSource,
    BatchLayout,
    InputRole,
    InputSource,
    LiteralSource,
    Media,
    OpaqueRole,
    RequestAligned,
    RequestExpanded,
    RequestSource,
    RoleName,
    RuntimeRole,
    RuntimeSequenceState,
    Shared,
    TensorContract,
    TokenPacked,
    WorkflowInput,
    WorkflowOutput,
)
from genai_compiler.read.facts import (
    ConstraintLanguage,
    DecodingVocabulary,
    Generation,
    GenerationConstraint,
    GenerationDefaults,
    GenerationOverride,
    PackageFacts,
    Pooling,
    SequenceDecoding,
    SpecialToken,
    TaskProfile,
    Tokenizer,
    TokenizerArtifact,
)
from genai_compiler.read.fields import Closed, Dimension, Items, LiteralValue, Name, Scalar
from genai_compiler.read.model import (
    Attention,
    ChunkedPrefill,
    ExpertShards,
    HardwareRequirements,
    KeySequenceLengths,
    MixtureOfExperts,
    ModelFacts,
    PipelineStage,
    Quantization,
    QuantizationOverride,
    Router,
    RuntimeConfigurable,
    Sharding,
    TensorShards,
)
from genai_compiler.read.model_io import (
    AbsentInput,
    KvStrideLayout,
    KvStrides,
    ModelIo,
    OptionalInput,
    StatePair,
    StaticCacheIo,
)
from genai_compiler.read.preprocessing import (
    AudioOutput,
    AudioProgram,
    AudioTransform,
    ImageOutput,
    ImageProgram,
    ImageSize,
    ImageTransform,
    Preprocessing,
)
from genai_compiler.read.speculative import (
    BlockProposal,
    ChainedProposal,
    ComponentOutput,
    IdenticalVocabulary,
    MappedVocabulary,
    ProposalExecution,
    ProposalRecurrence,
    ProposerVocabulary,
    Speculative,
    SubsetVocabulary,
    TokenEmbedding,
)
from genai_compiler.read.state import (
    AppendUpdate,
    Bounded,
    Checkpoint,
    Growing,
    IndexedScatter,
    Invariant,
    PromptPrefix,
    Recurrence,
    ReplaceUpdate,
    Serving,
    SessionLease,
    StateCapabilities,
    StateCell,
    StateGroup,
    StateKind,
    StatePortAlias,
    StateReuse,
    StateService,
    StateUpdate,
)
from genai_compiler.read.steps import (
    BranchOutput,
    BranchStep,
    Carry,
    EmitStep,
    InvokeStep,
    Iteration,
    LoopStep,
    SequenceStep,
    Step,
)
from genai_compiler.read.workflow import Manifest, Pipeline, Workflow


def _no_ports_beside_a_workflow(schema: dict[str, Any]) -> None:
    ported = {"type": "object", "required": ["io"], "properties": {"io": {"not": {"type": "null"}}}}
    schema["not"] = {
        "required": ["pipeline", "model"],
        "properties": {"pipeline": {"not": {"type": "null"}}, "model": ported},
    }


class DocumentFacts(Closed):
    """The top level of `inference_metadata.yaml` but for what runs."""

    schema_version: str | None = None
    required_capabilities: Items[Name] = ()
    model: ModelFacts | None = None
    quantization: Quantization | None = None
    adapters: AdapterService | None = None
    hardware_requirements: HardwareRequirements | None = None
    package: PackageFacts | None = None
    generation: Generation | None = None
    profiles: dict[str, TaskProfile] = Field(default_factory=dict)
    speculative: Speculative | None = None


class Metadata(DocumentFacts):
    """The top level of `inference_metadata.yaml`."""

    model_config = ConfigDict(json_schema_extra=_no_ports_beside_a_workflow)

    pipeline: Pipeline | None = None
    preprocessing: Preprocessing | None = None


__all__ = [
    "AbsentInput", "AdapterArtifact", "AdapterBinding", "AdapterCache", "AdapterImplementation",
    "AdapterPlanning", "AdapterSelection", "AdapterService", "AdapterTarget", "AdapterWeights",
    "AppendUpdate", "ApplicationSource", "ArtifactSource", "Attention", "AudioOutput", "AudioProgram",
    "AudioTransform", "BatchLayout", "BindingImplementation", "BlockProposal", "Bounded", "BranchOutput",
    "BranchStep", "Carry", "ChainedProposal", "Checkpoint", "ChunkedPrefill", "Clonable", "Component",
    "ComponentContract", "ComponentOutput", "ConstraintLanguage", "DecodingVocabulary", "Dimension", "DocumentFacts",
    "EffectContract", "EmitStep", "ExpertShards", "Generation", "GenerationConstraint", "GenerationDefaults",
    "GenerationOverride", "GraphInputs", "Growing", "HardwareRequirements", "IdenticalVocabulary",
    "ImageOutput", "ImageProgram", "ImageSize", "ImageTransform", "Implementation", "IndexedScatter",
    "InputRole", "InputSource", "Invariant", "InvokeStep", "Iteration", "KeySequenceLengths",
    "KvStrideLayout", "KvStrides", "LiteralSource", "LiteralValue", "LoopStep", "Manifest",
    "MappedVocabulary", "Media", "Metadata", "MixtureOfExperts", "ModelFacts", "ModelIo", "NoSafety",
    "OnnxImplementation", "OpaqueRole", "OptionalInput", "PackageFacts", "Pipeline", "PipelineStage",
    "Pooling", "PortRole", "Ports", "Preprocessing", "PromptPrefix", "ProposalExecution",
    "ProposalRecurrence", "ProposerVocabulary", "Provenance", "Quantization", "QuantizationOverride",
    "Recurrence", "ReplaceUpdate", "RequestAligned", "RequestExpanded", "RequestSource", "Rewindable",
    "RoleName", "Router", "RowScope", "RuntimeConfigurable", "RuntimeRole", "RuntimeSequenceState", "Scalar",
    "SequenceDecoding", "SequenceStep", "Serving", "SessionLease", "Sharding", "Shared", "SpecialToken",
    "SpeculationSafety", "Speculative", "StateCapabilities", "StateCell", "StateGroup", "StateKind",
    "StatePair", "StatePortAlias", "StateReuse", "StateService", "StateUpdate", "StaticCacheIo", "Step",
    "SubsetVocabulary", "TargetManifest", "TargetSlice", "TaskProfile", "TensorContract", "TensorShards",
    "TokenEmbedding", "TokenPacked", "Tokenizer", "TokenizerArtifact", "Workflow", "WorkflowInput",
    "WorkflowOutput",
]  # fmt: skip
