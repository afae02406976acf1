"""Where a table of costs comes from and goes to: the shipped one, a file, the user's own."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from pydantic import ValidationError

from genai_compiler.costs.table import SHIPPED, Costs, shipped_costs
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.files import read_document
from genai_compiler.read.places import Places, format_path

VARIABLE = "GENAI_COMPILE_COSTS"
"""The environment variable that chooses a table for the command; `--costs` counts more."""
SHIPPED_WORD, USER_WORD = "shipped", "user"
"""Words that stand for the table that comes with the compiler, and for the user's own."""
_WRITTEN = "genai-compile --calibrate writes such a file; schema/costs.schema.json describes it"


def user_costs_file(environment: Mapping[str, str], platform: str = sys.platform, home: Path | None = None) -> Path:
    """Where the platform keeps a user's settings of a program: XDG, AppData or Library."""
    home = home if home is not None else Path.home()
    if platform == "win32":
        folder = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    elif platform == "darwin":
        folder = home / "Library" / "Application Support"
    else:
        stated = environment.get("XDG_CONFIG_HOME", "")
        folder = Path(stated) if stated.startswith("/") else home / ".config"  # a relative one is to be ignored
    return folder / "genai-compile" / "costs.json"


def chosen_costs(asked: str | None, environment: Mapping[str, str]) -> Costs:
    """The table that the command line asks for (a file, `user`, `shipped`), else the environment, else the shipped one.

    Raises CompileError `no-costs` where there is none, `bad-costs` and the reader's own codes for what is in it.
    """
    word = asked if asked is not None else environment.get(VARIABLE, "")
    if word in ("", SHIPPED_WORD):
        return shipped_costs()
    file = user_costs_file(environment) if word == USER_WORD else Path(word)
    return read_costs(file, f"${VARIABLE} says '{word}': " if asked is None else "")


def read_costs(file: str | Path, why: str = "") -> Costs:
    """The table in a file. why: who names it, where no option does. Raises CompileError as chosen_costs."""
    file = Path(file)
    if not file.is_file():
        what = f"'{file}' is a folder; a table of costs is one file"
        what = why + (what if file.is_dir() else f"there is no file '{file}' with a table of costs")
        help = f"genai-compile --calibrate measures one; '{SHIPPED_WORD}' is the one that comes with the compiler"
        raise CompileError([Problem("no-costs", Place(str(file)), "", what, help)])
    found = file.resolve()
    if found == SHIPPED.resolve():
        return shipped_costs()
    data, places = read_document(found, found.parent)
    try:
        return Costs.model_validate_json(json.dumps(data))
    except ValidationError as faults:
        raise CompileError(_problems(faults, places)) from None


def _problems(faults: ValidationError, places: Places) -> Iterator[Problem]:
    for each in faults.errors(include_url=False, include_input=False, include_context=False):
        path = tuple(part for part in each["loc"])
        what = each["msg"][:1].lower() + each["msg"][1:]
        yield Problem("bad-costs", places.find(path), format_path(path), what, _WRITTEN)


def costs_text(costs: Costs) -> str:
    """The file's text: one curve a line."""
    text = json.dumps(costs.model_dump(mode="json"), indent=1, ensure_ascii=False)
    lines, depth, kept = text.splitlines(), 0, list[str]()
    for line in lines:
        stripped = line.strip()
        if depth:
            kept[-1] += stripped if stripped.startswith("]") else f" {stripped}" if kept[-1][-1] == "," else stripped
        else:
            kept.append(line)
        depth += stripped.count("[") - stripped.count("]")
    return "\n".join(kept) + "\n"


def write_costs(costs: Costs, file: Path) -> None:
    """Put the table there, whole or not at all; a table that was there is replaced. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    number, name = mkstemp(prefix=".costs-", dir=file.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(costs_text(costs))
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:  # an interrupt too
        with suppress(OSError):
            Path(name).unlink()
        raise
