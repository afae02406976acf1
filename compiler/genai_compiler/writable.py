"""Places that a command line names to write to, looked at before the work of which they would hold the result.

A file stands in a folder that is there and replaces no file but with --force; a folder is made together with those
above it (emit/target.py says what it replaces).
"""

import tempfile
from pathlib import Path

from genai_compiler.file_names import name_fault
from genai_compiler.problem import CompileError, Place, Problem, disk_problem


def hold_file(file: Path, force: bool) -> None:
    """A file can be made here, or replaced where `force` says so.

    Raises CompileError: bad-output, output-exists; disk-failed with what the operating system says.
    """
    hold_name(file)
    try:
        if file.is_dir():
            raise _refused("bad-output", file, f"'{file}' is a folder", "name a file in it")
        if not force and (file.exists() or file.is_symlink()):
            help = "name another file, or add --force to replace it"
            raise _refused("output-exists", file, f"'{file}' is there already", help)
        if not file.absolute().parent.is_dir():
            raise _refused("bad-output", file, f"'{file}' lies in a folder that is not there", "make the folder")
        _write_in(file.absolute().parent)
    except OSError as failure:
        raise CompileError([disk_problem(failure, file)]) from failure


def hold_folder(folder: Path) -> None:
    """A folder can be made here, with those above it. Raises CompileError: bad-output, disk-failed."""
    hold_name(folder)
    try:
        _write_in(next(each for each in folder.absolute().parents if each.exists()))
    except OSError as failure:
        raise CompileError([disk_problem(failure, folder)]) from failure


def hold_name(place: Path) -> None:
    """It is a name that a file may have. Raises CompileError as hold_folder."""
    if (failure := name_fault(place)) is not None:
        raise CompileError([disk_problem(failure, place)]) from failure


def _write_in(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


def _refused(code: str, place: Path, what: str, help: str) -> CompileError:
    return CompileError([Problem(code, Place(str(place)), "", what, help)])
