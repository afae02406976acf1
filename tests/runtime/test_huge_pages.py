"""Memory gathered into huge pages: which ranges are asked for, when at all, and that what is in them stays."""

import sys
from pathlib import Path

import numpy as np
import pytest
from genai_runtime import huge_pages
from genai_runtime.huge_pages import PAGE, WORTH, gather, gather_behind, whole_pages

MAPS = """\
00400000-00c00000 r-xp 00000000 fe:00 1234                               /usr/bin/python3
00c00000-01400000 rw-p 00000000 00:00 0                                  [heap]
7f0000100000-7f0000900000 rw-p 00000000 00:00 0
7f0001000000-7f0001200000 rw-s 00000000 00:00 0
7f0002000000-7f0002400000 rw-p 00000000 fe:00 77                         /models/model.onnx.data
7f0003000000-7f0003100000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
"""


def test_whole_huge_pages_of_private_memory_without_a_file() -> None:
    heap = [(0xC00000 + at * PAGE, PAGE) for at in range(4)]
    middle = [(0x7F0000200000 + at * PAGE, PAGE) for at in range(3)]
    assert list(whole_pages(MAPS)) == heap + middle


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a call of Linux")
def test_what_is_in_memory_stays() -> None:
    held = np.arange(6 * PAGE // 8, dtype=np.int64)
    assert gather() >= 0
    assert (held == np.arange(held.size)).all()


def test_without_a_list_of_memory_nothing_happens(tmp_path: Path) -> None:
    assert gather(tmp_path / "absent") == 0


def test_small_models_other_systems_and_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(huge_pages, "gather", lambda: calls.append(1))
    monkeypatch.setattr(huge_pages, "WAIT", 0)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(huge_pages.SWITCH, raising=False)
    assert gather_behind(WORTH - 1) is None
    thread = gather_behind(WORTH)
    assert thread is not None
    thread.join()
    monkeypatch.setenv(huge_pages.SWITCH, "0")
    assert gather_behind(WORTH) is None
    monkeypatch.delenv(huge_pages.SWITCH)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert gather_behind(WORTH) is None
    assert calls == [1]
