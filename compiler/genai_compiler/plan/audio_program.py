"""A checked audio program -> what its adapter is to do, everything decided (standard, 5.7).

The class and its fields are those of the runtime's `adapters.audio.program`: generated code states them as they are
here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from genai_compiler.check.audio_program import audio_chain
from genai_compiler.read.audio_features import AudioFeatures
from genai_compiler.read.document import AudioProgram as Document


@dataclass(frozen=True)
class AudioProgram:
    """steps: (op, its number) on the samples, in order. window: their fixed number. mels: bands of the features.

    Both are 0 where there is none. outputs: (port of the adapter, content). variants, strides, types: of features by
    stated numbers.
    """

    steps: tuple[tuple[str, int | float], ...]
    window: int
    mels: int
    outputs: tuple[tuple[str, str], ...]
    most: int = 0
    frames: int = 0
    zeros: bool = False
    variants: tuple[AudioFeatures, ...] = ()
    strides: tuple[int, ...] = ()
    types: tuple[tuple[str, str], ...] = ()


def audio_program(document: Document, ports: Mapping[str, str]) -> AudioProgram:
    """The program of a sound document. ports: value -> port of the adapter that gives it."""
    chain, contents = audio_chain(document), {each.name: each.content for each in document.outputs}
    outputs = tuple((port, contents[value]) for value, port in ports.items())
    return AudioProgram(tuple(chain.steps), chain.window, chain.mels, outputs)
