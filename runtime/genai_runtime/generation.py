"""A generation in flight: an iterator of text pieces over the tokens that an executor publishes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from genai_runtime.detokenize import Detokenizer
from genai_runtime.origins import Origins
from genai_runtime.problem import GenaiError, RequestError
from genai_runtime.request import Shared
from genai_runtime.result import Result
from genai_runtime.running import Row, Run, Running, tokens_of
from genai_runtime.stop_strings import StopStrings
from genai_runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from genai_runtime.timings import Timings


class Piece(NamedTuple):
    """Text of one row as it becomes whole."""

    row: int
    text: str


@dataclass(frozen=True)
class Stats:
    """Counts and times (seconds) of one generation. ttft: call to first token. rate: tokens a second after it.

    rows: those that got a token; no row's first counts in the rate. drafted, accepted: tokens that a proposer guessed,
    and those of them that the target agreed with.
    """

    prompt_tokens: int
    new_tokens: int
    ttft: float
    seconds: float
    drafted: int = 0
    accepted: int = 0
    rows: int = 1

    @property
    def rate(self) -> float:
        """Decoded tokens a second after each row's first; 0 where no row got a second one."""
        later, spent = self.new_tokens - self.rows, self.seconds - self.ttft
        return later / spent if later > 0 and spent > 0 else 0.0


@dataclass(frozen=True)
class TextSettings:
    """Which output has the tokens and how they become text.

    output: its name; replaces: its emits replace what was there, so that text is made at the end. open_tokenizer: opens
    it when text is first asked for; stops: strings that end a row; end_ids: tokens that do. origin: the step that
    publishes the tokens.
    """

    output: str
    replaces: bool
    open_tokenizer: Callable[[], Tokenizer]
    stops: tuple[str, ...]
    end_ids: frozenset[int]
    skip_special_tokens: bool
    origin: str = ""


class Generation:
    """What `generate` and `chat` return. Iterate it for text pieces (one row), or `pieces()` for (row, text).

    `tokens`, `text`, `finish_reason` are those of the only row and run the generation to its end; `rows` has all.
    Reasons: stop (an end token), stop_string, length (max_new_tokens), context (the context is full), cancelled,
    failed. Close it, or leave its `with` block, to end it early.

    A run that fails raises its error, and so does every later access to what it should have made: a failure never
    looks like an end. `partial` has the rows as far as they came; their reason is then `failed`.
    One thread at a time may run it; another gets RequestError `generation-busy`, but may `close` or `cancel` it, and
    look at `partial`: no look changes what comes.
    """

    def __init__(
        self,
        runs: Sequence[Callable[[], Run]],
        prompts: Sequence[Sequence[int]],
        text: TextSettings,
        shared: Shared,
        context: int = 0,
        whole: bool = False,
        timings: "Timings | None" = None,
        origins: Origins | None = None,
    ) -> None:
        """whole: a stop string lets the run come to its own end behind it, because a session keeps what the run has.

        timings: notes the making of text. origins: where a failed step stands in the package's own document.
        """
        self._timings = timings
        self._text, self._stopped, self._whole = text, shared.stopped, whole
        self._tally = shared.tally
        self._rows = [Row(tuple(each)) for each in prompts]
        self._failure: Exception | None = None
        self._busy, self._reading = Lock(), Lock()
        self._begun = time.perf_counter()
        self._audience = shared.audience
        output = text.output, text.replaces, text.end_ids
        self._running = Running(runs, self._rows, *output, context, self._audience, origins or {})
        self._events = tokens_of(self._running)

    # ---- running -----------------------------------------------------------------------------------------------------

    def _step(self, quiet: bool = False) -> int | None:
        """Run until a row has a token more, quiet: or to the end where that will do; the row, or None at the end."""
        if self._failure is not None:
            raise _again(self._failure)
        self._take_turn()
        try:
            self._running.quiet = self._running.quiet or quiet
            row = self._next()
            if row is not None and self._text.stops and not self._text.replaces:
                self._read_text(row)
            return row
        finally:
            self._busy.release()
            if self._audience.cancelled:  # by another thread, while it was this one's turn
                self.close()

    def _take_turn(self) -> None:
        if not self._busy.acquire(blocking=False):
            help = "let one thread read it, and hand on what it read"
            raise RequestError("generation-busy", "another thread is running this generation", help=help)

    def _next(self) -> int | None:
        try:
            return next(self._events, None)
        except Exception as failure:
            self._failure = _again(failure) if isinstance(failure, GenaiError) else failure
            for row in self._rows:
                row.finish_reason = row.finish_reason or "failed"
            raise
        except BaseException:  # an interrupt: the run is over, and nothing of it failed
            self._cancelled()
            raise

    def _drain(self) -> None:
        quiet = not self._text.stops  # said in its own turn: another thread may be reading
        while self._step(quiet) is not None:
            pass

    def close(self) -> None:
        """End the generation now; rows still running are `cancelled`.

        While another thread runs it, that one is asked to end behind the step that it is in, and this returns at once:
        its rows are `running` until then, because a reason says that no token comes any more.
        """
        self._audience.cancel()  # first: whose turn it is looks for it behind the release
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._cancelled()
        finally:
            self._busy.release()

    def _cancelled(self) -> None:
        """No token comes any more; then the rows may say so."""
        self._end_run()
        self._events = iter(())
        for row in self._rows:
            row.finish_reason = row.finish_reason or "cancelled"

    cancel = close

    def _end_run(self) -> None:
        if self._running.current is not None:
            self._running.current.close()

    def __repr__(self) -> str:
        """What has come so far; nothing is run for it."""
        rows = ", ".join(map(repr, self.partial[:4])) + (", ..." if len(self._rows) > 4 else "")
        return f"<Generation of {len(self._rows)} row{'s' * (len(self._rows) != 1)}: {rows}>"

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- text --------------------------------------------------------------------------------------------------------

    def _read_text(self, at: int, ended: bool = False) -> str:
        """Text of a row's tokens not yet turned into text; ended: and all that was held back, the last that comes."""
        with self._reading:
            row = self._rows[at]
            made = "" if row.closed else self._made_text(at, ended)
            row.closed = row.closed or ended
            if made:
                row.pieces.append(made)
            return made

    def _made_text(self, at: int, ended: bool) -> str:
        row, text = self._rows[at], self._text
        if row.detokenizer is None:
            row.detokenizer = Detokenizer(text.open_tokenizer(), row.prompt, text.skip_special_tokens)
            row.stops = StopStrings(text.stops)
        stops = row.stops
        assert stops is not None
        made, push = "", row.detokenizer.push
        if self._timings is not None:
            push = self._timings.timed("make text", "", text.origin, push)
        while row.read < len(row.tokens) and row.finish_reason != "stop_string":
            token = row.tokens[row.read]
            row.read += 1
            if token in text.end_ids and row.read == len(row.tokens):
                continue
            made += self._stop_check(at, push(token))
        if ended and row.finish_reason != "stop_string":
            made += self._stop_check(at, row.detokenizer.finish()) + stops.finish()
        return made

    def _look(self, at: int) -> None:
        """Make what text there can be of a row without touching what is still to come.

        While a row runs, only its run may find a stop string, and tokens that others will replace are no text yet.
        """
        ended = self._rows[at].finish_reason is not None
        if ended or not (self._text.stops or self._text.replaces):
            self._read_text(at, ended)

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
        if not self._whole and (len(self._running.runs) > 1 or len(self._rows) == 1):
            self._end_run()
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
        shown, row.shown = row.shown, len(row.pieces)
        return row.pieces[shown : row.shown]

    def __iter__(self) -> Iterator[str]:
        return (piece.text for piece in self.pieces())

    # ---- results -----------------------------------------------------------------------------------------------------

    @property
    def result(self) -> Result | None:
        """What the last run added up to; None while it runs."""
        return self._running.result

    @property
    def rows(self) -> list["RowView"]:
        """Every row, run to its end."""
        self._drain()
        return self.partial

    @property
    def partial(self) -> list["RowView"]:
        """Every row as far as it has come, also where a run has failed; nothing is run for it."""
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
        begun, last = self._begun, self._running.last or self._begun
        return Stats(
            sum(len(row.prompt) for row in self._rows),
            sum(len(row.tokens) for row in self._rows),
            (self._running.first or last) - begun,
            last - begun,
            self._tally.drafted,
            self._tally.accepted,
            sum(bool(row.tokens) for row in self._rows),
        )


def _again(failure: Exception) -> Exception:
    """The same error to raise later, without the frames of the run that raised it, which hold its buffers."""
    if isinstance(failure, GenaiError):
        return type(failure)(failure.code, failure.what, help=failure.help, origin=failure.origin)
    return failure.with_traceback(None)


class RowView:
    """A row of a generation."""

    def __init__(self, generation: Generation, at: int) -> None:
        self._generation, self._at = generation, at

    @property
    def tokens(self) -> list[int]:
        """Published token ids, the end token included."""
        return list(self._generation._rows[self._at].tokens)

    @property
    def text(self) -> str:
        """The text, without what ended it; of a row that runs, as far as it is whole.

        Raises LoadError `no-tokenizer` when the package has none.
        """
        self._generation._look(self._at)
        return "".join(self._generation._rows[self._at].pieces)

    def __repr__(self) -> str:
        row = self._generation._rows[self._at]
        made = "".join(row.pieces)
        text = f" {made[:60] + '...' if len(made) > 60 else made!r}" if made else ""
        return f"<row {self._at}: {len(row.tokens)} tokens, {row.finish_reason or 'running'}{text}>"

    @property
    def finish_reason(self) -> str:
        """stop, stop_string, length, context, cancelled or failed; `running` while it has not ended."""
        return self._generation._rows[self._at].finish_reason or "running"
