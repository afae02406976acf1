"""Documents from before workflows that join several models: `pipeline.models`, `dataflow`, `strategy`, `phases`.

Only what the text says. `phases` and a stage's `run_on` are the exporter's word on how often a model runs; what really
needs a model at every step follows from the graphs.
"""

from typing import Any, Literal

from pydantic import Field

from genai_compiler.read.bare import BareIo, BareModel, CacheNote
from genai_compiler.read.document import DocumentFacts
from genai_compiler.read.fields import Amount, Closed, Count, Items, Name, Open, Positive, SomeItems
from genai_compiler.read.iterative import SchedulerEntry

RunOn = Literal["prompt_only", "every_step", "final_only"]


class PipelineModel(Open):
    """One graph of the package, and what it is said to take and give.

    scaling_factor: what latents are divided by before this model decodes them.
    """

    filename: Name
    type: Name | None = None
    io: BareIo | None = None
    tokenizer: Name | None = None
    scaling_factor: float | None = None


class Flow(Open):
    """`model.port` -> `model.port`."""

    source: Name = Field(alias="from")
    target: Name = Field(alias="to")


class StageStrategy(Open):
    """How one stage runs its model."""

    kind: Name
    model: Name | None = None
    decoder: Name | None = None


class Stage(Open):
    """A step of a composite strategy."""

    name: Name
    strategy: StageStrategy
    run_on: RunOn | None = None


class Phase(Open):
    """How often a model is said to run."""

    run_on: RunOn


class Strategy(Open):
    """The whole: stages in order (`composite`), one model alone (`autoregressive`, `single_pass`), or a denoising loop
    (`iterative`), to which all fields from `denoiser` on belong.
    """

    kind: Name
    model: Name | None = None
    decoder: Name | None = None
    stages: SomeItems[Stage] | None = None
    denoiser: Name | None = None
    num_steps: Positive | None = None
    start_step: Count | None = None
    timestep_input: Name | None = None
    timesteps: SomeItems[float] | None = None
    scheduler_config: SchedulerEntry | None = None
    guidance_scale: Amount | None = None
    cfg_conditioning_input: Name | None = None


class Positions(Open):
    """How positions are said to be made: `linear`, or by what a processor says of the media (`processor_...`)."""

    generation: Name = "linear"


class Vision(Open):
    """Where pictures go in a prompt. placeholder_per_image: one token stands for a whole picture. token_pooling_factor:
    patches of a picture that one entry is made of.
    """

    image_token_id: Count | None = None
    image_placeholder_token_id: Count | None = None
    placeholder_per_image: bool | None = None
    token_pooling_factor: Count | None = None


class Programs(Open):
    """How tensors are made of files: programs of an older form, read where they are taken over."""

    image: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None


class CompositePipeline(Closed):
    """The models and how they are joined. vision: notes for a front end that makes tensors of images."""

    models: dict[str, PipelineModel]
    dataflow: Items[Flow] = ()
    strategy: Strategy
    phases: dict[str, Phase] = Field(default_factory=dict)
    vision: Vision | None = None
    positions: Positions | None = None


class CompositeDocument(DocumentFacts):
    """A document whose pipeline predates workflows."""

    model: BareModel | None = None
    kv_cache: CacheNote | None = None
    preprocessing: Programs | None = None
    pipeline: CompositePipeline
