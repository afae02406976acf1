"""How prompts say where a picture is, by the token that stands for one entry of it.

Conventions of the tokens' own makers, told apart by the token's text, which the package's tokenizer gives. A token that
is not here stands for a picture itself, once, and is repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from genai_compiler.read.special_tokens import SpecialTokens


@dataclass(frozen=True)
class PromptPlace:
    """opens: what stands for a picture in a prompt, up to `closes`, if any; # is a number. before, after: around it.

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


def place_parameters(token: int, tokens: SpecialTokens, plain: bool = False) -> dict[str, Any]:
    """What an adapter's contract says of the places of pictures. token: of one entry.

    plain: the package says that the token stands for a picture itself.
    """
    text = tokens.text(token)
    found: dict[str, Any] = {"entry_token": token}
    if text is None:
        return found
    place = PLACES.get(text)
    if plain or place is None or not all(map(tokens.holds, _marks(place))):
        return {**found, "entry": text, "opens": text}
    stated = {name: value for name, value in vars(place).items() if value}
    return {**found, "entry": text, **stated}


def only_entry(tokens: SpecialTokens) -> int | None:
    """The one token of the tokenizer that stands for an entry of a picture; None for none, or for several."""
    found = [id for id, text in tokens.by_id.items() if text in PLACES]
    return found[0] if len(found) == 1 else None


def _marks(place: PromptPlace) -> tuple[str, ...]:
    """The tokens that the place needs."""
    marks = place.opens, place.closes, place.row_end, place.last_row_end, place.before.strip(), place.after.strip()
    return tuple(each for each in marks if each and "#" not in each)
