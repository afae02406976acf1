"""The runs behind one generation and what has come of them: each row's tokens, why it ended, when."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from genai_runtime.detokenize import Detokenizer
from genai_runtime.origins import Origins, in_own_terms
from genai_runtime.problem import GenaiError
from genai_runtime.request import Audience, Event, Request
from genai_runtime.result import Result
from genai_runtime.stop_strings import StopStrings
from genai_runtime.token_events import TokenEvent

Run = Generator[Event, None, Result]


class Executor(Protocol):
    """A generated executor."""

    def run(self, request: Request) -> Run: ...


def outcome(run: Run) -> Result:
    """The result of a run whose events nobody listens to."""
    while True:
        try:
            next(run)
        except StopIteration as done:
            result: Result = done.value
            return result


@dataclass
class Row:
    """One row: its `tokens` as published (an end token included), why it ended, and how far its text has been made.

    pieces: text made so far; read: tokens turned into it; shown: pieces that an iteration has handed out; closed: the
    text is whole, what was held back included.
    """

    prompt: tuple[int, ...]
    tokens: list[int] = field(default_factory=list[int])
    finish_reason: str | None = None
    pieces: list[str] = field(default_factory=list[str])
    read: int = 0
    shown: int = 0
    closed: bool = False
    detokenizer: Detokenizer | None = None
    stops: StopStrings | None = None


@dataclass
class Running:
    """Runs of one request: one for all rows, or one a row. Times are of `time.perf_counter`.

    output: the one that has the tokens; replaces: its emits replace what was there. audience: what the runs know of
    their reader, who wants no event after the first when `quiet`. current: the run in progress; result: the last run's.
    origins: where a failed step stands in the package's own document.
    It holds no iterator over itself: a generation that is dropped half-way lets its buffers go at once.
    """

    runs: Sequence[Callable[[], Run]]
    rows: list[Row]
    output: str
    replaces: bool
    end_ids: frozenset[int]
    context: int
    audience: Audience
    origins: Origins
    quiet: bool = False
    current: Run | None = None
    result: Result | None = None
    first: float = 0.0
    last: float = 0.0


def tokens_of(running: Running) -> Iterator[int]:
    """Runs to the end, yielding the row that got tokens, unless `quiet`."""
    for at, start in enumerate(running.runs):
        if running.audience.cancelled:
            return
        running.audience.tokens = {}
        run = running.current = start()
        rows = running.rows if len(running.runs) == 1 else running.rows[at : at + 1]
        base = at if len(running.runs) > 1 else 0
        try:
            yield from _events(running, run, rows, base)
        finally:
            run.close()
            running.last = time.perf_counter()
            _take_unheard(running, rows)
        if not running.audience.cancelled:  # else the rest is told as that, whatever the run says of its rows
            _finish(running, rows)


def _events(running: Running, run: Run, rows: list[Row], base: int) -> Iterator[int]:
    """One run's rows that got tokens, as they get them; `result` is the run's in the end. base: number of its first."""
    notes: list[Callable[[Any], None]] = [row.tokens.append for row in rows]
    wanted, audience = running.output, running.audience
    while True:
        try:
            event = next(run)
        except StopIteration as done:
            running.result = done.value
            return
        except GenaiError as failure:
            if in_own_terms(failure, running.origins) is failure:
                raise
            # in no variable: it would keep this frame alive
            raise in_own_terms(failure, running.origins) from failure.__cause__
        if audience.cancelled:
            return
        if event.output != wanted:
            continue
        row = event.row or 0
        if isinstance(event, TokenEvent):
            notes[row](event[2])
        else:
            _take(running, rows[row], event.value.reshape(-1).tolist())
        if not running.first:
            running.first = time.perf_counter()
        audience.listens = not running.quiet
        if not running.quiet:
            yield base + row


def _take(running: Running, row: Row, tokens: list[int]) -> None:
    """What one emission does to a row: append it, or put it in the place of what was there."""
    if running.replaces:
        row.tokens.clear()
    row.tokens.extend(tokens)


def _take_unheard(running: Running, rows: list[Row]) -> None:
    """The tokens of which a quiet run has yielded no event, also where it was interrupted."""
    if running.quiet:
        for row, ids in zip(rows, running.audience.tokens.get(running.output, ()), strict=False):
            row.tokens.extend(ids[len(row.tokens) :])


def _finish(running: Running, rows: list[Row]) -> None:
    reasons = running.result.finish_reasons if running.result is not None else {}
    for at, row in enumerate(rows):
        if row.finish_reason is None:
            row.finish_reason = reasons.get(at) or _reason(running, row)


def _reason(running: Running, row: Row) -> str:
    """Why a row ended, where the run itself does not say."""
    if row.tokens and row.tokens[-1] in running.end_ids:
        return "stop"
    return "context" if 0 < running.context <= len(row.prompt) + len(row.tokens) else "length"
