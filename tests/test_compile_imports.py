"""What compiling imports: libraries that are large only for packages that need them; and how often it reads a file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import compile_package

from tests.conftest import FIXTURES

LINKING = {"onnx_ir", "sympy"}
"""What links graphs, and what it brings along."""
TEXT = {"tokenizers"}
ON_DEMAND = {
    *LINKING, *TEXT, "onnx.reference", "genai_runtime.lora.files", "genai_runtime.adapters.diffusion",
}  # fmt: skip
NEVER = {
    "onnxruntime",
    "networkx",
    "libcst",
    "jsonschema",
    "onnxscript",
    "scipy",
    "pandas",
    "torch",
    "transformers",
    "PIL",
    "miniaudio",
}
NEEDED = {
    "tiny-gqa-v1": TEXT,
    "tiny-runtime-policy": TEXT,
    "tiny-held-state": {*TEXT, *LINKING},
    "nested-loops": LINKING,
    "tiny-denoiser": {*TEXT, *LINKING, "genai_runtime.adapters.diffusion"},
}
"""Fixtures -> what they need: one decoder, the same in a loop, linked graphs with and without text, an adapter."""


@pytest.mark.parametrize("fixture", NEEDED)
def test_a_package_brings_in_only_what_it_needs(fixture: str, tmp_path: Path) -> None:
    code = f"""
import sys
from genai_compiler.cli import main
ended = main([{str(FIXTURES / fixture)!r}, "-q", "-o", {str(tmp_path / "out")!r}])
print(*sorted(sys.modules))
sys.exit(ended)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    imported = set(ended.stdout.split())
    assert {"onnx", "pydantic", "genai_compiler.driver"} <= imported, "the list is of modules"
    assert imported & ON_DEMAND == NEEDED[fixture]
    assert imported & NEVER == set()


def test_asking_for_help_imports_no_library() -> None:
    code = "import sys, genai_compiler.cli; print(sorted({'onnx', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_a_tokenizer_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of a large vocabulary take ten times the memory of its file."""
    read: list[str] = []
    read_bytes = Path.read_bytes

    def noted(file: Path) -> bytes:
        read.append(file.name)
        return read_bytes(file)

    monkeypatch.setattr(Path, "read_bytes", noted)
    made: Any = compile_package(FIXTURES / "tiny-gqa-v1", tmp_path / "out")
    assert made.out == tmp_path / "out"
    assert read.count("tokenizer.json") == 1
