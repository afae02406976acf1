"""The LoRA adapter service (section 6 of the metadata standard)."""

from typing import Literal

from pydantic import Field

from genai_compiler.read.fields import Closed, Count, Items
from genai_compiler.read.vocabularies import TensorDType


class TargetSlice(Closed):
    """The part of a fused output that the delta covers: `width` features from `offset`."""

    role: str
    offset: Count
    width: Count
    rank: Count | None = None
    alpha: float | None = None


class GraphInputs(Closed):
    """Graph inputs that take the factors A and B (and their scale)."""

    a: str
    b: str
    scale: str | None = None


class AdapterTarget(Closed):
    """One adaptable weight of one component's graph."""

    id: str
    component: str
    initializer: str
    layer_index: Count | None = None
    node_name: str
    output_name: str
    activation_dtype: TensorDType
    input_features: Count
    output_features: Count
    rank: Count | None = None
    alpha: float | None = None
    output_slice: TargetSlice | None = None
    graph_inputs: GraphInputs | None = None


class TargetManifest(Closed):
    """Every adaptable weight."""

    targets: Items[AdapterTarget]


class AdapterSelection(Closed):
    """Workflow inputs that choose adapters per row."""

    segments: str
    adapter_counts: str
    scales: str
    active: str | None = None
    max_adapters: Count


class AdapterWeights(Closed):
    """One weight file, relative to the package root."""

    location: str
    loader_capability: str
    config_location: str | None = None
    scale_encoding: Literal["alpha_over_rank", "baked"]
    format: Literal["json", "ort_genai", "hf_peft", "safetensors"] = "json"


class AdapterBinding(Closed):
    """Which tensors of the bundle belong to which target."""

    target: str
    weight_key: str
    rank: Count | None = None
    alpha: float | None = None


class Provenance(Closed):
    """Who made the adapter."""

    producer: str
    source: str | None = None
    revision: str | None = None


class AdapterArtifact(Closed):
    """One adapter; `index` is its number in selection tensors."""

    index: Count
    identity: str
    version: str
    rank: Count
    alpha: float
    dtype: TensorDType
    weights: Items[AdapterWeights] = ()
    bindings: Items[AdapterBinding] = ()
    provenance: Provenance | None = None


class AdapterCache(Closed):
    """How many adapters stay loaded."""

    max_entries: Count = 16
    eviction: Literal["lru"] = "lru"


class AdapterPlanning(Closed):
    """Freedoms of the scheduler."""

    bucket_by_adapter_set: bool = True
    stable_buffers: bool = True
    invalidate_capture_on_eviction: bool = True


class AdapterService(Closed):
    """`adapters`: targets, selection inputs and artifacts."""

    target_manifest: TargetManifest
    discovery_fallback: Literal["disabled", "tooling_only"] = "disabled"
    selection: AdapterSelection
    application_capability: str
    portable_fallback: bool = False
    artifacts: dict[str, AdapterArtifact] = Field(default_factory=dict)
    cache: AdapterCache = AdapterCache()
    planning: AdapterPlanning = AdapterPlanning()
