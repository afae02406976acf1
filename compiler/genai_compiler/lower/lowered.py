"""What lowering makes of a package, whatever its dialect."""

from dataclasses import dataclass
from typing import Any

from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.problem import Problem
from genai_compiler.read.hint_sources import Hint
from genai_compiler.read.session_options import ProviderPreference, SessionOptions
from genai_compiler.read.signature import Signature
from genai_compiler.read.text_facts import TextFacts


@dataclass(frozen=True)
class Lowered:
    """A package in the standard's form.

    document: plain data in the form of the metadata standard, section 10.3. problems: warnings only. notes: one-line
    facts for the summary. decoder: how the graph is driven. hints: where its sessions should run.
    """

    document: dict[str, Any]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    text: TextFacts
    providers: tuple[ProviderPreference, ...]
    session_options: SessionOptions
    signature: Signature
    decoder: DecoderFacts
    hints: tuple[Hint, ...] = ()
