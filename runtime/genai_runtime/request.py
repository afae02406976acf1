"""What a caller asks for, and what comes back: requests, events, results."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from genai_runtime.problem import RequestError
from genai_runtime.sample import SamplingOptions
from genai_runtime.values import Array, Value


@dataclass
class SessionStore:
    """State cells kept between the invocations of one session, by cell name; one invocation at a time (standard, 3.8).

    `pending` become `cells` when the invocation succeeds; one that fails or is dropped leaves `cells` as they were.
    """

    cells: dict[str, Value] = field(default_factory=dict[str, Value])
    pending: dict[str, Value] = field(default_factory=dict[str, Value])
    _lease: Lock = field(default_factory=Lock)

    @contextmanager
    def leased(self, name: str) -> Iterator[None]:
        """The session is this invocation's alone. Raises RequestError `session-busy`."""
        if not self._lease.acquire(blocking=False):
            help = "end the other invocation first, or use another session"
            raise RequestError("session-busy", f"session '{name}' is in an invocation already", help=help)
        try:
            yield
            self.cells.update(self.pending)
        finally:
            self.pending.clear()
            self._lease.release()


@dataclass(slots=True)
class Audience:
    """Who follows an invocation. listens: whether somebody takes its events one by one, as all do at first.

    tokens: output -> ids a row, as they come, of a loop that yields no event while nobody listens. cancelled: somebody
    has asked it to end. ends: (rows that the caller ends, how many there are) of each of its requests.
    """

    listens: bool = True
    tokens: Mapping[str, list[list[int]]] = field(default_factory=dict[str, list[list[int]]])
    cancelled: bool = False
    ends: list[tuple[set[int], int]] = field(default_factory=list[tuple[set[int], int]])

    def may_end(self, rows: set[int], count: int) -> None:
        """A request of so many rows begins, which `cancel` ends by way of `rows`."""
        self.ends.append((rows, count))
        if self.cancelled:  # meanwhile, by another thread
            rows.update(range(count))

    def cancel(self) -> None:
        """Ask the invocation to end behind the step that it is in; from any thread."""
        self.cancelled = True
        for rows, count in tuple(self.ends):
            rows.update(range(count))


@dataclass(slots=True)
class Tally:
    """What the drafts of a generation came to, over all its runs: tokens drafted, and accepted of these."""

    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class Shared:
    """What the runs of one generation have in common: rows that ended early, their reader, their drafts, and how many
    tokens of a prompt a run takes (None: what holds for the loaded package).
    """

    stopped: set[int]
    audience: Audience
    tally: Tally
    speculate: bool
    prefill_chunk: int | None = None


@dataclass(frozen=True)
class Request:
    """One invocation.

    tensors: caller values by input name or application name. roles: values of runtime roles that the caller set
    (standard, 3.1), e.g. {"seed": 7}. prompt_lengths: valid tokens of each row of a right-padded prompt. row_limits:
    new tokens of each row at most, within the loop's own bound (empty: that alone). sampling: one entry a row, for a
    token policy that the runtime supplies; likewise end_ids (tokens that end a row), valid_ids (how many leading ids
    exist, or which, bool [ids]; 0: all), context_length (0: unlimited) and stopped (rows the caller ends while it
    runs). overrides: overridable component -> the one to run in its place. audience: who follows it. speculate: let the
    package's proposer draft (of one row only); tally: counts its drafts.
    profiled: whether the package has profiles. prefill_chunk: tokens of the prompt that a run takes, 0: all, None: what
    holds for the loaded package.
    """

    tensors: Mapping[str, Array]
    roles: Mapping[str, Array | int | float] = field(default_factory=dict[str, Array | int | float])
    stop_on_eos: bool = True
    session: SessionStore | None = None
    prompt_lengths: tuple[int, ...] | None = None
    row_limits: tuple[int, ...] = ()
    sampling: tuple[SamplingOptions, ...] = (SamplingOptions(temperature=0.0),)
    end_ids: frozenset[int] = frozenset()
    valid_ids: int | npt.NDArray[np.bool_] = 0
    context_length: int = 0
    stopped: set[int] = field(default_factory=set[int])
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    audience: Audience = field(default_factory=Audience)
    speculate: bool = False
    tally: Tally = field(default_factory=Tally)
    profiled: bool = False
    prefill_chunk: int | None = None

    def kept(self, cell: str, initial: Value) -> Value:
        """What the session stored for a cell, else the value it starts from."""
        return initial if self.session is None else self.session.cells.get(cell, initial)

    def keep(self, cell: str, value: Value) -> None:
        """Store a session cell's final value; without a session nothing is stored."""
        if self.session is not None:
            self.session.pending[cell] = value


class Event(NamedTuple):
    """One publication: `value` went to `output`. row: the batch row, None for an aggregate. step: the iteration."""

    output: str
    row: int | None
    value: Array
    step: int
