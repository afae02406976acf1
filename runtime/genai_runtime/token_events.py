"""Events of single tokens, kept as numbers: what a token policy of the runtime publishes."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from genai_runtime.request import Event
from genai_runtime.values import Array


class TokenEvent(Event):
    """One token, integer [1, 1], kept as a number until somebody asks for its array: a generation never does."""

    __slots__ = ()
    dtype: ClassVar[type[np.generic]] = np.int64

    @property
    def value(self) -> Array:
        """The token as an array."""
        return np.array([[self[2]]], dtype=self.dtype)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.output, self.row, self.value, self.step))


class NarrowTokenEvent(TokenEvent):
    """A token of a package whose ids are int32."""

    __slots__ = ()
    dtype = np.int32
