"""What lowering makes of a package, whatever its dialect."""

from dataclasses import dataclass, field
from typing import Any

from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.problem import Problem
from genai_compiler.read.hint_sources import Hint
from genai_compiler.read.prompt_chunk import PromptChunk
from genai_compiler.read.session_options import ProviderPreference, SessionOptions
from genai_compiler.read.signature import Signature
from genai_compiler.read.text_facts import TextFacts


@dataclass(frozen=True)
class LoweredGraph:
    """A package in the standard's form.

    document: plain data in the form of the metadata standard. problems: warnings only. notes: one-line facts for the
    summary. hints: where its sessions should run. chunk: how much of a prompt a run should take.
    """

    document: dict[str, Any]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    text: TextFacts
    providers: tuple[ProviderPreference, ...]
    session_options: SessionOptions
    signature: Signature
    hints: tuple[Hint, ...] = field(default=(), kw_only=True)
    chunk: PromptChunk | None = field(default=None, kw_only=True)

    @property
    def sampled_ids(self) -> int | None:
        """Only token ids below it exist; None: all, or there are none."""
        return None


@dataclass(frozen=True)
class Lowered(LoweredGraph):
    """A package with a decoder, as the canonical workflow of section 10.3. decoder: how the graph is driven."""

    decoder: DecoderFacts

    @property
    def sampled_ids(self) -> int | None:
        return self.decoder.sampled_ids
