"""genai-compile.diffusion@1: what a denoising loop does beside its graphs: schedule, noise, guidance, solver."""

from genai_runtime.adapters.diffusion.actions import diffusion

__all__ = ["diffusion"]
