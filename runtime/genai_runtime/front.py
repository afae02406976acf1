"""What a decoder's tokens go through before it, where it takes embeddings."""

from collections.abc import Mapping, Sequence
from typing import Any

from genai_runtime import binding
from genai_runtime.values import Value


class Front:
    """The session that turns tokens into what the decoder takes.

    tokens: its port for them; streams: (its output, or that port again, the decoder's input). origin: of the step.
    """

    def __init__(self, session: Any, tokens: str, streams: Sequence[tuple[str, str]], origin: str) -> None:
        self._run, self._tokens = binding.run_with_values(session, origin), tokens
        self._outputs = [made for made, _ in streams if made != tokens]
        self._ports = [taken for made, taken in streams if made != tokens]
        self._own = [taken for made, taken in streams if made == tokens]

    def run(self, tokens: Value, media: Mapping[str, Value]) -> dict[str, Value]:
        """The decoder's inputs for these tokens, by port. Raises what the session raises."""
        made = binding.results(self._run({**media, self._tokens: tokens}, self._outputs, None))
        return dict(zip(self._ports, made, strict=True)) | dict.fromkeys(self._own, tokens)
