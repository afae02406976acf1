"""Which token ids a tokenizer.json gives a text: the logits of others must never be chosen.

Heads are often padded to a round width, so the graph has rows of logits that no token belongs to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_HOLES = 65_536


@dataclass(frozen=True)
class TokenIds:
    """count: one past the largest id (0: unknown, every id may be chosen). holes: ids below it that have no token."""

    count: int = 0
    holes: tuple[int, ...] = ()


def token_ids(tokenizer: Mapping[str, Any]) -> TokenIds:
    """The ids of a tokenizer file's data; TokenIds() when it has none."""
    ids = set(_ids(tokenizer))
    if not ids:
        return TokenIds()
    count = max(ids) + 1
    missing = count - len(ids)
    holes = tuple(each for each in range(count) if each not in ids) if 0 < missing <= MAX_HOLES else ()
    return TokenIds(count, holes)


def _ids(data: Mapping[str, Any]) -> Iterable[int]:
    model, added = data.get("model"), data.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        yield from (each for each in vocabulary.values() if _is_id(each))
    elif isinstance(vocabulary, list):
        yield from range(len(vocabulary))
    for each in added if isinstance(added, list) else ():
        if isinstance(each, dict) and _is_id(each.get("id")):
            yield each["id"]


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
