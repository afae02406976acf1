"""Stop strings, found in the decoded text of one row as it grows, whatever tokens it comes in.

The text ends where the first stop string becomes complete: the earliest end wins, and of two that end together the
longer one. So the result does not depend on how the text was cut into pieces. Text that may still turn out to be the
start of a stop string is held back; all text before a stop string comes out.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from genai_runtime.problem import RequestError

MAX_STOPS = 64
MAX_STOP_LENGTH = 4096
_HELP = 'write stop=["one", "another"]; they hold for every row: run rows that differ in them one by one'


class Stopped(NamedTuple):
    """text: what may be published now. stopped: a stop string was found. which: its place in the order given."""

    text: str
    stopped: bool
    which: int | None


class StopStrings:
    """Incremental matcher. `stops` may be empty: then all text passes through at once.

    Raises RequestError `bad-stop` for an empty string, for one over 4096 characters, for more than 64 of them.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = _checked(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self._found: int | None = None

    def push(self, text: str) -> Stopped:
        """Take more text. After a stop string was found there is no more text, whatever is pushed."""
        if self._found is not None:
            return Stopped("", True, self._found)
        text = self._held + text
        ends = [(start + len(stop), start, i) for i, stop in enumerate(self._stops) if (start := text.find(stop)) >= 0]
        if ends:
            _, start, self._found = min(ends)
            self._held = ""
            return Stopped(text[:start], True, self._found)
        safe = self._safe(text)
        self._held = text[safe:]
        return Stopped(text[:safe], False, None)

    def finish(self) -> str:
        """The text still held when the row ends for another reason."""
        held, self._held = self._held, ""
        return held

    def _safe(self, text: str) -> int:
        """Up to where `text` can't be part of a stop string: the rest is the longest tail that starts one."""
        first = max(0, len(text) - self._longest + 1)
        tails = range(first, len(text))
        return next((i for i in tails if any(stop.startswith(text[i:]) for stop in self._stops)), len(text))


def join_stops(*sources: str | Iterable[str] | None) -> tuple[str, ...]:
    """All stop strings of several sources (a request's, a package's), each once, in order: none replaces another.

    Raises RequestError `bad-stop`.
    """
    lists = [(source,) if isinstance(source, str) else () if source is None else source for source in sources]
    for each in lists:
        if isinstance(each, bytes) or not isinstance(each, Iterable):
            raise RequestError("bad-stop", f"stop must be a string or a sequence of strings, got {each!r}", help=_HELP)
    stops = [stop for each in lists for stop in each]
    return tuple(dict.fromkeys(_checked(stops)))


def _checked(stops: Any) -> tuple[str, ...]:
    if isinstance(stops, str) or not all(isinstance(stop, str) for stop in stops):
        raise RequestError("bad-stop", f"stop must be a sequence of strings, got {stops!r}", help=_HELP)
    if len(stops) > MAX_STOPS:
        raise RequestError("bad-stop", f"{len(stops)} stop strings given, at most {MAX_STOPS} are allowed")
    for stop in stops:
        if not 0 < len(stop) <= MAX_STOP_LENGTH:
            raise RequestError("bad-stop", f"a stop string has 1 to {MAX_STOP_LENGTH} characters, got {len(stop)}")
    return tuple(stops)
