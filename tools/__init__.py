"""What builds, measures and writes pages for this repository; each tool is `python -m tools.NAME`."""

import sys
from types import TracebackType

INTERRUPTED = 130
"""Exit code of an interrupted tool: what a shell says of a command that SIGINT has ended."""


def _say(kind: type[BaseException], failure: BaseException, trace: TracebackType | None) -> None:
    """An interrupt is no fault: one line, wherever it came, imports included, and whatever failed on the way out."""
    interrupt = _interrupt(failure)
    if interrupt is None:
        sys.__excepthook__(kind, failure, trace)
        return
    print(str(interrupt) or "interrupted", file=sys.stderr)
    sys.exit(INTERRUPTED)


def _interrupt(failure: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that a failure is, or in whose course it came: a child that ended, a pipe that broke."""
    while failure is not None and not isinstance(failure, KeyboardInterrupt):
        failure = failure.__cause__ or (None if failure.__suppress_context__ else failure.__context__)
    return failure


if sys.argv[:1] == ["-m"]:  # what Python has there while it looks for the module that is to be run
    sys.excepthook = _say
