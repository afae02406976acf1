"""Starting: what the package imports and when, versions, and an interrupt at any moment."""

import subprocess
import sys

import genai_runtime
import pytest

HEAVY = ("numpy", "onnxruntime", "tokenizers", "jinja2")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_command_imports_nothing_heavy_before_it_runs() -> None:
    for module in ("genai_runtime", "genai_runtime.cli"):
        ended = python(f"import sys, {module}; print(sorted({set(HEAVY)!r} & set(sys.modules)))")
        assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr


def test_every_public_name_is_there() -> None:
    for name in genai_runtime.__all__:
        assert getattr(genai_runtime, name) is not None
        assert name in dir(genai_runtime)
    from genai_runtime.opening import load

    assert genai_runtime.load is load
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = genai_runtime.nothing_of_the_kind


@pytest.mark.parametrize("module", HEAVY[:3])
def test_an_interrupt_while_modules_are_imported(module: str, tmp_path: object) -> None:
    """As Ctrl-C in the first half second: exit code 3 and a word, no traceback."""
    code = f"""
import importlib.abc, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from genai_runtime.cli import main
raise SystemExit(main([{str(tmp_path)!r}, "--tokens", "1"]))
"""
    ended = python(code)
    if module == "tokenizers":  # opened when text is first asked for: the folder is refused before
        assert ended.returncode == 2
    else:
        assert (ended.returncode, ended.stderr.strip()) == (3, "interrupted")


@pytest.mark.parametrize("module", ["genai_runtime", "genai_compiler"])
def test_both_commands_say_their_version(module: str) -> None:
    import importlib.metadata

    ended = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert ended.returncode == 0
    assert ended.stdout.split()[-1] == importlib.metadata.version("genai-compile")


def test_the_help_says_that_standard_input_is_read() -> None:
    ended = subprocess.run([sys.executable, "-m", "genai_runtime", "--help"], capture_output=True, text=True)
    assert "standard input is the prompt" in " ".join(ended.stdout.split())
