"""No string of a package reaches generated code but as a literal or a sanitised name; and one can debug that code."""

import ast
import linecache
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime import ExecutionError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CASES, FIXTURES, GOLDEN
from tests.reference.document import read_document
from tests.reference.interpreter import interpret
from tests.renaming import HOSTILE, REQUESTS, names_of, renamed
from tests.two_routes import TwoRoutes
from tools.fixtures.document import write_document

NODES = (
    "Module Expr Constant ImportFrom alias Assign AnnAssign AugAssign Add Name Tuple Starred Call keyword ClassDef "
    "FunctionDef Dict arguments arg Attribute Subscript For If UnaryOp Not USub BoolOp And Or BinOp BitAnd Sub Compare "
    "Eq NotEq Lt LtE Gt GtE Is IsNot IfExp Mult BitOr BitXor Invert Slice Lambda In Break Pass Try ExceptHandler Yield "
    "YieldFrom Return Raise Delete Load Store Del"
)
ALLOWED = tuple(getattr(ast, each) for each in NODES.split())
"""The kinds of syntax that executors are made of."""


def check_module(text: str) -> None:
    """A generated module: ASCII, only the syntax that an executor has, and no name that it did not make or import."""
    assert text.isascii()
    assert [char for char in text if ord(char) < 32 and char != "\n"] == []
    tree = ast.parse(text)
    strange = [node for node in ast.walk(tree) if not isinstance(node, ALLOWED)]
    assert strange == [], [ast.dump(each) for each in strange[:3]]
    body = [type(node).__name__ for node in tree.body if not isinstance(node, ast.Assign | ast.AnnAssign)]
    assert body == ["Expr", "ImportFrom", "ImportFrom", "ClassDef"]
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    stored = caught | {node.id for node in names if isinstance(node.ctx, ast.Store)}
    imported = {each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    arguments = {each.arg for node in functions for each in node.args.args}
    known = imported | arguments | {"range", "tuple", "float", "abs", "int", "len", "max", "min"}
    assert {node.id for node in names} <= stored | known, {node.id for node in names} - stored - known
    assert stored.isdisjoint(known)
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")] == []
    methods = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert methods == ["__init__", "run"]
    held = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    assert held.isdisjoint(methods), "an attribute hides a method"


@pytest.mark.parametrize("case", CASES)
def test_golden_executors_pass_the_check(case: str) -> None:
    if (GOLDEN / case / "executor.py").exists():
        check_module((GOLDEN / case / "executor.py").read_text("utf-8"))


@pytest.mark.parametrize("bad", ["import os", "exec('1')", "x = [1 for _ in ()]", "def f(): ...", "Event.__class__"])
def test_the_check_notices_foreign_code(bad: str) -> None:
    text = (GOLDEN / "nested-loops" / "executor.py").read_text("utf-8")
    with pytest.raises(AssertionError):
        check_module(f"{text}{bad}\n")


# ---- names that a package chooses ------------------------------------------------------------------------------------


def run_renamed(case: str, strings: list[str], folder: Path, only: str = "") -> None:
    """Rename, compile, check the text, run: the values are what they were, whatever the names are."""
    shutil.copytree(FIXTURES / case, folder / "package")
    new = names_of(strings, only)
    write_document(folder / "package", renamed(read_document(FIXTURES / case), new))
    check_module(compile_package(folder / "package", out=folder / "compiled").executor)
    plan = (folder / "compiled" / "plan.txt").read_text("utf-8")
    assert [line for line in plan.splitlines() if not line.isprintable()] == [] or not plan.isascii()
    model = genai_runtime.load(folder / "compiled", threads=1)
    inputs = {new("application", name): array for name, array in REQUESTS[case].items()}
    result = TwoRoutes(model, folder / "package").agree(inputs)
    for name, before in interpret(FIXTURES / case, REQUESTS[case]).outputs.items():
        if isinstance(before, np.ndarray):
            np.testing.assert_array_equal(result[new("output", name)], before)
    model.close()


@pytest.mark.parametrize("case", REQUESTS)
@pytest.mark.parametrize("shift", range(0, len(HOSTILE), 8))
def test_hostile_names(case: str, shift: int, tmp_path: Path) -> None:
    run_renamed(case, [*HOSTILE[shift:], *HOSTILE[:shift]], tmp_path)


def test_hostile_component_names(tmp_path: Path) -> None:
    names = [each for each in HOSTILE if each.strip() and "." not in each]
    for at in range(0, len(names), 3):
        run_renamed("nested-loops", names[at:] + names[:at], tmp_path / str(at), only="component")


NAMES = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=40)), max_size=12, unique=True)


@settings(max_examples=40, deadline=None)
@given(case=st.sampled_from(sorted(REQUESTS)), strings=NAMES)
def test_any_names(case: str, strings: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        run_renamed(case, strings, tmp_path_factory.mktemp("names"))
    except CompileError as refused:
        if {each.code for each in refused.problems} != {"forbidden-character"}:  # what no text of a document may hold
            raise


def test_hostile_package_names(tmp_path: Path) -> None:
    for number, name in enumerate(['""" + x + """', "a\nb", "'", "\\", "x" * 200, "{{ 1 }}"]):
        package = tmp_path / str(number) / name
        shutil.copytree(FIXTURES / "nested-loops", package)
        check_module(compile_package(package, out=tmp_path / f"{number}.compiled").executor)


# ---- debugging -------------------------------------------------------------------------------------------------------


@pytest.fixture
def failing(tmp_path: Path) -> tuple[genai_runtime.Model, dict[str, np.ndarray]]:
    """A model and a request at which its cell outgrows its bound."""
    compile_package(FIXTURES / "bounded-growing", out=tmp_path / "failing.compiled")
    inputs = {"x": np.ones((1, 1), np.float32), "budget": np.array([6]), "turns": np.array([0])}
    return genai_runtime.load(tmp_path / "failing.compiled", threads=1), inputs


def test_a_traceback_shows_the_line_of_the_executor_and_its_origin(
    failing: tuple[genai_runtime.Model, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    model, inputs = failing
    with pytest.raises(ExecutionError) as caught:
        model.run(inputs)
    lines = (FIXTURES / "bounded-growing" / "inference_metadata.yaml").read_text("utf-8").splitlines()
    place = f"inference_metadata.yaml:{lines.index('    steps:') + 2} pipeline.workflow.steps[0]"
    assert caught.value.origin == place
    assert str(caught.value).startswith(f"{place}: recurrence: cell 'history' ")
    file = tmp_path / "failing.compiled" / "executor.py"
    frame = next(each for each in traceback.extract_tb(caught.tb) if each.filename.endswith("executor.py"))
    assert frame.line is not None
    assert frame.line.startswith('growing("history", history, grown, 1, ')
    assert frame.line == linecache.getline(frame.filename, frame.lineno or 0).strip()
    assert frame.line == file.read_text("utf-8").splitlines()[(frame.lineno or 0) - 1].strip()


def test_a_failing_session_run_names_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that the table has not, which is refused before anything runs, and here is not."""
    monkeypatch.setattr("genai_runtime.inputs.hold_entries", lambda *_: None)
    compile_package(FIXTURES / "tiny-gqa-v1", out=tmp_path / "c")
    with genai_runtime.load(tmp_path / "c", threads=1) as model, pytest.raises(ExecutionError) as caught:
        model.run({"request.input_ids": np.array([[9999]]), "request.max_iterations": np.array([2])})
    assert caught.value.origin == "genai_config.json:16 model.decoder.filename"


def test_pdb_steps_through_an_executor(tmp_path: Path) -> None:
    compile_package(FIXTURES / "nested-loops", out=tmp_path / "c")
    lines = (tmp_path / "c" / "executor.py").read_text("utf-8").splitlines()
    at = next(number for number, line in enumerate(lines, 1) if line.strip().startswith("outer_index = "))
    script = tmp_path / "debugged.py"
    script.write_text(
        "import numpy as np\nimport genai_runtime\n"
        f"model = genai_runtime.load({str(tmp_path / 'c')!r}, threads=1)\n"
        "names = ('start', 'outer_limit', 'inner_limit', 'ceiling')\n"
        "model.run({name: np.array([2]) for name in names})\n"
    )
    commands = f"b {tmp_path / 'c' / 'executor.py'}:{at}\nc\np step\nn\np outer_index.numpy().tolist()\nc\np step\nq\n"
    run = subprocess.run([sys.executable, "-m", "pdb", str(script)], input=commands, capture_output=True, text=True)
    assert f"-> {lines[at - 1].strip()}" in run.stdout, run.stdout + run.stderr
    answers = [line.removeprefix("(Pdb) ") for line in run.stdout.splitlines() if line.startswith("(Pdb) ")]
    assert [each for each in answers if each in ("0", "1", "[0]")] == ["0", "[0]", "1"]
