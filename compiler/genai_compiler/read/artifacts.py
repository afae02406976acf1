"""A file name that a package states -> a file inside the package, or the reason why not."""

import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from genai_compiler.problem import Place, Problem

_DRIVE = re.compile(r"^[A-Za-z]:")
HASHED = "sha256:"
BY_HASH = "names content by its hash, as packages of component variants do, which are not read"
WITHOUT_HASH = "take a folder whose configuration names its files"


class ArtifactFault(Exception):
    """A named file can't be used. `code`, `what` and `help` are those of the Problem it becomes."""

    def __init__(self, code: str, what: str, help: str = "") -> None:
        super().__init__(what)
        self.code, self.what, self.help = code, what, help

    def problem(self, where: Place, path: str) -> Problem:
        """The fault at the value that named the file."""
        return Problem(self.code, where, path, self.what, self.help)


@dataclass(frozen=True)
class Artifact:
    """A regular file of the package: its package-relative name with `/`, and where it really lies."""

    name: str
    file: Path


def relative_name(name: str) -> str:
    """`name` with `/` between its parts and no `.` parts; ArtifactFault when it could leave the package.

    Packages made on Windows write backslashes; the reference runtime splits on both, so both are checked.
    """
    parts = name.replace("\\", "/")
    if not name or any(unicodedata.category(each).startswith("C") for each in name):
        raise ArtifactFault("bad-path", f"{name!r} is no file name: it is empty or holds control characters")
    if parts.startswith(HASHED):
        raise ArtifactFault("unsupported-package-class", f"{name!r} {BY_HASH}", WITHOUT_HASH)
    if parts.startswith("/") or _DRIVE.match(parts):
        raise ArtifactFault("outside-package", f"{name!r} is an absolute path", _RELATIVE)
    if ".." in parts.split("/"):
        raise ArtifactFault("outside-package", f"{name!r} climbs out of a folder with '..'", _RELATIVE)
    return str(PurePosixPath(parts))


def find_artifact(root: Path, name: str) -> Artifact:
    """The regular file `name` of the package at `root`, links resolved.

    Raises ArtifactFault: outside-package (absolute, `..`, or a link that leads out; see
    docs/decisions/0003-symlinked-packages.md), missing-file, not-a-file, unreadable-file.
    """
    relative = relative_name(name)
    try:
        file = (root / relative).resolve()
        exists, regular = file.exists(), file.is_file()
    except PermissionError as fault:
        raise _unreadable(relative) from fault
    except (OSError, RuntimeError) as fault:
        raise ArtifactFault("missing-file", f"{relative!r} can't be opened: {fault}") from fault
    if not may_hold(root, file):
        raise ArtifactFault(
            "outside-package",
            f"{relative!r} is a link to {str(file)!r}, outside the package",
            "copy the file into the package (or, for a hub snapshot, keep its 'blobs' folder beside it)",
        )
    if not exists:
        raise ArtifactFault("missing-file", f"there is no file {relative!r} in the package", _near(root, relative))
    if not regular:
        kind = "a folder" if file.is_dir() else "no regular file"
        raise ArtifactFault("not-a-file", f"{relative!r} is {kind}", _near(root, relative))
    if not os.access(file, os.R_OK):
        raise _unreadable(relative)
    return Artifact(relative, file)


def _unreadable(name: str) -> ArtifactFault:
    what = f"{name!r} can't be read: the operating system refuses it"
    return ArtifactFault("unreadable-file", what, "give yourself permission to read it")


def may_hold(root: Path, file: Path) -> bool:
    """Whether resolved `file` counts as part of the package at `root`: below it, or in its hub cache's `blobs`."""
    home = root.resolve()
    if file.is_relative_to(home):
        return True
    blobs = hub_blobs(home)
    return blobs is not None and file.parent == blobs


def hub_blobs(root: Path) -> Path | None:
    """The `blobs` folder of a hub cache whose `snapshots/<revision>` folder holds (or is) resolved `root`."""
    for revision in (root, *root.parents):
        if revision.parent.name == "snapshots":
            blobs = revision.parent.parent / "blobs"
            return blobs.resolve() if blobs.is_dir() and not blobs.is_symlink() else None
    return None


_RELATIVE = "write a path relative to the package folder, without '..'"


def _near(root: Path, relative: str) -> str:
    """Names of the same kind in the same folder, for the help of a problem."""
    folder, suffix = (root / relative).parent, PurePosixPath(relative).suffix
    if not may_hold(root, folder.resolve()) or not folder.is_dir():
        return ""
    names = sorted(each.name for each in folder.iterdir() if suffix and each.suffix == suffix and each.is_file())
    return f"the folder holds {', '.join(names[:8])}" if names else ""
