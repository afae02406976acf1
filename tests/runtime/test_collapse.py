"""Memory gathered into huge pages: which of it is asked for, and that a process has no more memory afterwards.

What a process has is read from the kernel's own sums (proc(5), smaps_rollup), not from what the code looks at.
"""

import errno
import time
from pathlib import Path

import pytest
from genai_runtime import collapse
from genai_runtime.collapse import added, gather, huge_page, private, whole_pages

from tests.traps.probe import PROBE_NEEDS_LINUX, run_probe

SIZE = 2 << 20
MAPS = """\
00400000-00c00000 r-xp 00000000 fe:00 1234                               /usr/bin/python3
00c00000-01400000 rw-p 00000000 00:00 0                                  [heap]
7f0000100000-7f0000900000 rw-p 00000000 00:00 0
7f0001000000-7f0001200000 rw-s 00000000 00:00 0
7f0001400000-7f0001800000 ---p 00000000 00:00 0
7f0002000000-7f0002400000 rw-p 00000000 fe:00 77                         /models/model.onnx.data
7f0003000000-7f0003100000 rw-p 00000000 00:00 0
7f0004000000-7f0004400000 rw-s 00000000 00:01 2054                       /memfd:shared (deleted)
7f0005000000-7f0005400000 rw-p 00000000 00:00 0                          [anon: arena]
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
"""


def test_private_writable_memory_without_a_file() -> None:
    assert list(private(MAPS)) == [
        (0xC00000, 0x1400000),
        (0x7F0000100000, 0x7F0000900000),
        (0x7F0003000000, 0x7F0003100000),
        (0x7F0005000000, 0x7F0005400000),
    ]


def test_only_whole_huge_pages() -> None:
    assert list(whole_pages(iter([(0x100000, 0x900000), (0xB00000, 0xD00000)]), SIZE)) == [
        0x200000,
        0x400000,
        0x600000,
    ]


def listed(*ranges: tuple[int, int]) -> str:
    return "".join(f"{low:x}-{high:x} rw-p 00000000 00:00 0 \n" for low, high in ranges)


@pytest.mark.parametrize(("before", "after", "new"), [
    ([], [(1, 9)], [(1, 9)]),
    ([(1, 9)], [(1, 9)], []),
    ([(1, 9)], [], []),
    ([(3, 5)], [(1, 9)], [(1, 3), (5, 9)]),
    ([(1, 2), (3, 5), (7, 8)], [(1, 9)], [(2, 3), (5, 7), (8, 9)]),
    ([(1, 4)], [(1, 9)], [(4, 9)]),
    ([(6, 9)], [(1, 9)], [(1, 6)]),
    ([(0, 5), (6, 20)], [(1, 9), (12, 15), (18, 30)], [(5, 6), (20, 30)]),
    ([(1, 2), (40, 50)], [(10, 20), (60, 70)], [(10, 20), (60, 70)]),
    ([(1, 6), (4, 9)], [(20, 30), (1, 12)], [(9, 12), (20, 30)]),  # a list that was read while it changed
])  # fmt: skip
def test_what_was_added(
    before: list[tuple[int, int]], after: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    assert list(added(listed(*before), listed(*after))) == new


def sysfs(folder: Path, size: str, enabled: str) -> Path:
    (folder / "hpage_pmd_size").write_text(size)
    (folder / "enabled").write_text(enabled)
    return folder


@pytest.mark.parametrize(("size", "enabled", "found"), [
    ("2097152\n", "always [madvise] never\n", 2 << 20),
    ("4194304\n", "[always] madvise never\n", 4 << 20),
    ("2097152\n", "always madvise [never]\n", 0),  # MADV_COLLAPSE would not ask: the administrator is asked here
    ("536870912\n", "always [madvise] never\n", 0),  # arm64 with pages of 64 KiB
    ("33554432\n", "[always] madvise never\n", 0),  # arm64 with pages of 16 KiB
    ("0\n", "[always] madvise never\n", 0),
    ("", "[always] madvise never\n", 0),
])  # fmt: skip
@PROBE_NEEDS_LINUX
def test_the_size_of_a_huge_page_is_the_systems(tmp_path: Path, size: str, enabled: str, found: int) -> None:
    assert huge_page(sysfs(tmp_path, size, enabled)) == found


def test_a_system_without_huge_pages(tmp_path: Path) -> None:
    assert huge_page(tmp_path) == 0
    assert gather("", MAPS, 1 << 30, system=tmp_path) == 0


@PROBE_NEEDS_LINUX
@pytest.mark.parametrize("maps", ["not a list", "1-2 rw-p 0 0:0 0\nx-y rw-p 0 0:0 0\n", "5 rw-p 0 0:0 0\n"])
def test_a_list_in_another_form(tmp_path: Path, maps: str) -> None:
    system = sysfs(tmp_path, "2097152", "[always]")
    assert gather("", maps, 1 << 30, system=system) == 0
    assert gather("", MAPS, 1 << 30, system=system, pagemap=tmp_path / "absent") == 0


class Kernel:
    """Answers in a row, then 0; notes what it is asked."""

    def __init__(self, *answers: int, work: float = 0) -> None:
        self.answers, self.work, self.asked = list(answers), work, list[int]()

    def __call__(self, address: int, size: int) -> int:
        assert size == SIZE
        self.asked.append(address)
        began = time.thread_time()
        while time.thread_time() - began < self.work:
            pass
        return self.answers.pop(0) if self.answers else 0


PLACES = [at * SIZE for at in range(1, 9)]


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINVAL])
def test_what_says_something_about_one_range_is_passed_over(number: int) -> None:
    kernel = Kernel(0, number, number, 0)
    assert collapse.collapse(iter(PLACES), SIZE, kernel) == 6 * SIZE
    assert kernel.asked == PLACES


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EBUSY, errno.EPERM, errno.ENOSYS, errno.EACCES])
def test_no_memory_a_limit_or_a_sandbox_ends_it(number: int) -> None:
    kernel = Kernel(0, 0, number)
    assert collapse.collapse(iter(PLACES), SIZE, kernel) == 2 * SIZE
    assert kernel.asked == PLACES[:3]


def test_a_kernel_that_must_make_room_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "SLOW", 0.02)
    kernel = Kernel(work=0.03)
    assert collapse.collapse(iter(PLACES), SIZE, kernel) == SIZE
    assert kernel.asked == PLACES[:1]


def test_most_of_a_core_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    monkeypatch.setattr(collapse.time, "sleep", pauses.append)
    assert collapse.collapse(iter(PLACES), SIZE, Kernel(work=0.004)) == 8 * SIZE
    assert len(pauses) == 8
    assert min(pauses) >= 3 * 0.004


PROCESS = """
import ctypes, mmap, os, re, sys
from genai_runtime import collapse, huge_pages

MIB = 1 << 20
own = huge_pages.MAPS.read_text

def seen(field):
    with open("/proc/self/smaps_rollup") as told:
        return sum(map(int, re.findall(rf"^{field}:\\s+(\\d+) kB$", told.read(), re.MULTILINE))) / 1024

def mapped(size, every=4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000):  # MAP_NORESERVE
    made = mmap.mmap(-1, size, flags=flags)
    for at in range(0, size, every):
        made[at] = 1
    return made

def gathered(before, after, weights=1 << 40):
    old = seen("Private_Dirty")
    taken = collapse.gather(before, after, weights) // MIB
    print(taken, round(seen("AnonHugePages")), round(seen("Private_Dirty") - old))

able = mapped(8 * MIB)
if collapse.gather("", own(), 1 << 40) == 0:
    print("this kernel gathers nothing:", os.uname().release)
    sys.exit()
del able
before = own()
"""
CASES: dict[str, tuple[str, tuple[int, int]]] = {
    "all of it in memory": ("made = mapped(64 * MIB); gathered(before, own())", (60, 64)),
    "a page in every huge one": ("made = mapped(1024 * MIB, 2 * MIB); gathered(before, own())", (0, 0)),
    "all but one page in each": (
        """
made = mapped(64 * MIB)
for at in range(0, 64 * MIB, 2 * MIB): made.madvise(mmap.MADV_DONTNEED, at + 4096, 4096)
gathered(before, own())
""",
        (0, 0),
    ),
    "reserved": ("made = mapped(1024 * MIB, 256 * MIB); gathered(before, own())", (0, 0)),
    "read and never written": (
        """
made = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
assert not any(made[at] for at in range(0, 64 * MIB, 4096))
gathered(before, own())
""",
        (0, 0),
    ),
    "shared by a fork": (
        """
made = mapped(64 * MIB)
stop, go = os.pipe()
child = os.fork()
if not child:
    os.close(go)
    os.read(stop, 1)
    os._exit(0)
gathered(before, own())
os.close(go)
os.waitpid(child, 0)
""",
        (0, 0),
    ),
    "there before": ("made = mapped(64 * MIB); gathered(own(), own())", (0, 0)),
    "grown": (
        """
place = mmap.mmap(-1, 66 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
call = ctypes.CDLL(None).mprotect
first = ctypes.addressof(ctypes.c_char.from_buffer(mapped(4096)))
call.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
low = next(int(each.split("-")[0], 16) for each in own().splitlines() if "---p" in each and each not in before
           and int(each.split()[0].split("-")[1], 16) - int(each.split("-")[0], 16) >= 66 * MIB)
def write(start, size):
    assert call(low + start, size, 3) == 0
    ctypes.memset(low + start, 1, size)
write(0, 32 * MIB)
middle = own()
write(32 * MIB, 32 * MIB)
gathered(middle, own())
""",
        (28, 32),
    ),
    "freed since": ("made = mapped(64 * MIB); after = own(); made.close(); gathered(before, after)", (0, 0)),
    "a file's, copied on write": (
        """
import tempfile
file = tempfile.TemporaryFile()
file.truncate(64 * MIB)
made = mmap.mmap(file.fileno(), 64 * MIB, flags=mmap.MAP_PRIVATE)
for at in range(0, 64 * MIB, 4096): made[at] = 1
gathered(before, own())
""",
        (0, 0),
    ),
    "shared memory": (
        "made = mapped(64 * MIB, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS); gathered(before, own())",
        (0, 0),
    ),
    "the range asks for none": (
        """
made = mapped(64 * MIB)
made.madvise(mmap.MADV_NOHUGEPAGE)
gathered(before, own())
""",
        (0, 0),
    ),
    "the process asks for none": (
        "made = mapped(64 * MIB); assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0; gathered(before, own())",
        (0, 0),
    ),  # PR_SET_THP_DISABLE
    "far more than the weights": ("made = mapped(64 * MIB); gathered(before, own(), 2 * MIB)", (2, 32)),
}
"""What is mapped -> (the script, MiB gathered at least and at most)."""


@PROBE_NEEDS_LINUX
@pytest.mark.parametrize("case", CASES)
def test_a_process_has_no_more_memory_afterwards(case: str) -> None:
    script, (least, most) = CASES[case]
    said = run_probe(PROCESS + script)
    if said.startswith("this kernel"):
        pytest.skip(said.strip())
    taken, huge, more = map(int, said.split())
    print(case, taken, huge, more)
    assert least <= taken <= most
    assert more <= 1
    assert huge >= taken


@PROBE_NEEDS_LINUX
def test_what_is_in_memory_stays() -> None:
    script = """
made = mapped(64 * MIB)
for at in range(0, 64 * MIB, 4096): made[at : at + 8] = at.to_bytes(8, "little")
gathered(before, own())
assert all(made[at : at + 8] == at.to_bytes(8, "little") for at in range(0, 64 * MIB, 4096))
"""
    run_probe(PROCESS + script)
