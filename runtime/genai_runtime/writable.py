"""Whether a file can be written, asked before the work of which it would hold the result."""

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


def _unwritable(option: str, file: str | Path, why: str, help: str) -> RequestError:
    return RequestError("unwritable-file", f"{option} {file} can't be written: {why}", help=help)
