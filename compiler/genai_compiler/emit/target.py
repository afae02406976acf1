"""Where a compiled folder goes: links followed, and nothing that is not ours replaced unasked."""

import json
from pathlib import Path

from genai_compiler.emit.leftovers import clear_leftovers
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.writable import hold_folder, hold_name

MANIFEST, EXECUTOR = "manifest.json", "executor.py"
OURS = ("format", "abi", "executor_sha256")
"""Keys that the manifest of every compiled folder has."""
MAX_MANIFEST = 64 << 20


def prepare_target(out: Path, package: Path, force: bool) -> Path:
    """The folder to write, links followed; what killed runs left beside it is cleared away.

    Raises CompileError: bad-output, output-exists, disk-failed.
    """
    if package.is_dir():  # else that is to be said
        hold_name(out)
    target = _followed(out)
    if target.name in ("", ".."):
        what = f"the output '{out}' has no name of its own, and a folder is replaced by renaming"
        raise _refused("bad-output", out, what, "name the folder, as in -o ../name")
    whole, root = target.resolve(), package.resolve()
    if whole == root or whole.is_relative_to(root) or root.is_relative_to(whole):
        what = f"the output '{out}' and the package '{package}' lie inside each other; the package is never changed"
        raise _refused("bad-output", out, what, "choose another folder with -o")
    if package.is_dir():
        hold_folder(target)
    clear_leftovers(target)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return target
    if not target.is_dir():
        raise _refused("output-exists", out, f"'{out}' exists and is no folder", "choose another with -o")
    if not is_compiled(target) and not force:
        what = f"'{out}' exists and is no compiled folder"
        raise _refused("output-exists", out, what, "choose another with -o, or --force to replace it")
    return target


def is_compiled(folder: Path) -> bool:
    """Whether a folder is one that this compiler, of any version, wrote."""
    file = folder / MANIFEST
    try:
        if not (folder / EXECUTOR).is_file() or not file.is_file() or file.stat().st_size > MAX_MANIFEST:
            return False
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and all(key in data for key in OURS)


def _followed(out: Path) -> Path:
    """`out`, or where the link that it is leads: the link stays, and its target is written."""
    try:
        found = out.resolve() if out.is_symlink() else out
        if found.is_symlink():  # a loop of links: Python 3.13 gives the link itself back, older ones raise RuntimeError
            raise OSError("it is a loop of links")
        return found
    except (OSError, RuntimeError) as loop:
        raise _refused("bad-output", out, f"the link '{out}' leads nowhere: {loop}", "remove it") from loop


def _refused(code: str, out: Path, what: str, help: str) -> CompileError:
    return CompileError([Problem(code, Place(str(out)), "", what, help)])
