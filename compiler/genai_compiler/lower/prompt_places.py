"""How prompts say where a picture or a sound is, by the token that stands for one entry of it.

Conventions of the tokens' own makers, told apart by the token's text, which the package's tokenizer gives. A token that
is not here stands for a picture, or a sound, itself, once, and is repeated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genai_compiler.lower.matching import rank_of
from genai_compiler.lower.media_notes import Said
from genai_compiler.lower.stages import Medium, Stage
from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.special_tokens import SpecialTokens


@dataclass(frozen=True)
class PromptPlace:
    """opens: what stands for the medium in a prompt, up to `closes`, if any; # is a number. before, after: around it.

    row_end, last_row_end: where its entries come in rows, what ends each, the last one instead.
    """

    opens: str
    closes: str = ""
    before: str = ""
    after: str = ""
    row_end: str = ""
    last_row_end: str = ""


PLACES: Mapping[str, PromptPlace] = {
    "<|image_pad|>": PromptPlace("<|vision_start|>", "<|vision_end|>", "<|vision_start|>", "<|vision_end|>"),
    "<image_soft_token>": PromptPlace("<start_of_image>", before="\n\n<start_of_image>", after="<end_of_image>\n\n"),
    "[IMG]": PromptPlace("[IMG]", row_end="[IMG_BREAK]", last_row_end="[IMG_END]"),
    "<|image|>": PromptPlace("<|image|>", before="<|image>", after="<image|>"),
    "<|endoftext10|>": PromptPlace("<|image_#|>"),
}
"""Of pictures."""
SOUND_PLACES: Mapping[str, PromptPlace] = {
    "<|audio|>": PromptPlace("<|audio|>", before="\n\n<|audio>", after="<audio|>\n\n"),
    "<|endoftext11|>": PromptPlace("<|audio_#|>"),
}


NUMBERED: Mapping[str, Any] = {"opens": "<|image_#|>", "numbered": 1}
"""What an adapter's contract says where entries are the number of their picture, from 1, below zero."""


def place_parameters(
    token: int, tokens: SpecialTokens, plain: bool = False, places: Mapping[str, PromptPlace] = PLACES
) -> dict[str, Any]:
    """What an adapter's contract says of the places of a medium. token: of one entry.

    plain: the package says that the token stands for a picture itself.
    """
    text = tokens.text(token)
    found: dict[str, Any] = {"entry_token": token}
    if text is None:
        return found
    place = places.get(text)
    if plain or place is None or not all(map(tokens.holds, _marks(place))):
        return {**found, "entry": text, "opens": text}
    stated = {name: value for name, value in vars(place).items() if value}
    return {**found, "entry": text, **stated}


def _only_entry(tokens: SpecialTokens, places: Mapping[str, PromptPlace]) -> int | None:
    """The one token of the tokenizer that stands for an entry of the medium; None for none, or for several."""
    found = [id for id, text in tokens.by_id.items() if text in places]
    return found[0] if len(found) == 1 else None


def entry_of(
    medium: Medium, said: Said, tokens: SpecialTokens, places: Mapping[str, PromptPlace] = PLACES
) -> int | None:
    """The token of an entry: the graph's own, else the one that the package states, else the tokenizer's only one."""
    known = medium.entry if medium.entry is not None else said.token
    return known if known is not None else _only_entry(tokens, places)


def _marks(place: PromptPlace) -> tuple[str, ...]:
    """The tokens that the place needs."""
    marks = place.opens, place.closes, place.row_end, place.last_row_end, place.before.strip(), place.after.strip()
    return tuple(each for each in marks if each and "#" not in each)


def fixed_entries(medium: Medium) -> int | None:
    """How many entries a file always has, as the graph's output tells; a symbol of digits is a number, too."""
    last: Stage = medium.stages[-1]
    port = next(each for each in last.signature.outputs if f"{last.component}.{each.name}" == medium.result)
    extent = (port.shape or (None,))[-2] if rank_of(port) in (2, 3) else None
    if isinstance(extent, str) and extent.isdigit():
        return int(extent)
    return extent if isinstance(extent, int) else None


_LACKING = (
    (("entry_token", "numbered"), "which token stands for a picture's entry in a prompt"),
    (("entries", "cell", "of_views"), "how many entries a picture has"),
)
_WAY_OUT = (
    "name the token (image_token_id; tokens.image_token in version 2), and give the processor file its patch_size and "
    "merge_size"
)


def unknown_places(
    parameters: Mapping[str, Any],
    spot: tuple[Place, str],
    needed: Sequence[tuple[tuple[str, ...], str]] = _LACKING,
    help: str = _WAY_OUT,
) -> Iterator[Problem]:
    """Warnings where the entries of a prompt can't be counted. needed: (parameters of which one says it, what)."""
    lacks = [what for keys, what in needed if not any(each in parameters for each in keys)]
    if lacks:
        what = f"nobody says {' nor '.join(lacks)}: prompts are taken as they are"
        yield Problem("unknown-places", *spot, what, help, Severity.WARNING)
