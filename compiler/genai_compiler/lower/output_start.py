"""The token that starts an output, where a request's own tokens go to an encoder."""

from genai_compiler.lower.decoder_facts import PROMPT
from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, named

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


def start_of_single(config: GenaiConfig) -> tuple[int, list[Problem]]:
    """(the token, doubts) that starts the output of a decoder that takes one token of each row a run (reference, 2.11).

    It is `bos_token_id`, 0 where that is not stated, whatever `decoder_start_token_id` says.
    """
    start, other = config.bos or 0, config.decoder_start
    if other is None or other == start:
        return start, []
    stated = "" if config.bos is not None else ", which is not stated"
    what = f"'decoder_start_token_id' is {other} and has no effect: a decoder that takes one token of each row a run "
    what += f"starts from bos_token_id{stated}: {start}"
    spot = named(config, ("model", "decoder_start_token_id"))
    return start, [
        Problem("ignored-key", *spot, what, f"write {other} to bos_token_id, or remove it", Severity.WARNING)
    ]
