"""Whether the files of a package are what they were when the compiler began to read them.

A package that is exported again meanwhile would give a program of one version and weights of another; nothing that
loads it could tell, because the manifest is written last.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from genai_compiler.problem import CompileError, Place, Problem

MOST = 10_000
"""Entries of the folder that are looked at."""
Stamp = tuple[int, int, int] | None
"""Bytes, time of the last change, number in the file system; None for what is not there."""
Hold = Callable[[Mapping[str, Path]], None]
"""Told the files that were read, by name. Raises CompileError changed-meanwhile."""


@contextmanager
def held_still(root: Path) -> Iterator[Hold]:
    """While the block runs the files below `root` stay as they are and none comes, as far as it asks.

    What fails within it though the package is sound is told as what it is: CompileError `changed-meanwhile`.
    """
    home = root.resolve()
    before, whole = _stamps(home)

    def hold(files: Mapping[str, Path]) -> None:
        asked = {name: _entry(home / name) for name in files}
        known = {name: file for name, file in asked.items() if whole or file in before}
        _refuse(root, sorted(name for name, file in known.items() if _stamp(file) != before.get(file)))

    try:
        yield hold
    except CompileError:
        raise
    except Exception as failure:
        changed = sorted(file.relative_to(home).as_posix() for file in before if _stamp(file) != before[file])
        try:
            _refuse(root, changed)
        except CompileError as refused:
            raise refused from failure
        raise


def _refuse(root: Path, changed: list[str]) -> None:
    if changed:
        more = f" and {len(changed) - 8} more" if len(changed) > 8 else ""
        what = f"{', '.join(changed[:8])}{more} changed while the package was compiled"
        help = "compile again when nothing writes to the package any more"
        raise CompileError([Problem("changed-meanwhile", Place(root.resolve().name), "", what, help)])


def _stamps(home: Path) -> tuple[dict[Path, Stamp], bool]:
    """(stamps of the files among the first `MOST` entries below a folder, nearest first; whether there are no more).

    Folders behind links are left alone: where such a link leads to files of the package, these lie below its folder.
    """
    found, folders, left = dict[Path, Stamp](), deque([home]), MOST
    while folders:
        try:
            with os.scandir(folders.popleft()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return found, False
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif _is_file(entry):
                        found[Path(entry.path)] = _stamp(Path(entry.path))
        except OSError:  # what can't be read is told by who needs it
            continue
    return found, True


def _entry(file: Path) -> Path:
    """The file by its folder's own path: others may lead there through links."""
    return file.parent.resolve() / file.name


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads to itself, say
        return False


def _stamp(file: Path) -> Stamp:
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns, state.st_ino
