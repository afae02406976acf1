"""Prompts whose entries of a picture are its number, counted from 1, below zero: graphs pick pictures by that.

"<|image_1|>What is this?"   ->   -1 as often as the picture has entries, then the ids of the text
"""

import re
from collections import Counter
from collections.abc import Sequence

from genai_runtime.problem import RequestError
from genai_runtime.prompt_places import GIVE, Span
from genai_runtime.tokenizer import Tokenizer


def numbered_ids(
    prompt: str | list[int], opens: str, spans: Sequence[Span], tokenizer: Tokenizer | None, specials: bool
) -> list[int]:
    """The ids of a prompt. opens: what a place looks like in a text; # is its picture's number.

    Ids have their entries already. Raises RequestError `image-tokens` where numbers and pictures do not agree: every
    picture is named, once or more, and nothing else is.
    """
    if not isinstance(prompt, str):
        hold_numbered(prompt, spans)
        return prompt
    assert tokenizer is not None
    pattern = re.compile(re.escape(opens).replace(r"\#", "([0-9]{1,6})", 1))
    pieces = pattern.split(prompt) if "#" in opens else [prompt]
    numbers = [int(each) for each in pieces[1::2]]
    if set(numbers) != set(range(1, len(spans) + 1)):
        raise _refused(opens, sorted(set(numbers)), spans)
    made = _encoded(pieces[0], tokenizer, specials)
    for number, text in zip(numbers, pieces[2::2], strict=True):
        made += [-number] * spans[number - 1].entries + _encoded(text, tokenizer, False)
    return made


def hold_numbered(ids: Sequence[int], spans: Sequence[Span]) -> None:
    """Every picture has all of its entries in a prompt, once or more. Raises RequestError `image-tokens`."""
    counts = Counter(-each for each in ids if each < 0)
    whole = all(number <= len(spans) and not count % spans[number - 1].entries for number, count in counts.items())
    if not whole or len(counts) != len(spans):
        said = ", ".join(f"{count} of {-number}" for number, count in sorted(counts.items())) or "none"
        taken = ", ".join(f"{each.entries} of {-at}" for at, each in enumerate(spans, 1)) or "none"
        what = f"the prompt holds {said} for pictures, and those that were given take {taken}"
        help = "repeat a picture's number, below zero, as often as it has entries" if spans else GIVE["image"]
        raise RequestError("image-tokens", what, help=help)


def _encoded(text: str, tokenizer: Tokenizer, specials: bool) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=specials) if text or specials else []


def _refused(opens: str, numbers: Sequence[int], spans: Sequence[Span]) -> RequestError:
    given = f"{len(spans)} {'was' if len(spans) == 1 else 'were'} given"
    if "#" not in opens:
        what = f"nothing says how a text names a picture, and {given}"
        return RequestError(
            "image-tokens", what, help="give token ids: its number, below zero, for each of its entries"
        )
    said = f"the pictures {', '.join(map(str, numbers))}" if numbers else "no picture"
    what = f"the prompt names {said} ('{opens}'), and {given}"
    help = f"name each by its number, from {opens.replace('#', '1')} on" if spans else GIVE["image"]
    return RequestError("image-tokens", what, help=help)
