"""Whether the operating system could have a file of a name at all, whoever asks."""

import errno
import os
from contextlib import suppress
from pathlib import Path


def name_fault(place: Path) -> OSError | None:
    """Why there can be no file of this name, as the operating system says it; None where there could be one."""
    try:
        with suppress(FileNotFoundError):
            os.lstat(place)
    except (OSError, ValueError) as failure:
        return failure if isinstance(failure, OSError) else OSError(errno.EINVAL, str(failure), str(place))
    return None
