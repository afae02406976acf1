"""Folding: long lines open as the formatter opens them, the meaning stays, and what is no Python is our own fault."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from genai_compiler.emit.tidy import MARGIN, tidy
from genai_compiler.problem import InternalError

from tests.data import ROOT

WORDS = [f"quite_a_long_name_{number}" for number in range(9)]
LONG = {
    "call": f"run({', '.join(WORDS)})",
    "assigned": f"x = run({', '.join(WORDS)})[0]",
    "keywords": f"x = run({', '.join(f'{each}={each}' for each in WORDS)})",
    "nested": f'x = run(({", ".join(WORDS)}), ("a",), other({", ".join(WORDS)}))',
    "delete": f"del {', '.join(WORDS)}",
    "tuples": f"{', '.join(WORDS)} = {', '.join(reversed(WORDS))}",
    "targets": f"{', '.join(WORDS)} = run()",
    "both": f"{', '.join(WORDS)} = run({', '.join(WORDS)})",
    "few targets": f"a, b = run({', '.join(WORDS)})",
    "generator": f"yield from out.emit_rows({', '.join(WORDS)})",
    "one tuple": f"TABLE = (Output({', '.join(WORDS)}),)",
    "subscript": f'x = inputs["{"long" * 40}"]',
    "quotes": f"""x = run('a{chr(34) * 3}b', {", ".join(WORDS)})""",
    "strings": f"""x = run("(, [", 'a"b', {", ".join(WORDS)})""",
}


def module(line: str) -> str:
    """The line where a line of this kind stands in executors."""
    return f"def f():\n    {line}\n" if not line.startswith("TABLE") else f"{line}\n"


def meaning(text: str) -> str:
    """The syntax tree, in which `del (a, b)` is `del a, b`."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Tuple):
            node.targets = node.targets[0].elts
    return ast.dump(tree)


@pytest.mark.parametrize("kind", LONG)
def test_the_meaning_stays(kind: str) -> None:
    text = tidy(module(LONG[kind]))
    assert meaning(text) == meaning(module(LONG[kind]))
    assert all(len(line) <= MARGIN for line in text.splitlines()) or kind == "subscript"


@pytest.mark.parametrize("kind", [each for each in LONG if each != "subscript"])
def test_the_formatter_has_nothing_to_change(kind: str, tmp_path: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    found = str(ruff) if ruff.exists() else shutil.which("ruff")
    if found is None:
        pytest.skip("ruff is absent: its opinion can't be asked")
    file = tmp_path / "made.py"
    file.write_text(tidy(module(LONG[kind])))
    command = [found, "format", "--diff", "--config", str(ROOT / "pyproject.toml"), str(file)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_short_lines_strings_and_docstrings_are_left_alone() -> None:
    text = f'"""Title.\n\n{"word " * 40}\n"""\n\nx = 1\n'
    assert tidy(text) == text


def test_quotes_in_a_literal_begin_no_docstring() -> None:
    call = f"run({', '.join(WORDS)})"
    text = tidy(f"def f():\n    x = 'a{chr(34) * 3}b'\n    {call}\n")
    assert all(len(line) <= MARGIN for line in text.splitlines())


def test_a_long_comment_is_wrapped() -> None:
    lines = tidy(f"def f():\n    # {'steps[0].steps[12] ' * 12}\n    pass\n").splitlines()
    assert all(len(line) <= MARGIN for line in lines)
    assert [line.startswith("    #") for line in lines[1:-1]] == [True] * (len(lines) - 2)


def test_a_comment_without_spaces_stays_whole() -> None:
    line = f"# {'x' * 200}"
    assert tidy(f"{line}\n").splitlines()[-1].endswith("x" * 200)


def test_no_python_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="no Python"):
        tidy("x = (\n")
