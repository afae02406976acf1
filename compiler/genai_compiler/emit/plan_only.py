"""A folder that holds a plan and nothing that could run: what `--no-artifacts -o` writes."""

from pathlib import Path

from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.writable import hold_folder

PLAN = "plan.txt"
_PART = "plan.txt.part"


def prepare_plan_folder(out: Path, package: Path) -> Path:
    """The folder to write: new, empty, or one that holds only a plan.

    Raises CompileError bad-output, output-exists, disk-failed.
    A compiled folder is never replaced by a plan, whatever `--force` says of others; a package is never changed.
    """
    hold_folder(out)
    if package.is_dir() and out.resolve().is_relative_to(package.resolve()):
        what = f"the output '{out}' lies inside the package '{package}'; the package is never changed"
        raise CompileError([Problem("bad-output", Place(str(out)), "", what, "choose another folder with -o")])
    if not out.exists() or (out.is_dir() and {each.name for each in out.iterdir()} <= {PLAN, _PART}):
        return out
    what = f"'{out}' exists and holds more than a plan; without artifacts there is no executor to replace it by"
    raise CompileError([Problem("output-exists", Place(str(out)), "", what, "choose another folder with -o")])


def write_plan(folder: Path, text: str) -> None:
    """Write the plan's text, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / _PART
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(folder / PLAN)
    finally:
        part.unlink(missing_ok=True)
