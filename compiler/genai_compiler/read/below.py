"""A folder that is no package itself but holds some, or is one of a kind that is not read: said by name."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from genai_compiler.file_names import name_fault
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.files import METADATA_NAMES
from genai_compiler.read.genai_config import CONFIG_NAME
from genai_compiler.read.suggest import closest

COMPONENTS = "manifest.json"
"""Of a package of component variants; a compiled folder has a file of that name, too."""
COMPILED = ("abi", "compiler", "executor_sha256", "package")
"""Keys of a compiled folder's manifest (emit/manifest.py)."""
_MOST = 200
"""Folders looked into: a hub's repository has a dozen."""
_MOST_BESIDE = 2000


def not_a_package(root: Path) -> Problem | None:
    """Why a folder without metadata and without a model's configuration is none, None when nothing tells."""
    name, where = root.resolve().name, Place(root.resolve().name)
    if (package := _compiled_from(root)) is not None:
        help = f"genai-run {root.as_posix()} runs it"
        help += f"; to compile again, name its package, {package}" if package else ""
        return Problem("compiled-folder", Place(COMPONENTS), "", f"'{name}' is a folder that genai-compile wrote", help)
    if found := list(_packages(root)):
        listed = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
        what = f"'{name}' declares nothing itself; packages lie below it: {listed}"
        return Problem("no-package", where, "", what, f"name one of them, for example {(root / found[0]).as_posix()}")
    if (root / COMPONENTS).is_file():
        what = f"'{name}' is a package of component variants ({COMPONENTS} in the place of metadata), which is not read"
        help = f"compile the folder of one variant, with a {CONFIG_NAME}"
        return Problem("unsupported-package-class", Place(COMPONENTS), "", what, help)
    return None


def _compiled_from(root: Path) -> str | None:
    """The package that a compiled folder was made of, "" where it is no longer there; None for other folders."""
    try:
        manifest = json.loads((root / COMPONENTS).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict) or not all(key in manifest for key in COMPILED):
        return None
    stated = manifest["package"].get("path") if isinstance(manifest["package"], dict) else None
    package = root.resolve() / stated if isinstance(stated, str) and "\0" not in stated else None
    return package.resolve().as_posix() if package is not None and package.is_dir() else ""


def hold_package_name(root: Path) -> None:
    """A package's path is one that the operating system could have. Raises CompileError `no-package`."""
    failure = name_fault(root)
    if failure is not None and not isinstance(failure, NotADirectoryError):  # that is as absent as any other
        what = f"there can be no package '{root}': {failure.strerror or failure}"
        help = "name the folder that holds inference_metadata.yaml or genai_config.json"
        raise CompileError([Problem("no-package", Place(root.name), "", what, help)]) from failure


def near_folder(absent: Path) -> str:
    """The folder most like the first part of a path that is not there, with the parts before it; "" for none."""
    while not absent.parent.exists() and absent.parent != absent:
        absent = absent.parent
    if absent.exists():
        return ""
    try:
        beside = [each.name for each in islice(absent.parent.iterdir(), _MOST_BESIDE) if each.is_dir()]
    except OSError:
        return ""
    near = closest(absent.name, sorted(beside))
    return (absent.parent / near).as_posix() if near is not None else ""


def _packages(root: Path) -> Iterator[str]:
    """Folders up to two levels below that hold metadata."""
    level = [each for each in sorted(root.iterdir()) if each.is_dir() and not each.is_symlink()][:_MOST]
    deeper = [inner for each in level for inner in sorted(each.iterdir()) if inner.is_dir()][:_MOST]
    for folder in (*level, *deeper):
        if any((folder / each).is_file() for each in (CONFIG_NAME, *METADATA_NAMES)):
            yield folder.relative_to(root).as_posix()
