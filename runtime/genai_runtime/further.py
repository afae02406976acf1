"""What a request brings beside its prompts: media that every row sees, LoRA adapters by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genai_runtime.lora.asked import Asked
from genai_runtime.values import Array


@dataclass(frozen=True)
class Further:
    """Tensors by input. media: the same for all rows. asked: adapters, row by row."""

    media: Mapping[str, Array]
    asked: Asked

    @property
    def together(self) -> bool:
        """Whether all rows may share a run: each sees all media, so that no two can share what was made of these."""
        return self.asked.together and not self.media

    def tensors(self, rows: Sequence[int]) -> dict[str, Array]:
        """The tensors of a run of these rows."""
        return {**self.media, **self.asked.tensors(list(rows))}
