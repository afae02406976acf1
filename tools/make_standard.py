"""`python -m tools.make_standard`: write docs/standard.md, construct by construct where the standard is implemented."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from genai_compiler import read
from genai_compiler.read.fields import Closed, Open, Tagged
from genai_compiler.read.negotiate import ALWAYS, OFFERED, PROVIDED
from pydantic import BaseModel

from tools.standard_map import CAPABILITIES, SECTIONS
from tools.standard_rows import Row

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "standard.md"
HEAD = """\
# The metadata standard, construct by construct

Written by `python -m tools.make_standard` from `tools/standard_map.py` and the document models. Section numbers are
the standard's. For each construct: the fields that the reader knows, and which module reads it, verifies it, plans it
and runs it. A dash is a stage that has nothing to do; the remark says why. Every rule of section 12 has a row of its
own in [validation-rules.md](validation-rules.md), every code one in [problems.md](problems.md). A test holds each name
against the sources, and refuses this page when a struct of the document has no row.
"""
CAPABILITIES_HEAD = """\

### The capabilities (8.1)

A document needs what its manifest and `required_capabilities` list and what its parts imply
(`check.capabilities:derived`). What is needed and not offered is listed apart from the faults of the document
(`--format json`: `missing`), with what needs it; both refuse. It is said with `--no-artifacts` too.

| capability | implied | offered |
|---|---|---|
"""
BASES = (Closed, Open, Tagged)
OTHER_DIALECTS = frozenset({"pipeline_config", "pipeline_extensions"})
"""Modules of `read` whose documents are none of the standard's."""


def structs() -> dict[str, type[BaseModel]]:
    """Every model of the document and of hints, by name."""
    found: dict[str, type[BaseModel]] = {}
    for each in pkgutil.iter_modules(read.__path__):
        if each.name in OTHER_DIALECTS:
            continue
        module = importlib.import_module(f"{read.__name__}.{each.name}")
        for name, value in vars(module).items():
            own = isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.__name__
            if own and value not in BASES and value.__name__ == name:
                found[name] = value
    return found


def full_name(name: str) -> tuple[str, str]:
    """(module, function or "") of a name of the table."""
    module, _, function = name.partition(":")
    if module.startswith("rt."):
        return f"genai_runtime.{module.removeprefix('rt.')}", function
    return f"genai_compiler.{module}", function


def exists(name: str) -> bool:
    """Whether the module is there, and the function in it."""
    module, function = full_name(name)
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    return found is not None and (not function or hasattr(importlib.import_module(module), function))


def names(row: Row) -> Iterator[str]:
    """Every module that a row names."""
    for stage in (row.read, row.verified, row.planned, row.run):
        yield from stage.split()


def page() -> str:
    """The text of the page."""
    known = structs()
    parts = [HEAD]
    for section, rows in SECTIONS.items():
        parts.append(f"\n## {section}\n\n| construct | read | verified | planned | emitted, run | tests | remark |\n")
        parts.append("|---|---|---|---|---|---|---|\n")
        parts += [_row(each, known) for each in rows]
        if any(each.structs for each in rows):
            parts.append("\n| struct | fields |\n|---|---|\n")
            parts += [_fields(known[name]) for each in rows for name in each.structs]
        if section.startswith("8"):
            parts += [CAPABILITIES_HEAD, *_capabilities()]
    return "".join(parts)


def _row(row: Row, known: dict[str, type[BaseModel]]) -> str:
    modules = dict.fromkeys(known[each].__module__.removeprefix("genai_compiler.") for each in row.structs)
    stages = [" ".join(dict.fromkeys([*modules, *row.read.split()])), row.verified, row.planned, row.run]
    tests = ", ".join(f"[{Path(each).stem}](../{each})" for each in row.tests.split())
    cells = [row.construct, *(", ".join(map(_link, each.split())) or "-" for each in stages), tests, row.remark]
    return f"| {' | '.join(cells)} |\n"


def _link(name: str) -> str:
    module, _ = full_name(name)
    if not exists(name):
        return f"`{name}` (being added)"
    side = "compiler" if module.startswith("genai_compiler") else "runtime"
    path = ROOT / side / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return f"[`{name}`](../{file.relative_to(ROOT).as_posix()})"


def _fields(struct: type[BaseModel]) -> str:
    fields = ", ".join(f"`{each.alias or name}`" for name, each in struct.model_fields.items())
    closed = "" if issubclass(struct, Closed) else " (open)"
    return f"| `{struct.__name__}`{closed} | {fields or '-'} |\n"


def _capabilities() -> Iterator[str]:
    for name, how in CAPABILITIES.items():
        offered = "always" if name in ALWAYS else "yes" if name in OFFERED else "no"
        yield f"| `{name}` | {how} | {offered} |\n"
    adapters = ", ".join(f"`{each}`" for each in sorted(PROVIDED))
    yield f"\nAdapters that the runtime brings: {adapters}.\n"
    yield (
        "Others come through the entry-point group `genai_runtime.adapters`: a callable that takes the contract's "
        "parameters and gives the call (arrays by role, read only, in; arrays by role out, of the dtypes and ranks "
        "that the ports declare).\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
