"""A denoising loop as it has been understood: its ports, the models around it, its schedule and its guidance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from genai_compiler.lower.stages import REQUEST_TOKENS, Stage
from genai_compiler.read.signature import Port

NEGATIVE_TOKENS = "request.negative_input_ids"
"""The workflow input of what a picture is not to show."""

FLOATS = ("float32", "float16", "bfloat16", "float64")
"""Types that latents can have."""

_CHANNELS = (1, 3, 4)
_MULTISTEP = frozenset({"dpmpp_2m"})


@dataclass(frozen=True)
class Guidance:
    """A second pass of the denoiser without the prompt. port: what it is named for; prompted: models that run for both
    prompts; values: what has another value in the second pass.
    """

    scale: float
    port: str
    prompted: tuple[Stage, ...]
    values: frozenset[str]

    def negative(self, value: str) -> str:
        """What stands for a value in the second pass."""
        if value == REQUEST_TOKENS:
            return NEGATIVE_TOKENS
        return f"{value}.negative" if value in self.values else value


@dataclass(frozen=True)
class Loop:
    """A denoising loop in its graphs.

    before, final: models around it, in order; inputs that the loop itself feeds have the value "". results: outputs
    that nothing else takes. latents: model -> the input that decodes. schedule: of the adapter. strength: the part of
    the steps that a run takes, where it starts from the caller's latents. size: pixels that a latent becomes, down and
    across; None where only the caller can make noise.
    """

    denoiser: Stage
    sample: Port
    estimate: Port
    timestep: Port
    before: tuple[Stage, ...]
    final: tuple[Stage, ...]
    results: tuple[tuple[Stage, Port], ...]
    latents: Mapping[str, Port]
    schedule: Mapping[str, Any]
    steps: int | None
    strength: float | None
    guidance: Guidance | None
    size: tuple[int, int] | None
    scaling: float | None

    @property
    def multistep(self) -> bool:
        """Whether a step needs what the one before it has told of the clean latents."""
        return self.schedule["solver"] in _MULTISTEP


def is_picture(port: Port) -> bool:
    """Whether an output can be a picture: [rows, channels, height, width]."""
    return port.dtype in FLOATS and len(port.shape or ()) == 4 and (port.shape or (0, 0))[1] in _CHANNELS
