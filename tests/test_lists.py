"""Lists on the pages that name all of something: they have what the code has, in its order where there is one."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from genai_compiler import cli as compile_cli
from genai_compiler.check.generation_profiles import PROFILES
from genai_compiler.driver import STAGES
from genai_compiler.lower.scheduler import KINDS
from genai_compiler.passes import PASSES
from genai_compiler.passes.left_out import NEEDED
from genai_compiler.plan.ir import Form, Op
from genai_compiler.read import load
from genai_runtime import cli as run_cli
from genai_runtime.length_switch import CHOICES

from tests.data import ROOT

DOCS = ROOT / "docs"
OPTIONS = (DOCS / "options.md").read_text("utf-8")


def row(page: str, first: str) -> str:
    """The row of a table whose first cell has this word."""
    (found,) = [each for each in page.splitlines() if each.startswith("| ") and f"`{first}" in each.split("|")[1]]
    return found


def words(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def helped(*command: str) -> str:
    return subprocess.run([sys.executable, "-m", *command, "--help"], capture_output=True, text=True, check=True).stdout


# ---- passes and stages -----------------------------------------------------------------------------------------------


def test_the_passes_that_can_be_left_out_are_named_in_their_order() -> None:
    listed = row(OPTIONS, "--without PASS").partition("may be repeated:")[2].partition(". Results")[0]
    assert words(listed) == [each.__name__ for each in PASSES if each.__name__ not in NEEDED]


def test_the_command_names_every_stage_in_order() -> None:
    told = helped("genai_compiler").partition("stop early and write nothing:")[2].partition("--print")[0]
    assert re.findall(r"\w+", told) == list(STAGES)


# ---- options ---------------------------------------------------------------------------------------------------------


def test_the_options_of_convert_are_named() -> None:
    (line,) = [each for each in OPTIONS.splitlines() if each.startswith("`genai-compile convert PACKAGE")]
    usage = helped("genai_compiler", "convert").partition("\n\n")[0]
    assert set(re.findall(r"\[(--?[a-z]+)", line)) == set(re.findall(r"\[(--?[a-z]+)", usage)) - {"-h"}


@pytest.mark.parametrize("module", ["genai_compiler", "genai_runtime"])
def test_the_words_that_an_option_takes_stand_in_its_row(module: str) -> None:
    text = re.sub(r"\s+", " ", helped(module))
    chosen = dict(re.findall(r"(--[a-z-]+) \{([a-z,]+)\}", text))
    assert chosen
    for option, each in chosen.items():
        rows = [line for line in OPTIONS.splitlines() if line.startswith("| ") and f"`{option}" in line.split("|")[1]]
        named = set(re.findall(r"[a-z]+", " ".join(words(" ".join(rows)))))
        assert set(each.split(",")) - {"text"} <= named, option


def test_forms_and_choices_of_python_are_named() -> None:
    assert {each for each in get_args(Form) if each} <= set(words(row(OPTIONS, "--form [COMPONENT=]FORM")))
    named = [each for each in words(row(OPTIONS, "length_switch")) if each in CHOICES]
    assert list(dict.fromkeys(named)) == list(CHOICES)


def test_every_variable_of_the_environment_is_on_a_page() -> None:
    code = [*(ROOT / "compiler").rglob("*.py"), *(ROOT / "runtime").rglob("*.py"), ROOT / "tests" / "data.py"]
    read = {
        name
        for each in code
        for name in re.findall(r"\"(GENAI_(?:COMPILE|RUNTIME)_[A-Z_]+)\"", each.read_text("utf-8"))
    }
    pages = "".join(each.read_text("utf-8") for each in (ROOT / "README.md", *DOCS.glob("*.md")))
    assert len(read) >= 3
    assert {each for each in read if f"`{each}" not in pages} == set()


# ---- exit codes ------------------------------------------------------------------------------------------------------

CODES = {0: "done", 1: "our fault", 2: "the input's fault", 3: "interrupted"}


def test_both_commands_have_the_same_exit_codes() -> None:
    of_compile = compile_cli.EXIT_DONE, compile_cli.EXIT_BUG, compile_cli.EXIT_INPUT, compile_cli.EXIT_INTERRUPTED
    of_run = run_cli.EXIT_DONE, run_cli.EXIT_FAULT, run_cli.EXIT_INPUT, run_cli.EXIT_INTERRUPTED
    assert of_compile == of_run == tuple(CODES)


@pytest.mark.parametrize("page", ["options.md", "tour.md"])
def test_exit_codes_are_those(page: str) -> None:
    (told,) = re.findall(r"^Exit codes[^:]*: ([^.]*)\.", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    assert told == ", ".join(f"{number} {word}" for number, word in CODES.items())


@pytest.mark.parametrize("module", ["genai_compiler", "genai_runtime"])
def test_a_command_tells_its_exit_codes(module: str) -> None:
    told = re.sub(r"\s+", " ", helped(module)).partition("Exit codes: ")[2]
    assert [int(each) for each in re.findall(r"(?:^|; )([0-9]) ", told)] == list(CODES)


# ---- what is understood ----------------------------------------------------------------------------------------------


def test_the_dialects_are_named() -> None:
    known = {load.WORKFLOW, load.GENAI_CONFIG, load.GENAI_CONFIG_V2, load.BARE, load.COMPOSITE, load.PLAIN}
    assert set(words(row((DOCS / "ir.md").read_text("utf-8"), "plan NAME from DIALECT")[30:])) == known


def test_the_kinds_of_profiles_are_named_in_order() -> None:
    page = (DOCS / "profiles.md").read_text("utf-8")
    (listed,) = re.findall(r"^The kinds (.*?) differ", page, re.MULTILINE | re.DOTALL)
    assert tuple(words(listed)) == PROFILES


def test_the_kinds_of_schedulers_are_those_of_the_table() -> None:
    table = (DOCS / "diffusion.md").read_text("utf-8").partition("| kind |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(KINDS)


OPS = {
    "Invoke": "`invoke`", "Fused": "`invoke island_N`", "SelectAdapters": "`... = select adapters(", "Copy": "`copy`",
    "Decode": "`decode`", "StartPolicy": "`start`", "SelectToken": "`select`", "SpeculativeBlock": "`block`",
    "Emit": "`emit ", "Loop": "`loop ", "Branch": "`branch ", "Release": "`release ", "Keep": "`keep ",
    "Hold": "`hold ", "CheckHeld": "`check GROUP", "LastRun": "`last`",
}  # fmt: skip
"""Op -> how its row begins."""


def test_every_op_has_a_row() -> None:
    assert {each.__name__ for each in get_args(Op)} == set(OPS)
    page = (DOCS / "ir.md").read_text("utf-8")
    assert [name for name, first in OPS.items() if not re.search(rf"^\| {re.escape(first)}", page, re.MULTILINE)] == []


# ---- the first page --------------------------------------------------------------------------------------------------


def test_the_extras_are_those_of_the_project() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    readme = (ROOT / "README.md").read_text("utf-8")
    table = readme.partition("| extra |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(stated)
    for extra, needs in stated.items():
        brought = row(table, extra).split("|")[2]
        names = {re.split(r"[>\[]", each)[0] for each in needs}
        if extra != "dev":  # which is what tests and checks need, too many to name
            assert set(re.findall(r"[a-z][a-z-]+", brought)) == names


def test_every_page_is_reached_from_the_first() -> None:
    linked = set(re.findall(r"\(docs/([a-z0-9-]+\.md)", (ROOT / "README.md").read_text("utf-8")))
    around = {name for page in linked for name in re.findall(r"\(([a-z0-9-]+\.md)", (DOCS / page).read_text("utf-8"))}
    assert {each.name for each in DOCS.glob("*.md")} - linked - around == set()


def test_make_helps_with_every_target_that_it_shows() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    helped = set(re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE))
    assert set(phony.split()) - {"venv", "FORCE"} == helped
    assert Path(ROOT / "README.md").read_text("utf-8").count("`make help` lists the rest") == 1


# ---- tools -----------------------------------------------------------------------------------------------------------


def shown_commands() -> dict[str, set[str]]:
    """Module -> the options that pages and the Makefile show it with."""
    found: dict[str, set[str]] = {}
    for page in (ROOT / "README.md", ROOT / "Makefile", *DOCS.rglob("*.md")):
        for module, rest in re.findall(r"python -m ((?:tools|tests)\.[\w.]*\w)([^`\n]*)", page.read_text("utf-8")):
            found.setdefault(module, set()).update(re.findall(r"(?<![\w-])(--[a-z-]+)", rest.partition("&&")[0]))
    return found


SHOWN = shown_commands()


def test_commands_of_tools_are_found_on_the_pages() -> None:
    assert {"tools.smollm2", "tools.measure_memory", "tests.property.fuzz"} <= set(SHOWN)


@pytest.mark.parametrize("module", SHOWN)
def test_a_tool_has_the_options_that_it_is_shown_with(module: str) -> None:
    path = ROOT.joinpath(*module.split("."))
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    if SHOWN[module]:
        assert SHOWN[module] <= set(re.findall(r"--[a-z-]+", helped(module)))
