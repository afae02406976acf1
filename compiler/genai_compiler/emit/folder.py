"""The compiled folder: made whole in a temporary folder beside it and moved there in one step, or not at all."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genai_compiler.emit.manifest import converted_bytes, converted_name, package_files
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.package import Package

MANIFEST = "manifest.json"


def check_target(out: Path, package: Path, force: bool) -> None:
    """Refuse a target that would harm something. Raises CompileError: bad-output, output-exists."""
    target, root = out.resolve(), package.resolve()
    if target == root or target.is_relative_to(root) or root.is_relative_to(target):
        what = f"the output '{out}' and the package '{package}' lie inside each other; the package is never changed"
        raise _refused("bad-output", out, what, "choose another folder with -o")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir():
        raise _refused("output-exists", out, f"'{out}' exists and is no folder", "choose another with -o")
    if not (out / MANIFEST).is_file() and not force:
        what = f"'{out}' exists and is no compiled folder"
        raise _refused("output-exists", out, what, "choose another with -o, or --force to replace it")


def _refused(code: str, out: Path, what: str, help: str) -> CompileError:
    return CompileError([Problem(code, Place(str(out)), "", what, help)])


def write_folder(
    out: Path, package: Package, texts: Mapping[str, str], manifest: Mapping[str, Any], bundle: bool
) -> None:
    """Write the compiled folder. texts: file name -> content. An existing compiled folder is replaced."""
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8", newline="\n")
        (made / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8", newline="\n")
        _convert_graphs(made, package)
        if bundle:
            _copy_package(made / "package", package)
        _replace(made, out)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _convert_graphs(made: Path, package: Package) -> None:
    for graph in package.graphs.values():
        target = made / converted_name(graph.artifact)
        if graph.textproto and not target.exists():
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(converted_bytes(graph))


def _copy_package(target: Path, package: Package) -> None:
    for name, file in package_files(package).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target / name)


def _replace(made: Path, out: Path) -> None:
    made.chmod(0o755)
    if not out.exists():
        made.rename(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        out.replace(old / "old")
        made.rename(out)
    except BaseException:  # also an interrupt: what was there comes back
        if not out.exists() and (old / "old").exists():
            (old / "old").replace(out)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
