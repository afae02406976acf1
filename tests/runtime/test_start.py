"""Starting: what the package imports and when, versions, and an interrupt at any moment."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import genai_runtime
import pytest

HEAVY = ("numpy", "onnxruntime", "tokenizers", "jinja2")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_command_imports_nothing_heavy_before_it_runs() -> None:
    for module in ("genai_runtime", "genai_runtime.cli"):
        ended = python(f"import sys, {module}; print(sorted({set(HEAVY)!r} & set(sys.modules)))")
        assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr


FOREIGN = {
    "scipy",
    "pandas",
    "torch",
    "transformers",
    "onnx",
    "onnx_ir",
    "pydantic",
    "yaml",
    "networkx",
    "PIL",
    "miniaudio",
    "genai_compiler",
}
"""What running must not need."""
TEXT = {"tokenizers", "jinja2"}
"""What only text needs, and only then."""
ON_DEMAND = (
    "adapters.audio", "adapters.diffusion", "adapters.image", "block_decoding", "blocks", "budget", "chat_template",
    "drafting", "held", "lora.service", "media", "paged", "pictures", "text_assembly", "timings", "windowed",
)  # fmt: skip
"""Modules of ours that a plain decoder has no use for."""


def test_a_plain_decoder_imports_only_what_it_uses(compiled: Callable[[str], tuple[Path, object]]) -> None:
    """load() and a request of token ids."""
    code = f"""
import sys
import numpy, onnxruntime
before = set(sys.modules)
import genai_runtime
with genai_runtime.load({str(compiled("tiny-gqa-v1")[0])!r}, threads=1) as model:
    model.generate([1, 9], max_new_tokens=2).tokens
print(*sorted(set(sys.modules) - before))
"""
    ended = python(code)
    assert (ended.returncode, ended.stderr) == (0, "")
    imported = ended.stdout.split()
    assert not {each.split(".")[0] for each in imported} & (FOREIGN | TEXT)
    ours = [each.removeprefix("genai_runtime.") for each in imported if each.startswith("genai_runtime.")]
    assert "generation" in ours, "the list is of modules"
    assert not [each for each in ours if each in ON_DEMAND or each.startswith(tuple(f"{name}." for name in ON_DEMAND))]


def test_modules_are_imported_while_the_sessions_open(compiled: Callable[[str], tuple[Path, object]]) -> None:
    """What the executor and requests need: behind the start of the thread that opens, which has ended after load()."""
    code = f"""
import importlib.abc, sys, threading
import genai_runtime.opening

class Who(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("genai_runtime.model", "genai_runtime.decoding"):
            print(name)

start = threading.Thread.start
def started(thread):
    print(thread.name)
    start(thread)

threading.Thread.start = started
sys.meta_path.insert(0, Who())
genai_runtime.load({str(compiled("tiny-gqa-v1")[0])!r}, threads=1)
print(threading.active_count())
"""
    ended = python(code)
    assert (ended.stdout.split(), ended.stderr) == (
        ["genai-open", "genai_runtime.decoding", "genai_runtime.model", "1"],
        "",
    )


@pytest.mark.parametrize("module", ["genai_runtime", "genai_runtime.abi"])
def test_every_name_on_demand_has_its_home(module: str) -> None:
    found = importlib.import_module(module)
    for name, home in found._HOMES.items():
        assert getattr(found, name) is getattr(importlib.import_module(f"genai_runtime.{home}"), name)
    assert set(found.__all__) - {"ABI_VERSION"} == set(found._HOMES) - {"ABI_VERSION"}


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
