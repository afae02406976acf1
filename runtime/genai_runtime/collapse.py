"""Gather memory into huge pages: what was added, where it is wholly in memory, one huge page after the other.

Only memory that is there already is gathered: every small page of a huge one present, and this process's alone. The
kernel would fill up what is missing (MADV_COLLAPSE knows no limit, unlike khugepaged), and copy what a fork has shared.
So private memory is as large afterwards as before.
"""

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from genai_runtime.values import Array

COLLAPSE = 25
"""MADV_COLLAPSE of <linux/mman.h>."""
LARGEST = 4 << 20
"""Bytes of a huge page up to which it is done: the kernel copies one under a lock that page faults wait for. With base
pages of 64 KiB a huge one has 512 MiB."""
LOOKED_AT = 16
"""Times the weights: so much memory is looked at, at most. Programs reserve far more than they use."""
SLOW = 0.05
"""Seconds of processor time in one call from which it ends: the kernel moves other memory to make room."""
PAUSE = 3
"""Times what a call took that nothing is done behind it: a quarter of a core at most, also where there is but one."""
SYSTEM = Path("/sys/kernel/mm/transparent_hugepage")
PAGEMAP = Path("/proc/self/pagemap")
PRESENT, OF_A_FILE, EXCLUSIVE = np.uint64(1 << 63), np.uint64(1 << 61), np.uint64(1 << 56)
"""Bits of a small page's entry in /proc/PID/pagemap (Linux, Documentation/admin-guide/mm/pagemap.rst)."""
PASSED_OVER = frozenset((errno.EAGAIN, errno.EINVAL))
"""What says something about one range: it is in use just now, it has changed. All else ends the gathering: no memory
(ENOMEM), a control group's limit (EBUSY), a sandbox (EPERM, ENOSYS)."""

Range = tuple[int, int]
"""(first address, the one behind the last)."""
Advise = Callable[[int, int], int]
"""(address, bytes) -> 0, or the number of the error."""


def gather(before: str, after: str, weights: int, system: Path = SYSTEM, pagemap: Path = PAGEMAP) -> int:
    """Gather what is in `after` and not in `before`, texts of /proc/PID/maps. Returns bytes that the kernel took."""
    if sys.platform == "win32":
        return 0
    size = huge_page(system)
    try:
        entries = os.open(pagemap, os.O_RDONLY | os.O_CLOEXEC) if size else -1
    except OSError:
        return 0
    if entries < 0:
        return 0
    try:
        places = islice(whole_pages(added(before, after), size), LOOKED_AT * weights // size)
        return collapse((each for each in places if whole(entries, each, size)), size, advice())
    except (OSError, ValueError, AttributeError):  # a list of ranges in another form; a C library without madvise
        return 0
    finally:
        os.close(entries)


def huge_page(system: Path = SYSTEM) -> int:
    """Bytes of a huge page; 0 where there are none, the system's administrator wants none, or they are too large."""
    if sys.platform == "win32":
        return 0
    try:
        size = int((system / "hpage_pmd_size").read_text())
        never = "[never]" in (system / "enabled").read_text()
    except (OSError, ValueError):
        return 0
    return 0 if never or not os.sysconf("SC_PAGE_SIZE") < size <= LARGEST else size


def added(before: str, after: str) -> Iterator[Range]:
    """The private, writable ranges without a file that are new, or the new part of ones that have grown."""
    old, at = sorted(private(before)), 0
    for low, high in sorted(private(after)):
        while at < len(old) and old[at][0] < high:
            start, end = old[at]
            if low < start:
                yield low, start
            low = max(low, end)
            if end > high:
                break  # the next one may begin inside it
            at += 1
        if low < high:
            yield low, high


def private(maps: str) -> Iterator[Range]:
    """Ranges of private writable memory without a file, stacks excepted. maps: proc(5)'s text."""
    for line in maps.splitlines():
        places, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights != "rw-p" or inode != "0" or (name and not name[0].startswith(("[heap]", "[anon"))):
            continue
        low, _, high = places.partition("-")
        yield int(low, 16), int(high, 16)


def whole_pages(ranges: Iterator[Range], size: int) -> Iterator[int]:
    """Addresses of the huge pages that lie in a range as a whole."""
    for low, high in ranges:
        yield from range(-(-low // size) * size, high // size * size, size)


def whole(entries: int, address: int, size: int) -> bool:
    """Whether all of a huge page is in memory, and no file's, no other process's. entries: the open pagemap."""
    if sys.platform == "win32":
        return False
    small = os.sysconf("SC_PAGE_SIZE")
    wanted = size // small * 8
    found: Array = np.frombuffer(os.pread(entries, wanted, address // small * 8), np.uint64)
    told = found & (PRESENT | OF_A_FILE | EXCLUSIVE)
    return found.nbytes == wanted and bool((told == PRESENT | EXCLUSIVE).all())


def advice() -> Advise:
    """The C library's madvise for huge pages. Raises OSError, AttributeError."""
    call = ctypes.CDLL(None, use_errno=True).madvise
    call.argtypes, call.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return lambda address, size: 0 if call(address, size, COLLAPSE) == 0 else ctypes.get_errno()


def collapse(places: Iterator[int], size: int, advise: Advise) -> int:
    """Gather one huge page after the other, with a pause behind each. Returns bytes."""
    taken = 0
    for each in places:
        began, used = time.perf_counter(), time.thread_time()
        said = advise(each, size)
        spent, used = time.perf_counter() - began, time.thread_time() - used
        if said and said not in PASSED_OVER:
            break
        taken += 0 if said else size
        if used > SLOW:
            break
        time.sleep(PAUSE * spent)
    return taken
