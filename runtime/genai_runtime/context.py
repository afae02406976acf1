"""The positions that prompt and output of a package may have together, held against inputs of `run`.

What a caller of `generate` asks for is bounded by them (options.resolve_limits). At the level of `run` a document's own
loop decides how far it goes: a prompt that can't fit is refused, and a step that fails behind the end says so.
"""

from collections.abc import Mapping
from typing import Any

from genai_runtime.declared import given_for
from genai_runtime.problem import GenaiError, RequestError
from genai_runtime.values import Array

_OVERRUN = ("step-failed", "recurrence", "capacity")
"""What a step that goes behind the last position fails with: its graph's own fault, or a cell's law."""


def hold_context(data: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """A prompt that goes straight to the decoder fits what holds it. Raises RequestError `context-exceeded`.

    That is the context of the runtime's own decoder; of a workflow that decodes itself, what its cells may hold.
    """
    runs_own = data["generation"]["policy"] == "runtime"
    context, prompt = _context(data) if runs_own else _held(data, tensors), _prompt(data, tensors)
    if context and prompt > context:
        what = f"the prompt has {prompt} tokens; the context holds {context} in all"
        raise RequestError("context-exceeded", what, help=shorten(context))


def shorten(context: int) -> str:
    """The way out of a prompt that is too long: what leaves room for a token of output."""
    return f"shorten the prompt to {context - 1} tokens or fewer" if context > 1 else "shorten the prompt"


def _held(data: Mapping[str, Any], tensors: Mapping[str, Array]) -> int:
    """Tokens that a workflow's cells hold: what the input says that bounds them; a caller may give it. 0: no bound."""
    stated = data["generation"].get("held")
    if stated is None:
        return 0
    given = tensors.get(stated["input"])
    return int(given.max()) if given is not None and given.size else int(stated["length"])


def context_help(failure: GenaiError, data: Mapping[str, Any], tensors: Mapping[str, Array]) -> str:
    """The numbers, where a step has failed in a request for more positions than there are; else ""."""
    context, prompt = _context(data), _prompt(data, tensors)
    most = given_for(data, tensors, "max_output_tokens")
    new = int(most.max()) if most is not None and most.size else 0
    told = failure.code not in _OVERRUN or failure.help
    if told or not context or prompt + new <= context:
        return ""
    asked = f"the prompt has {prompt} tokens, and {new} more are asked for"
    return f"prompt and output have {context} positions together: {asked}"


def _context(data: Mapping[str, Any]) -> int:
    """0 where there is no bound, or where the prompt has positions of its own."""
    generation = data["generation"]
    return int(generation["context_length"]) if generation["prompt_decoded"] else 0


def _prompt(data: Mapping[str, Any], tensors: Mapping[str, Array]) -> int:
    """Tokens of the longest row."""
    prompt = given_for(data, tensors, "prompt_tokens")
    return prompt.shape[-1] if prompt is not None and prompt.ndim else 0
