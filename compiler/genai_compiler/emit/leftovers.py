"""The work folder beside an output, and what is done about those that killed runs have left behind.

A work folder is `.NAME.PID.RANDOM`. It holds a marker, the folder that is being made, and for a moment the one that it
replaces. A run that is killed cannot remove it; the next run into the same output does, when the process is gone.
"""

import json
import os
import re
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

MARKER = ".genai-compile"
NEW, OLD = "new", "old"
_LONGEST = 64  # bytes of the output's name in the work folder's, which has to stay below the limit of 255
_OURS = re.compile(r"\.(\d+)\.[^.]+")


def make_work_folder(out: Path) -> Path:
    """A new work folder beside `out`, with its marker and an empty NEW."""
    work = Path(tempfile.mkdtemp(prefix=f"{_stem(out)}.{os.getpid()}.", dir=out.parent))
    try:
        (work / MARKER).write_bytes(_owner(out))
        (work / NEW).mkdir()
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return work


def clear_leftovers(out: Path) -> None:
    """Remove the work folders of `out` whose process is gone; an output that was moved aside in one comes back."""
    if not out.parent.is_dir():
        return
    stem = _stem(out)
    for each in sorted(out.parent.glob(".*")):
        process = _OURS.fullmatch(each.name.removeprefix(stem)) if each.name.startswith(stem) else None
        if process is not None and _belongs_to(each, out) and _is_gone(int(process[1])):
            _recover(each, out)
            shutil.rmtree(each, ignore_errors=True)


def _recover(work: Path, out: Path) -> None:
    for old in sorted(work.glob(f"{OLD}*")):
        if not out.exists():
            with suppress(OSError):  # another run does the same
                old.replace(out)


def _stem(out: Path) -> str:
    return "." + os.fsencode(out.name)[:_LONGEST].decode("utf-8", "ignore")


def _owner(out: Path) -> bytes:
    """Of which output a work folder is, and on which machine: process numbers mean nothing on another."""
    return json.dumps({"output": out.name, "host": socket.gethostname()}).encode()


def _belongs_to(work: Path, out: Path) -> bool:
    try:
        return not work.is_symlink() and (work / MARKER).read_bytes() == _owner(out)
    except OSError:
        return False


def _is_gone(process: int) -> bool:
    if os.name != "posix":
        return False  # elsewhere signal 0 is no mere question
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
