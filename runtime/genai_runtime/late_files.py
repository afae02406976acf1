"""Files that are read after a model was loaded: sessions that open on demand, a tokenizer when text first comes.

Loading holds every file against the manifest. A package that is exported again behind it, or a folder that is compiled
again, would give a request a graph of one version beside sessions of another.
"""

from collections.abc import Container, Iterator
from pathlib import Path

from genai_runtime.manifest import Manifest, check_files, hold_package, unreadable

Stamp = tuple[int, int] | None
"""Bytes and time of the last change; None for what is not there."""


class LateFiles:
    """What the files of a loaded model were. Made before they are checked, so that a change beside that shows."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._stamps = manifest, tuple(_stamps(manifest))

    def hold(self, only: Container[str] | None = None) -> None:
        """They still are, or those of the package's that have these names. Content decides where a size or a time stamp
        is another one.

        Raises LoadError `package-changed`, `damaged-folder`, `unreadable-file`.
        """
        now = tuple(_stamps(self._manifest))
        if now == self._stamps:
            return
        try:
            if only is not None:
                hold_package(self._manifest, True, only)
                return
            check_files(self._manifest, verify=True)
        except OSError as failure:
            raise unreadable(failure) from failure
        self._stamps = now


def _stamps(manifest: Manifest) -> Iterator[Stamp]:
    yield _stamp(manifest.executor)
    for each in manifest.data["files"]:
        yield _stamp(manifest.package / each["path"])


def _stamp(file: Path) -> Stamp:
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns
