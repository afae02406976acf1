"""A generation in flight: an iterator of text pieces over the tokens that an executor publishes."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from genai_runtime.detokenize import Detokenizer
from genai_runtime.publish import Result, TokenEvent
from genai_runtime.request import Event
from genai_runtime.stop_strings import StopStrings
from genai_runtime.tokenizer import Tokenizer

Run = Generator[Event, None, Result]


class Piece(NamedTuple):
    """Text of one row as it becomes whole."""

    row: int
    text: str


@dataclass(frozen=True)
class Stats:
    """Counts and times (seconds) of one generation. ttft: call to first token. rate: tokens a second after it."""

    prompt_tokens: int
    new_tokens: int
    ttft: float
    seconds: float

    @property
    def rate(self) -> float:
        """Decoded tokens a second after the first; 0 when there was at most one."""
        return (self.new_tokens - 1) / (self.seconds - self.ttft) if self.new_tokens > 1 else 0.0


@dataclass
class Row:
    """One row: its `tokens` as published (an end token included), why it ended, and how far its text has been made.

    pieces: text made so far; read: tokens turned into it; shown: pieces that an iteration has handed out.
    """

    prompt: tuple[int, ...]
    tokens: list[int] = field(default_factory=list[int])
    finish_reason: str | None = None
    pieces: list[str] = field(default_factory=list[str])
    read: int = 0
    shown: int = 0
    detokenizer: Detokenizer | None = None
    stops: StopStrings | None = None


@dataclass(frozen=True)
class TextSettings:
    """Which output has the tokens and how they become text.

    output: its name; replaces: its emits replace what was there, so that text is made at the end. open_tokenizer: opens
    it when text is first asked for; stops: strings that end a row; end_ids: tokens that do.
    """

    output: str
    replaces: bool
    open_tokenizer: Callable[[], Tokenizer]
    stops: tuple[str, ...]
    end_ids: frozenset[int]
    skip_special_tokens: bool


class Generation:
    """What `generate` and `chat` return. Iterate it for text pieces (one row), or `pieces()` for (row, text).

    `tokens`, `text`, `finish_reason` are those of the only row and run the generation to its end; `rows` has all.
    Reasons: stop (an end token), stop_string, length (max_new_tokens), context (the context is full), cancelled.
    Close it, or leave its `with` block, to end it early.
    """

    def __init__(
        self,
        runs: Sequence[Callable[[], Run]],
        prompts: Sequence[Sequence[int]],
        text: TextSettings,
        stopped: set[int],
        context: int = 0,
    ) -> None:
        self._runs, self._text, self._stopped, self._context = list(runs), text, stopped, context
        self._rows = [Row(tuple(each)) for each in prompts]
        self._begun = time.perf_counter()
        self._first = self._last = 0.0
        self._events = self._all_events()
        self._current: Run | None = None
        self._quiet = False
        self.result: Result | None = None

    # ---- running -----------------------------------------------------------------------------------------------------

    def _all_events(self) -> Iterator[int]:
        """Runs to the end, yielding the row that got tokens, unless `_quiet`. One run for all, or one a row."""
        for at, start in enumerate(self._runs):
            run = self._current = start()
            base, wanted = at if len(self._runs) > 1 else 0, self._text.output
            notes: list[Callable[[Any], None]] = [row.tokens.append for row in self._rows[base:]]
            try:
                while True:
                    event = next(run)
                    if event.output != wanted:
                        continue
                    if not self._first:
                        self._first = time.perf_counter()
                    row = event.row or 0
                    if isinstance(event, TokenEvent):
                        notes[row](event[2])
                    else:
                        self._take(self._rows[base + row], event.value.reshape(-1).tolist())
                    if not self._quiet:
                        yield base + row
            except StopIteration as done:
                self.result = done.value
            finally:
                run.close()
                self._last = time.perf_counter()
            self._finish(base, self.result)

    def _take(self, row: Row, tokens: list[int]) -> None:
        """What one emission does to a row: append it, or put it in the place of what was there."""
        if self._text.replaces:
            row.tokens.clear()
        row.tokens.extend(tokens)

    def _finish(self, base: int, result: Result | None) -> None:
        rows = self._rows if len(self._runs) == 1 else [self._rows[base]]
        for at, row in enumerate(rows):
            if row.finish_reason is None:
                reasons = result.finish_reasons if result is not None else {}
                row.finish_reason = reasons.get(at) or self._reason(row)

    def _reason(self, row: Row) -> str:
        """Why a row ended, where the run itself does not say."""
        if row.tokens and row.tokens[-1] in self._text.end_ids:
            return "stop"
        return "context" if 0 < self._context <= len(row.prompt) + len(row.tokens) else "length"

    def _step(self) -> int | None:
        """Run until a row has a token more; the row, or None at the end."""
        row = next(self._events, None)
        if row is not None and self._text.stops and not self._text.replaces:
            self._read_text(row)
        return row

    def _drain(self) -> None:
        self._quiet = not self._text.stops
        while self._step() is not None:
            pass

    def close(self) -> None:
        """End the generation now; rows still running are `cancelled`."""
        if self._current is not None:
            self._current.close()
        self._events = iter(())
        for row in self._rows:
            row.finish_reason = row.finish_reason or "cancelled"

    cancel = close

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- text --------------------------------------------------------------------------------------------------------

    def _read_text(self, at: int, ended: bool = False) -> str:
        """Text of a row's tokens not yet turned into text; ended: and all that was held back."""
        row, text = self._rows[at], self._text
        if row.detokenizer is None:
            row.detokenizer = Detokenizer(text.open_tokenizer(), row.prompt, text.skip_special_tokens)
            row.stops = StopStrings(text.stops)
        stops = row.stops
        assert stops is not None
        made = ""
        while row.read < len(row.tokens) and row.finish_reason != "stop_string":
            token = row.tokens[row.read]
            row.read += 1
            if token in text.end_ids and row.read == len(row.tokens):
                continue
            made += self._stop_check(at, row.detokenizer.push(token))
        if ended and row.finish_reason != "stop_string":
            made += self._stop_check(at, row.detokenizer.finish()) + stops.finish()
        if made:
            row.pieces.append(made)
        return made

    def _stop_check(self, at: int, piece: str) -> str:
        row = self._rows[at]
        assert row.stops is not None
        found = row.stops.push(piece)
        if found.stopped and row.finish_reason is None:
            row.finish_reason = "stop_string"
            del row.tokens[row.read :]
            self._stop_row(at)
        return found.text

    def _stop_row(self, at: int) -> None:
        """A stop string ended the row: alone it ends its run, among others it only drops out."""
        if len(self._runs) > 1 or len(self._rows) == 1:
            if self._current is not None:
                self._current.close()
        else:
            self._stopped.add(at)

    def pieces(self) -> Iterator[Piece]:
        """(row, text) as text becomes whole, rows interleaved as they run."""
        while (at := self._step()) is not None:
            if self._text.replaces:
                continue
            shown = "".join(self._new_text(at))
            if shown:
                yield Piece(at, shown)
        for at in range(len(self._rows)):
            self._read_text(at, ended=True)
            rest = "".join(self._new_text(at, read=False))
            if rest:
                yield Piece(at, rest)

    def _new_text(self, at: int, read: bool = True) -> list[str]:
        """Pieces of a row that no iteration has handed out yet."""
        if read:
            self._read_text(at)
        row = self._rows[at]
        fresh, row.shown = row.pieces[row.shown :], len(row.pieces)
        return fresh

    def __iter__(self) -> Iterator[str]:
        return (piece.text for piece in self.pieces())

    # ---- results -----------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list["RowView"]:
        """Every row, run to its end."""
        self._drain()
        return [RowView(self, at) for at in range(len(self._rows))]

    @property
    def tokens(self) -> list[int]:
        """The only row's tokens, the end token included."""
        return self.rows[0].tokens

    @property
    def text(self) -> str:
        """The only row's text; an end token is not text."""
        return self.rows[0].text

    @property
    def finish_reason(self) -> str:
        """Why the only row ended."""
        return self.rows[0].finish_reason

    @property
    def stats(self) -> Stats:
        """Counts and times over all rows, run to the end."""
        self._drain()
        begun, first = self._begun, self._first or self._last
        return Stats(
            sum(len(row.prompt) for row in self._rows),
            sum(len(row.tokens) for row in self._rows),
            first - begun,
            self._last - begun,
        )


class RowView:
    """A finished row of a generation."""

    def __init__(self, generation: Generation, at: int) -> None:
        self._generation, self._at = generation, at

    @property
    def tokens(self) -> list[int]:
        """Published token ids, the end token included."""
        return list(self._generation._rows[self._at].tokens)

    @property
    def text(self) -> str:
        """The text, without what ended it. Raises LoadError `no-tokenizer` when the package has none."""
        self._generation._read_text(self._at, ended=True)
        return "".join(self._generation._rows[self._at].pieces)

    @property
    def finish_reason(self) -> str:
        """stop, stop_string, length, context or cancelled."""
        return self._generation._rows[self._at].finish_reason or "cancelled"
