"""The token that starts an output, where a request's own tokens go to an encoder."""

from genai_compiler.lower.decoder_facts import PROMPT
from genai_compiler.problem import Place, Problem, Severity

OF_GENERATION = "decoder_start_token_id in generation_config.json"
"""Where a package that has no key of its own for that token names it."""


def start_doubts(prompt: str, start: int | None, spot: tuple[Place, str], key: str) -> tuple[Problem, ...]:
    """The warning `no-start-token`: the decoder begins with tokens that nobody names, so each caller has to.

    prompt: the workflow input that it starts from; spot: where that is missed; key: what names it, with its file.
    """
    if prompt == PROMPT or start is not None:
        return ()
    what = "nothing names the token that starts the output beside an encoder: every run needs it, as "
    what += prompt.partition(".")[2]
    return (Problem("no-start-token", *spot, what, f"state {key}", Severity.WARNING),)
