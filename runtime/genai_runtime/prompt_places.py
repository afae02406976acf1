"""Where a prompt says that a picture or a sound is, and the tokens that go there: as many as it has entries.

A prompt is taken as text or as token ids. One that holds all entries already stays as it is; else every place becomes
what the package says of it. Numbers that do not agree are refused, before anything runs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from genai_runtime.problem import RequestError
from genai_runtime.tokenizer import Tokenizer


class Span(NamedTuple):
    """The entries of one picture or sound in a prompt: so many rows of so many columns."""

    rows: int
    columns: int

    @property
    def entries(self) -> int:
        """How many entries it has."""
        return self.rows * self.columns


_MOST_SHOWN = 8  # files whose tokens a message lists
_WORDS = {"image": ("image-tokens", "picture"), "audio": ("audio-tokens", "sound")}
"""Medium -> the code for numbers that do not agree, and what a file of it is called."""
GIVE = {"image": "give --image FILE (images=[...])", "audio": "give --audio FILE (audio=[...])"}
"""Medium -> how its files are given."""


class Places:
    """What a package says of the places of a medium. facts: the entry of its manifest.

    entry_token, entry: the token that stands for one entry, and its text. opens, closes: what a place looks like in a
    prompt; # is a number. before, after: what is written around entries. row_end, last_row_end: what ends each row, the
    last one instead.
    """

    def __init__(self, facts: Mapping[str, Any], kind: str = "image") -> None:
        self._code, self._word = _WORDS[kind]
        self._give = GIVE[kind]
        self.token: int | None = facts.get("entry_token")
        self._entry, self._opens = str(facts.get("entry", "")), str(facts.get("opens", ""))
        self._closes = str(facts.get("closes", ""))
        self._before, self._after = str(facts.get("before", "")), str(facts.get("after", ""))
        self._row_end, self._last = str(facts.get("row_end", "")), str(facts.get("last_row_end", ""))

    def hold(self, ids: Sequence[int], spans: Sequence[Span]) -> None:
        """The prompt's entries are those of the files. Raises RequestError `image-tokens`, `audio-tokens`."""
        if self.token is not None and ids.count(self.token) != sum(each.entries for each in spans):
            raise self._refused(ids.count(self.token), None, spans)

    def text(self, text: str, spans: Sequence[Span], tokenizer: Tokenizer, specials: bool) -> list[int]:
        """The ids of a text with the entries of its files. Raises RequestError `image-tokens`, `audio-tokens`."""
        made = tokenizer.encode(self.filled(text, spans, tokenizer), add_special_tokens=specials)
        if spans:
            self.hold(made, spans)
        return made

    def filled(self, text: str, spans: Sequence[Span], tokenizer: Tokenizer) -> str:
        """A text with the entries of its files as text. Raises RequestError `image-tokens`, `audio-tokens`."""
        ids = tokenizer.encode(text, add_special_tokens=False)
        if self.token is None or self._complete(ids, spans):
            return text
        pieces = list(self._pieces(text))
        if not spans and len(pieces) == 1 and self.token not in ids:
            return text
        if len(pieces) - 1 != len(spans):
            raise self._refused(ids.count(self.token), len(pieces) - 1, spans)
        return pieces[0] + "".join(self._written(span) + rest for span, rest in zip(spans, pieces[1:], strict=True))

    def ids(self, ids: list[int], spans: Sequence[Span], tokenizer: Tokenizer | None) -> list[int]:
        """Token ids with the entries of their pictures. tokenizer: None where the package has none."""
        if self.token is None or self._complete(ids, spans):
            return ids
        if not spans:
            self.hold(ids, spans)
            return ids
        marks = [] if tokenizer is None else self._ids(self._opens, tokenizer)
        found = list(self._found(ids, marks, self._ids(self._closes, tokenizer) if tokenizer is not None else []))
        if len(found) != len(spans) or tokenizer is None:
            raise self._refused(ids.count(self.token), len(found), spans)
        made, at = list[int](), 0
        for (start, end), span in zip(found, spans, strict=True):
            made += ids[at:start] + self._ids(self._written(span), tokenizer)
            at = end
        made += ids[at:]
        self.hold(made, spans)
        return made

    def _complete(self, ids: Sequence[int], spans: Sequence[Span]) -> bool:
        """Whether a prompt holds the entries of its pictures already."""
        return ids.count(self.token or 0) == sum(each.entries for each in spans) and bool(spans)

    def _pieces(self, text: str) -> Iterator[str]:
        """What stands before, between and behind the places of a text."""
        opens, at = re.compile(re.escape(self._opens).replace(r"\#", "[0-9]+")), 0
        while self._opens and (found := opens.search(text, at)) is not None:
            end = text.find(self._closes, found.end())
            if end < 0:  # it opens, and never closes: no place
                break
            yield text[at : found.start()]
            at = end + len(self._closes)
        yield text[at:]

    def _written(self, span: Span) -> str:
        """A picture's entries as text."""
        if not self._row_end:
            return self._before + self._entry * span.entries + self._after
        row = self._entry * span.columns
        return self._before + (row + self._row_end) * (span.rows - 1) + row + self._last + self._after

    @staticmethod
    def _ids(text: str, tokenizer: Tokenizer) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False) if text else []

    @staticmethod
    def _found(ids: Sequence[int], opens: Sequence[int], closes: Sequence[int]) -> "list[tuple[int, int]]":
        """(start, end) of every place."""
        found: list[tuple[int, int]] = []
        at = 0
        while opens and at <= len(ids) - len(opens):
            if list(ids[at : at + len(opens)]) != list(opens):
                at += 1
                continue
            end = at + len(opens)
            while closes and end < len(ids) and list(ids[end : end + len(closes)]) != list(closes):
                end += 1
            end += len(closes)
            if end > len(ids):
                break
            found.append((at, end))
            at = end
        return found

    def _refused(self, entries: int, places: int | None, spans: Sequence[Span]) -> RequestError:
        """Both numbers, of the prompt and of the files."""
        shown = f"'{self._entry}'" if self._entry else f"token {self.token}"
        holds = f"{entries} of {shown}"
        if places is not None and self._opens:
            holds = f"{_several(places, 'place')} for {self._word}s ('{self._opens}')"
        taken = ", ".join(str(each.entries) for each in spans[:_MOST_SHOWN])
        taken += ", ..." if len(spans) > _MOST_SHOWN else ""
        given = f"{_several(len(spans), self._word)} {'was' if len(spans) == 1 else 'were'} given"
        given += f" ({taken} tokens)" if spans else ""
        help = f"write {self._opens}{self._closes} once where each {self._word} belongs"
        if "#" in self._opens:
            help = f"write {self._opens.replace('#', '1')} where the first {self._word} belongs, and so on"
        elif not self._opens:  # no text of the tokenizer is that token
            help = f"give token ids, with {shown} where each {self._word} belongs, as often as it has entries"
        if not spans:
            help = f"{self._give}, once for each place" if (places or 0) > 1 else self._give
            help += f"; without a {self._word}, leave {self._opens or shown} out"
        return RequestError(self._code, f"the prompt holds {holds}, and {given}", help=help)


def _several(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'s' * (count != 1)}"
