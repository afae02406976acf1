"""Whether a prompt has as many tokens that stand for entries of a medium as there are entries."""

from collections.abc import Callable, Mapping
from typing import Any

from genai_runtime.problem import RequestError
from genai_runtime.values import Array


def entry_count(parameters: Mapping[str, Any]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The call: tokens int [rows, n], entries [m, ...] -> entries, the same. parameters: entry_token.

    Without entries any prompt will do. Raises ValueError without the parameter, RequestError `image-tokens`.
    """
    token = parameters.get("entry_token")
    if not isinstance(token, int):
        raise ValueError("it needs the whole number entry_token")

    def call(inputs: Mapping[str, Array]) -> dict[str, Array]:
        entries, found = inputs["entries"], int((inputs["tokens"] == token).sum())
        if len(entries) and found != len(entries):
            what = f"the prompt holds {found} tokens of pictures ({token}), and these have {len(entries)} entries"
            raise RequestError("image-tokens", what, help="repeat the token as often as the pictures have entries")
        return {"entries": entries}

    return call
