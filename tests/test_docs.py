"""The documentation is true: the tour runs as printed, links lead somewhere, lists of codes are complete."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from genai_compiler.check.rules import CHECKED
from genai_runtime import SamplingOptions

from tests.conftest import FIXTURES, Traced
from tests.data import ROOT
from tools.list_rules import page_with_rules

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


# ---- the tour --------------------------------------------------------------------------------------------------------


def tour() -> Iterator[tuple[str, str]]:
    """Each shell block of the tour, and the output printed below it."""
    blocks = BLOCK.findall((DOCS / "tour.md").read_text("utf-8"))
    for (kind, script), (shown_kind, shown) in zip(blocks[::2], blocks[1::2], strict=True):
        assert (kind, shown_kind) == ("sh", "text")
        yield script, shown


def pattern(shown: str) -> str:
    """What an output must match: a line of dots is any number of lines, dots at a line's end are any rest."""
    lines = [
        re.escape(line.removesuffix("...")) + (".*" if line.endswith("...") else "") for line in shown.splitlines()
    ]
    return "".join(r"(?:.*\n)*?" if line == ".*" else f"{line}\n" for line in lines)


def test_the_tour_runs_as_printed(tmp_path: Path) -> None:
    for case in ("tiny-gqa-v1", "tiny-concat-v1", "tiny-decoder"):
        shutil.copytree(FIXTURES / case, tmp_path / "fixtures" / case)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for script, shown in tour():
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert ended.returncode == 0, f"{script}\n{ended.stdout}"
        assert re.fullmatch(pattern(shown), ended.stdout), f"{script}\n{ended.stdout}"


def test_the_readmes_session_runs(compiled: Callable[[str], tuple[Path, Traced]], tmp_path: Path) -> None:
    (code,) = (text for kind, text in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if kind == "python")
    code = code.replace("build/smollm2/v1.compiled", str(compiled("tiny-gqa-v1")[0]))
    code = re.sub(r'"(Once|What|One)[^"]*"', '"the hat"', code.replace('"One, two, three"', '"hello"'))  # its alphabet
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


# ---- links and commands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))
    assert [each for each in targets if "://" not in each and not (page.parent / each).exists()] == []


def test_make_has_the_targets_that_pages_name() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    text = "".join(page.read_text("utf-8") for page in PAGES)
    lines = re.findall(r"^\s*make((?: [a-z-]+)+)", text, re.MULTILINE) + re.findall(r"`make((?: [a-z-]+)+)`", text)
    named = {target for line in lines for target in line.split()}
    assert {each for each in named if not re.search(rf"^{each}:", makefile, re.MULTILINE)} == set()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_an_interpreter_that_does_not_run_is_heard(tmp_path: Path) -> None:
    """A shim stands for a version that is not installed: what it says is the way out, so it is shown."""
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho 'python3.99 exists in no version set here' >&2\nexit 127\n", "utf-8")
    shim.chmod(0o755)
    command = ["make", "-C", str(ROOT), f"PYTHON={shim}", f"VENV={tmp_path}/env", "setup"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "exists in no version set here" in ended.stderr
    assert f"{shim} is not to be found or does not run" in ended.stderr
    assert list(tmp_path.iterdir()) == [shim]


# ---- codes -----------------------------------------------------------------------------------------------------------

CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+")
REPORTS = {
    "AdapterFault", "ArtifactFault", "Problem", "LoadError", "RequestError", "ExecutionError", "fault", "_fault",
    "report", "warn", "_warning", "error", "note", "problem", "_refused",
}  # fmt: skip
"""Functions whose arguments name a code."""
ERRORS = {"LoadError", "RequestError", "ExecutionError"}
"""Of these the first argument is a code, and may be a single word."""


def sources() -> Iterator[ast.Module]:
    for folder in (ROOT / "compiler", ROOT / "runtime"):
        for file in sorted(folder.rglob("*.py")):
            yield ast.parse(file.read_text("utf-8"))


def texts(node: ast.AST) -> Iterator[str]:
    """String constants below a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def codes_in_sources() -> set[str]:
    """Codes that a report names directly; those of the standard's rules stand in tables of their own."""
    found, single = set[str](), set[str]()
    for node in (node for tree in sources() for node in ast.walk(tree)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in REPORTS:
                given = [*node.args, *(each.value for each in node.keywords if each.arg == "code")]
                found |= {text for each in given if isinstance(each, ast.Constant) for text in texts(each)}
                if name in ERRORS and node.args and isinstance(node.args[0], ast.Constant):
                    single |= {text for text in texts(node.args[0]) if text.isalpha() and text.islower()}
    return {each for each in found if CODE.fullmatch(each)} | single


def documented() -> set[str]:
    """Codes in the first column of the tables that are written by hand."""
    page = re.sub(r"<!-- rules.*end of rules -->", "", (DOCS / "problems.md").read_text("utf-8"), flags=re.DOTALL)
    cells = (line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    return {code for cell in cells for code in re.findall(r"`([a-z0-9-]+)`", cell)}


def test_every_code_is_on_the_page_of_problems() -> None:
    assert codes_in_sources() - documented() == set()


def test_every_code_on_the_page_is_used() -> None:
    assert documented() - {text for tree in sources() for text in texts(tree)} == set()


def test_the_table_of_rules_is_current() -> None:
    page = (DOCS / "problems.md").read_text("utf-8")
    assert page == page_with_rules(page), "python -m tools.list_rules"
    assert len(CHECKED) > 100


# ---- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_stands_in_a_table(page: Path) -> None:
    """A line of cells behind prose is printed as prose: a row follows a row, a head stands over its rule."""
    lines = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL).splitlines()
    rows = [at for at, line in enumerate(lines) if line.startswith("|")]
    heads = [at for at in rows if not at or not lines[at - 1].startswith("|")]
    assert [
        lines[at] for at in heads if not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", "".join(lines[at + 1 : at + 2]))
    ] == []


# ---- options and the manifest ----------------------------------------------------------------------------------------


def test_every_option_is_on_the_page_of_options() -> None:
    page = (DOCS / "options.md").read_text("utf-8")
    named = set(re.findall(r"`(-?-?[\w-]+)", page))
    assert {each.name for each in fields(SamplingOptions)} - named == set()
    helps = "".join(
        subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True).stdout
        for module in ("genai_compiler", "genai_runtime")
    )
    options = set(re.findall(r"(?<![\w-])(--[a-z-]+)", helps.split("Exit codes")[0] + helps)) - {"--help"}
    spelled = named | {f"--{each.replace('_', '-')}" for each in named}
    assert options - spelled == set()


def options_of(module: str) -> set[str]:
    """The long options that a command's help lists."""
    told = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (?:-\w(?: \S+)?, )?(--[a-z-]+)", told, re.MULTILINE)) | {"--no-speculate"}


@pytest.mark.parametrize(
    ("section", "module"),
    [("Of a request", "genai_runtime"), ("Of loading", "genai_runtime"), ("Of genai-run", "genai_runtime"),
     ("Of genai-compile", "genai_compiler")],
)  # fmt: skip
def test_a_table_of_options_has_those_of_its_command(section: str, module: str) -> None:
    """Each row's options are the command's, spelled with dashes or as the row says; not those marked Python only."""
    page = (DOCS / "options.md").read_text("utf-8")
    body = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    known = options_of(module)
    for line in body.splitlines():
        if not line.startswith("| `"):
            continue
        cell = line.split("|")[1]
        names = re.findall(r"`(--[a-z-]+)", cell) or [
            f"--{each.replace('_', '-')}" for each in re.findall(r"`([a-z]\w+)`", cell)
        ]
        if "Python only" in cell:
            argument = re.findall(r"`([a-z]\w+)`", cell)[0]
            assert f"--{argument.replace('_', '-')}" not in known, line
        else:
            assert names, line
            assert set(names) <= known, line


def test_every_entry_of_the_manifest_is_described(compiled: Callable[[str], tuple[Path, Traced]]) -> None:
    manifest = json.loads((compiled("tiny-gqa-v1")[0] / "manifest.json").read_text("utf-8"))
    page = (DOCS / "compiled-folder.md").read_text("utf-8")
    assert {each for each in manifest if f"`{each}`" not in page} == set()
