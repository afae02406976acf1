"""`genai_config.json` version 2, the pipeline as configuration: the document as typed data.

Three texts describe the form and disagree in words; this is their union. Words with a fixed vocabulary are plain names
here, because each dialect spells them its own way: `pipeline_form` tells them apart.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from genai_compiler.read.fields import AnIdOrIds, Closed, Count, Items, Name, Words
from genai_compiler.read.pipeline_extensions import ControllerEntry, LogitsEntry, Roles, StrategyEntry

Phase = Literal["init", "step", "final"]
PHASES: Mapping[str, Phase] = {
    "init": "init",
    "once": "init",
    "prompt": "init",
    "step": "step",
    "always": "step",
    "final": "final",
}
"""Every dialect's word for when a stage runs."""
LOOPS = ("batched", "per_image")
STRATEGIES = ("auto", "default", "mrope_3d", "windowed")
FORMATS = ("auto", "default", "separate", "combined", "cross", "windowed")
STATES = ("recurrent",)
PROCESSORS = ("ort-extensions",)
ENDINGS = ("autoregressive", "single_pass", "denoising")
"""Every dialect's words."""


def _listed(value: object) -> object:
    """One id counts as a list of one."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


Ids = Annotated[Items[int], BeforeValidator(_listed), AnIdOrIds()]


class SessionEntry(Closed):
    """One graph of the package. session_options: the grammar of version 1."""

    file: Name | None = None
    execution_provider: Name | None = None
    role: Name | None = None
    session_options: dict[str, Any] = Field(default_factory=dict)


class DynamicShape(Closed):
    """How each item of a loop is cropped."""

    source: Name
    apply_to_dims: Items[Count] = ()


class FlowEntry(Closed):
    """One stage, in the order of execution."""

    run: Name
    when: Annotated[Name, Words(tuple(PHASES))] | None = None
    loop: Annotated[str, Words(LOOPS)] | None = None
    loop_over: Name | None = None
    dynamic_shape: DynamicShape | None = None
    cross_attention_from: Name | None = None


class WireEntry(Closed):
    """One session's output that is another's input: two ends `session.port`, or the same in four fields."""

    source: Name | None = Field(default=None, alias="from")
    target: Name | None = Field(default=None, alias="to")
    from_session: str | None = None
    from_output: str | None = None
    to_session: str | None = None
    to_input: str | None = None


class CacheWindow(Closed):
    """Caches of the listed layers hold that many positions; no layers: all of them."""

    window_size: Count
    layers: Items[Count] = ()


class KvCache(Closed):
    """Where a layer's caches are found: templates with one slot for its number."""

    format: Annotated[Name, Words(FORMATS)] = "auto"
    past_key_pattern: Name | None = None
    present_key_pattern: Name | None = None
    past_value_pattern: Name | None = None
    present_value_pattern: Name | None = None
    sliding_window: CacheWindow | None = None


class PositionIds(Closed):
    """How positions are made, and the port that takes them."""

    strategy: Annotated[Name, Words(STRATEGIES)] = "auto"
    input_name: Name | None = None
    grid_source: Name | None = None


class CrossCache(Closed):
    """State that a session writes once and the decoder reads at every step."""

    source: Name | None = None
    frozen: bool = True


class PipelineState(Closed):
    """What lives from step to step."""

    kv_cache: KvCache = Field(default_factory=KvCache)
    position_ids: PositionIds = Field(default_factory=PositionIds)
    cross_cache: CrossCache | None = None
    type: Annotated[Name, Words(STATES)] | None = None


class ExpectedOutput(Closed):
    """What a processor is said to make of one medium."""

    rank: Count | None = None
    dtype: Name | None = None


class Processor(Closed):
    """A processor of one medium, by its configuration file."""

    config: Name | None = None
    format: Annotated[Name, Words(PROCESSORS)] = "ort-extensions"
    expected_outputs: dict[str, ExpectedOutput] = Field(default_factory=dict)


class MediaProcessors(Closed):
    """The processors by medium."""

    image: Processor | None = None
    audio: Processor | None = None


class Plugin(Closed):
    """A native library that everything is handed over to."""

    library: str | None = None
    entry_point: str | None = None


class PipelineEntry(Closed):
    """`pipeline`. roles, strategy, controller: one dialect's extensions."""

    extends: str | None = None
    sessions: dict[str, SessionEntry] = Field(default_factory=dict)
    flow: Items[FlowEntry] | None = None
    dataflow: Items[WireEntry] | None = None
    state: PipelineState = Field(default_factory=PipelineState)
    preprocessing: MediaProcessors = Field(default_factory=MediaProcessors)
    plugin: Plugin | None = None
    generation_loop: Annotated[Name, Words(ENDINGS)] | None = None
    roles: Roles = Field(default_factory=Roles)
    strategy: StrategyEntry | None = None
    controller: ControllerEntry | None = None


class TokenIds(Closed):
    """Ids with a meaning of their own."""

    eos: Ids = ()
    pad: int | None = None
    bos: int | None = None
    decoder_start: int | None = None
    sep: int | None = None
    image_token: int | None = None
    audio_token: int | None = None
    video_token: int | None = None


class Sampling(Closed):
    """How a token is chosen."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    do_sample: bool | None = None
    repetition_penalty: float | None = None


class GenerationEntry(Closed):
    """Defaults of a request. logits: an order of operations; stop: a form that no text defines."""

    max_length: int | None = None
    min_length: int | None = None
    num_beams: int | None = None
    sampling: Sampling = Field(default_factory=Sampling)
    stop: Any = None
    logits: Items[LogitsEntry] = ()


class PipelineDocument(Closed):
    """The whole file. metadata: for people only. model and the rest: blocks of version 1 beside it."""

    version: int = 2
    pipeline: PipelineEntry
    tokens: TokenIds = Field(default_factory=TokenIds)
    generation: GenerationEntry = Field(default_factory=GenerationEntry)
    metadata: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any] | None = None
    search: dict[str, Any] | None = None
    engine: Any = None
    speculative: Any = None
    runtime_profiles: Any = None
    schema_version: Any = None
