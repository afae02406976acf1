"""The LoRA service: which adapters each row uses, their files, and where their deltas go (standard, section 6)."""

from genai_runtime.lora.service import LoraService
from genai_runtime.lora.spec import LoraSpec, spec_of

__all__ = ["LoraService", "LoraSpec", "spec_of"]
