"""What a decoder takes of a prompt that goes in by windows: tokens, or what a front makes of them; positions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from genai_runtime.decoding import Decoding
from genai_runtime.values import NUMPY, Array, Value, bits_dtype, to_bits, view


@dataclass(frozen=True)
class Stream:
    """What goes in at one port, [1, n, ...], for the whole prompt with its padding. dtype: where numpy lacks it."""

    array: Array
    dtype: str = ""

    def part(self, start: int, size: int) -> Array:
        """So many tokens of it, as an array of its own."""
        return np.ascontiguousarray(self.array[:, start : start + size])

    def value(self, array: Array) -> Value:
        """A tensor over an array of its kind."""
        return view(array, self.dtype)


def streams_of(decoding: Decoding, before: int, behind: int, pad: int) -> Mapping[str, Stream]:
    """By port, the prompt of one row with so many padding tokens before and behind it.

    A front makes embeddings of the prompt with its media, and of the padding alone: that is no part of the prompt, even
    where its token stands for an entry of a medium.
    """
    spec, width = decoding.spec, decoding.width
    own = np.ascontiguousarray(decoding.ids[:1, :width])
    padding = np.full((1, before + behind), pad, dtype=NUMPY[spec.token_dtype])
    if decoding.front is None:
        return {spec.tokens: Stream(np.concatenate([padding[:, :before], own, padding[:, before:]], axis=1))}
    made = {
        port: (to_bits(each), bits_dtype(each)) for port, each in decoding.embedded(view(own), decoding.media).items()
    }
    if not padding.size:
        return {port: Stream(*each) for port, each in made.items()}
    around = {port: to_bits(each) for port, each in decoding.embedded(view(padding), decoding.later).items()}
    return {
        port: Stream(np.concatenate([around[port][:, :before], rows, around[port][:, before:]], axis=1), dtype)
        for port, (rows, dtype) in made.items()
    }


def placed(decoding: Decoding, text: Array, start: int) -> Array:
    """The positions of a whole padded prompt, [1, n] or [3, 1, n]: those of text, or what the request has of its own.

    text: is written to. start: how many padding tokens stand before the prompt.
    """
    if decoding.places is not None:
        text[..., start : start + decoding.width] = decoding.places
    return text
