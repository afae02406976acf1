"""Weights on huge pages: a step reads all of them, and with pages of 4 KiB waits for address translation.

Linux gives memory huge pages at once only where the system says `always`, which few do; memory that is already there
can be gathered into them (madvise, MADV_COLLAPSE, Linux 6.1 and later). What is in memory stays the same. Here it is
noted which memory the opening of the sessions adds; collapse.py gathers that. Elsewhere, and where the kernel refuses,
nothing happens.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from genai_runtime.problem import LoadError

WORTH = 32 << 20
"""Bytes of weights from which it is worth the time: a tenth of a second for 50 MB."""
WAIT = 1.0
"""Seconds until it begins: a first request right behind the opening would wait for the kernel, twice its own time."""
SWITCH = "GENAI_RUNTIME_HUGE_PAGES"
"""Environment variable: 0 leaves memory as it is; 1 is as if it were unset."""
MAPS = Path("/proc/self/maps")
"""proc(5): this process's ranges of memory, one a line."""


@contextmanager
def gathered_behind(weights: int) -> Iterator[None]:
    """Gather what the block adds to memory, later, in a thread of its own. weights: bytes of them.

    A block that raises gathers nothing. The thread holds no session. Raises LoadError `bad-huge-pages`.
    """
    asked = wanted() and weights >= WORTH and sys.platform.startswith("linux")
    before = _maps() if asked else ""
    yield
    if before:
        # no more threads for this process, or its interpreter is ending: the model serves all the same
        with suppress(RuntimeError):
            Thread(target=_later, args=(before, _maps(), weights), name="genai-huge-pages", daemon=True).start()


def wanted() -> bool:
    """What the switch says. Raises LoadError `bad-huge-pages`."""
    said = os.environ.get(SWITCH, "")
    if said in ("", "0", "1"):
        return said != "0"
    what = f"the environment variable {SWITCH} is {said!r}: 0 or 1"
    raise LoadError("bad-huge-pages", what, help="0 leaves memory as it is; unset, weights go into huge pages")


def _maps() -> str:
    """The ranges now; nothing where the system does not tell."""
    with suppress(OSError):
        return MAPS.read_text("ascii", "replace")
    return ""


def _later(before: str, after: str, weights: int) -> None:
    time.sleep(WAIT)
    try:
        from genai_runtime.collapse import gather
    except ImportError:  # a Python without ctypes
        return
    taken = gather(before, after, weights)
    import logging

    logging.getLogger("genai_runtime").debug("%d MB of memory gathered into huge pages", taken >> 20)
