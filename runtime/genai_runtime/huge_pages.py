"""Weights on huge pages: a step reads all of them, and with pages of 4 KiB waits for address translation.

Linux gives memory huge pages at once only where the system says `always`, which few do; memory that is already there
can be gathered into them (madvise, MADV_COLLAPSE, Linux 6.1 and later), whatever the system says. What is in memory
stays the same. Elsewhere, and where the kernel refuses, nothing happens.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

COLLAPSE = 25
"""MADV_COLLAPSE of <linux/mman.h>."""
PAGE = 2 << 20
"""Bytes of a huge page on x86-64, and on arm64 with base pages of 4 KiB."""
WORTH = 32 << 20
"""Bytes of weights from which it is worth the time: a tenth of a second for 50 MB."""
WAIT = 1.0
"""Seconds until it begins: a first request right behind the opening would wait for the kernel, twice its own time."""
SWITCH = "GENAI_RUNTIME_HUGE_PAGES"
"""Environment variable: 0 leaves memory as it is."""


def gather_behind(weights: int) -> Thread | None:
    """Start to gather this process's memory, in a thread of its own. weights: bytes of them. None: not done."""
    if not sys.platform.startswith("linux") or weights < WORTH or os.environ.get(SWITCH) == "0":
        return None
    thread = Thread(target=_later, name="genai-huge-pages", daemon=True)
    thread.start()
    return thread


def _later() -> None:
    time.sleep(WAIT)
    gather()


def gather(maps: Path = Path("/proc/self/maps")) -> int:
    """Gather what private memory there is. Returns how many bytes the kernel took; it may refuse any part."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).madvise
        call.argtypes, call.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
        ranges = list(whole_pages(maps.read_text("ascii", "replace")))
    except (OSError, AttributeError):
        return 0
    return sum(size for start, size in ranges if call(start, size, COLLAPSE) == 0)


def whole_pages(maps: str) -> Iterator[tuple[int, int]]:
    """(address, bytes) of huge pages that private writable memory without a file could be. maps: proc(5)'s text."""
    for line in maps.splitlines():
        places, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights != "rw-p" or inode != "0" or (name and not name[0].startswith(("[heap]", "[anon"))):
            continue
        low, high = (int(each, 16) for each in places.split("-"))
        start, end = -(-low // PAGE) * PAGE, high // PAGE * PAGE
        for each in range(start, end, PAGE):
            yield each, PAGE
