"""Whether a prompt has as many tokens that stand for entries of a medium as there are entries."""

from collections.abc import Callable, Mapping
from typing import Any

from genai_runtime.problem import RequestError
from genai_runtime.values import Array

_WORDS = {"image": ("image-tokens", "picture"), "audio": ("audio-tokens", "sound")}
"""Medium -> the code for numbers that do not agree, and what a file of it is called."""


def entry_count(parameters: Mapping[str, Any]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call: tokens int [rows, n], entries [m, ...] -> entries, the same. parameters: entry_token; kind, the medium
    (image, where nothing is said).

    Without entries any prompt will do. Raises ValueError for other parameters, RequestError `image-tokens`,
    `audio-tokens`.
    """
    token, kind = parameters.get("entry_token"), parameters.get("kind", "image")
    if kind not in _WORDS:
        raise ValueError(f"it knows the kinds {', '.join(_WORDS)}")
    code, word = _WORDS[kind]
    if not isinstance(token, int):
        raise ValueError("it needs the whole number entry_token")

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        entries, found = inputs["entries"], int((inputs["tokens"] == token).sum())
        if len(entries) and found != len(entries):
            what = f"the prompt holds {found} tokens of {word}s ({token}), and these have {len(entries)} entries"
            raise RequestError(code, what, help=f"repeat the token as often as the {word}s have entries")
        return {"entries": entries}

    return call
