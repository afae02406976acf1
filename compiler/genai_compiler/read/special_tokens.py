"""The tokens that a tokenizer.json adds to its vocabulary: one token each, whatever stands around them."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from genai_compiler.read.token_ids import token_ids

MAX_BYTES = 256 << 20


class SpecialTokens:
    """Added tokens by id. count: one more than the largest id of any token, 0 where nothing tells.

    A tokenizer's file is read when something is first asked of it: data of a vocabulary take ten times its size.
    """

    def __init__(self, by_id: Mapping[int, str] | None = None, count: int = 0, file: Path | None = None) -> None:
        self._known = by_id or {}, count
        self._file = file

    @cached_property
    def _facts(self) -> tuple[Mapping[int, str], int]:
        return self._known if self._file is None else _read(self._file)

    @property
    def by_id(self) -> Mapping[int, str]:
        return self._facts[0]

    @property
    def count(self) -> int:
        return self._facts[1]

    def text(self, token: int) -> str | None:
        """A token's text, None where it is no added one."""
        return self.by_id.get(token)

    def holds(self, text: str) -> bool:
        """Whether there is a token of this text."""
        return text in self.by_id.values()


def special_tokens(tokenizer: Path | None) -> SpecialTokens:
    """The added tokens of a tokenizer file; none where it is absent or can't be read (that is reported elsewhere)."""
    return SpecialTokens(file=tokenizer)


def _read(file: Path) -> tuple[Mapping[int, str], int]:
    if not file.is_file() or file.stat().st_size > MAX_BYTES:
        return {}, 0
    try:
        data: Any = json.loads(file.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {}, 0
    if not isinstance(data, dict):
        return {}, 0
    added = data.get("added_tokens")
    found: dict[int, str] = {}
    for each in added if isinstance(added, list) else ():
        content, number = (each.get("content"), each.get("id")) if isinstance(each, dict) else (None, None)
        if isinstance(content, str) and content and isinstance(number, int) and not isinstance(number, bool):
            found[number] = content
    return found, token_ids(data).count
