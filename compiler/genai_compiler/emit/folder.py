"""The compiled folder: made whole in a work folder beside it and moved there in one step, or not at all."""

import errno
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from genai_compiler.emit.leftovers import NEW, OLD, make_work_folder
from genai_compiler.emit.manifest import package_files
from genai_compiler.emit.stored import store_sessions
from genai_compiler.emit.target import MANIFEST
from genai_compiler.read.package import Package

_ATTEMPTS = 100
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)


def write_folder(
    out: Path,
    package: Package,
    texts: Mapping[str, str],
    manifest: Mapping[str, Any],
    files: Mapping[str, bytes],
    bundle: bool,
    store: bool = False,
) -> tuple[str, ...]:
    """Write the compiled folder. texts, files: file name -> content. An existing compiled folder is replaced.

    store: with stored sessions; returns notes on them.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    work = make_work_folder(out)
    made = work / NEW
    try:
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8", newline="\n")
        _write_files(made, files)
        if bundle:
            _copy_package(made / "package", package)
        notes = tuple[str, ...]()
        if store:
            stored, notes = store_sessions(made, made / "package" if bundle else package.root, work, manifest)
            manifest = {**manifest, "stored": stored}
        (made / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8", newline="\n")
        _replace(work, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return notes


def _write_files(made: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_bytes(content)


def _copy_package(target: Path, package: Package) -> None:
    for name, file in package_files(package).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target / name)


def _replace(work: Path, out: Path) -> None:
    """Put what was made in the place of `out`.

    Another run may put its own there between our two renames: then ours replaces that one, in the next attempt.
    """
    (work / NEW).chmod(0o755)
    for attempt in range(_ATTEMPTS):
        old = work / f"{OLD}{attempt}"
        try:
            with suppress(FileNotFoundError):
                out.replace(old)
            (work / NEW).rename(out)
        except BaseException as failure:  # also an interrupt: what was there comes back
            _put_back(old, out)
            taken = isinstance(failure, OSError) and failure.errno in _TAKEN
            if not taken or attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _put_back(old: Path, out: Path) -> None:
    if old.exists() and not out.exists():
        try:
            old.replace(out)
        except OSError as failure:
            if failure.errno not in _TAKEN:
                raise
