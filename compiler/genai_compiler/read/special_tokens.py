"""The tokens that a tokenizer.json adds to its vocabulary: one token each, whatever stands around them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genai_compiler.read.token_ids import MAX_BYTES, token_ids


@dataclass(frozen=True)
class SpecialTokens:
    """Added tokens by id. count: one more than the largest id of any token, 0 where nothing tells."""

    by_id: Mapping[int, str] = field(default_factory=dict[int, str])
    count: int = 0

    def text(self, token: int) -> str | None:
        """A token's text, None where it is no added one."""
        return self.by_id.get(token)

    def holds(self, text: str) -> bool:
        """Whether there is a token of this text."""
        return text in self.by_id.values()


def special_tokens(tokenizer: Path | None) -> SpecialTokens:
    """The added tokens of a tokenizer file; none where it is absent or can't be read (that is reported elsewhere)."""
    if tokenizer is None or not tokenizer.is_file() or tokenizer.stat().st_size > MAX_BYTES:
        return SpecialTokens()
    try:
        data: Any = json.loads(tokenizer.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return SpecialTokens()
    added = data.get("added_tokens") if isinstance(data, dict) else None
    found: dict[int, str] = {}
    for each in added if isinstance(added, list) else ():
        content, number = (each.get("content"), each.get("id")) if isinstance(each, dict) else (None, None)
        if isinstance(content, str) and content and isinstance(number, int) and not isinstance(number, bool):
            found[number] = content
    return SpecialTokens(found, token_ids(tokenizer).count)
