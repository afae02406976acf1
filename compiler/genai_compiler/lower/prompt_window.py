"""How a prompt is cut into windows, as a v1 configuration says (`model.decoder.sliding_window`), and what that asks of
the graphs.

Padding counts nowhere, whatever its place: positions are those of the prompt's own tokens, and a mask that hides
columns hides it. Where nothing can, it stands behind the prompt, where later tokens overwrite it.
"""

from collections.abc import Iterator

from genai_compiler.lower.decoder_facts import DecoderFacts, PromptWindow
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import Signature

WINDOW: DocPath = ("model", "decoder", "sliding_window")
_PLACES = ("left", "right")


def prompt_window(config: GenaiConfig) -> tuple[PromptWindow | None, bool, list[Problem]]:
    """(how prompts are cut, None where they go in whole; whether the caches move; problems)."""
    stated = config.decoder.sliding_window
    if stated is None or not stated.slide_inputs:
        return None, False, []
    faults: list[Problem] = []
    if stated.window_size < 2:
        what = f"window_size is {stated.window_size}; prompts are cut into windows of two tokens or more"
        faults.append(Problem("bad-value", *named(config, (*WINDOW, "window_size")), what))
    if stated.alignment not in _PLACES:
        what = f"alignment is {stated.alignment!r}, neither 'left' (padding behind the prompt) nor 'right' (before it)"
        faults.append(Problem("bad-value", *named(config, (*WINDOW, "alignment")), what, "write one of the two"))
    shifts = stated.slide_key_value_cache
    if stated.alignment == "right" and not shifts:
        what = "alignment right would put padding before the prompt, where nothing hides it from later tokens"
        help = "it goes behind the prompt, as with left; write alignment left"
        place = named(config, (*WINDOW, "alignment"))
        faults.append(Problem("config-read-as", *place, what, help, Severity.WARNING))
    return PromptWindow(stated.window_size, config.pad or 0), shifts, faults


def window_faults(config: GenaiConfig, facts: DecoderFacts, prompt: Signature) -> Iterator[Problem]:
    """What keeps the graphs from taking windows. prompt: of its stages."""
    if facts.window is None:
        return
    cut = {taken.name for _, taken in facts.front.streams} if facts.front is not None else {facts.token_ids.name}
    extents = {each.name: (each.shape or ())[1:2] for each in prompt.inputs if each.name in cut}
    fixed = any(isinstance(extent, int) for axis in extents.values() for extent in axis)
    if facts.shift is not None and facts.shift.columns < facts.window.size:
        what = f"window_size is {facts.window.size}, and the caches have {facts.shift.columns} columns"
        yield Problem("wrong-port", *named(config, (*WINDOW, "window_size")), what, "state a window that fits")
    if facts.shift is None and facts.window.size > facts.max_sequence_length:
        what = f"window_size is {facts.window.size}, and a text has {facts.max_sequence_length} positions at most"
        yield Problem("bad-value", *named(config, (*WINDOW, "window_size")), what, "state a window that fits")
    padded = facts.shift is not None or facts.aliasing != "forbidden" or fixed
    if facts.shift is None and facts.aliasing == "forbidden" and fixed:
        what = (
            "prompts are cut into windows of a fixed number of tokens, and the graphs append to their caches: the "
            "padding of the last window would stay in them"
        )
        help = "export with GroupQueryAttention, which writes in place, or with a symbolic sequence axis"
        yield _refused(config, what, help)
    if facts.shift is None and facts.aliasing != "forbidden" and not (facts.lengths or facts.mask_use == "lengths"):
        what = "prompts are cut into windows, and the mask hides columns where the caches are written by length"
        yield _refused(config, what, "export with past_sequence_length and total_sequence_length")
    if facts.shift is None and facts.aliasing != "forbidden" and not facts.lengths and facts.attention_mask is None:
        what = "prompts are cut into windows, and neither lengths nor a mask tell the graphs where a window stands"
        yield _refused(config, what, "export with one of them, or set slide_inputs to false")
    if padded and facts.last_token_only and not (facts.shift is not None and facts.shift.first):
        what = "the graphs give logits of the last position of a window only, which may be padding"
        yield _refused(config, what, "export them with logits of all positions")


def _refused(config: GenaiConfig, what: str, help: str) -> Problem:
    return Problem("unsupported-package-class", *named(config, WINDOW), what, help)
