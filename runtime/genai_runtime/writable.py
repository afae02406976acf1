"""Files that a command line names, looked at before the work: those to write can be written, those to read are there.

A name is a file's: `-` is none, as the command line says (command_options.py).
"""

import os
import tempfile
from pathlib import Path

from genai_runtime.problem import RequestError


def hold_writable(file: str | Path, option: str) -> None:
    """The file can be made or replaced; nothing is left behind. option: who names it, in messages.

    Raises RequestError `no-file` where its folder is not there, `unwritable-file`.
    """
    target = Path(file).absolute()
    try:
        if target.is_dir():
            raise _unwritable(option, file, "that is a folder", "name a file in it")
        if target.exists():
            if not os.access(target, os.W_OK):
                raise _unwritable(option, file, "no permission to replace it", "name another file")
            return
        if not target.parent.is_dir():
            what = f"{option} {file}: there is no folder '{target.parent}'"
            raise RequestError("no-file", what, help="make it, or name another file")
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except RequestError:
        raise
    except (OSError, ValueError) as failure:  # a name may hold what no name can
        reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else str(failure)
        raise _unwritable(option, file, reason, "name another file") from failure


def hold_readable(file: str | Path, option: str) -> None:
    """The file is there and can be read. Raises RequestError `no-such-file`, `unreadable-file`."""
    try:
        there = Path(file).is_file()
        if there and os.access(file, os.R_OK):
            return
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if there:
        help = "give yourself permission to read it"
        raise RequestError("unreadable-file", f"{option} {file} can't be read: Permission denied", help=help)
    what = "is a folder" if _is_folder(file) else "is not there"
    raise RequestError("no-such-file", f"{option}: the file '{file}' {what}", help="correct the name")


def _is_folder(file: str | Path) -> bool:
    try:
        return Path(file).is_dir()
    except (OSError, ValueError):
        return False


def _unwritable(option: str, file: str | Path, why: str, help: str) -> RequestError:
    return RequestError("unwritable-file", f"{option} {file} can't be written: {why}", help=help)
