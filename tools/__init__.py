"""What builds, measures and writes pages for this repository; each tool is `python -m tools.NAME`."""

import sys
from types import TracebackType

INTERRUPTED = 130
"""Exit code of an interrupted tool: what a shell says of a command that SIGINT has ended."""


def _say(kind: type[BaseException], failure: BaseException, trace: TracebackType | None) -> None:
    """An interrupt is no fault: one line, wherever it came, imports included."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, failure, trace)
        return
    print(str(failure) or "interrupted", file=sys.stderr)
    sys.exit(INTERRUPTED)


if sys.argv[:1] == ["-m"]:  # what Python has there while it looks for the module that is to be run
    sys.excepthook = _say
