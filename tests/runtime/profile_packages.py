"""Packages without a graph that publish their inputs, with task profiles over them: a profile's input is then known."""

from pathlib import Path
from typing import Any

import genai_runtime
from genai_compiler import compile_package

from tools.fixtures.document import Document, application, emit, output, package, tensor, write_document


def profiled(
    folder: Path, types: dict[str, Document], profiles: dict[str, Document], **facts: Any
) -> genai_runtime.Model:
    """A loaded package whose outputs are its inputs."""
    write_profiled(folder, types, profiles, **facts)
    compile_package(folder, out=folder.with_suffix(".compiled"))
    return genai_runtime.load(folder.with_suffix(".compiled"))


def write_profiled(folder: Path, types: dict[str, Document], profiles: dict[str, Document], **facts: Any) -> Path:
    """The package itself."""
    inputs = {f"in.{name}": application(type, name) for name, type in types.items()}
    outputs = {name: output(type) for name, type in types.items()}
    steps = [emit(f"in.{name}", name) for name in types]
    capabilities = ["workflow_ssa", "typed_emit"]
    write_document(folder, package(capabilities, inputs, outputs, {}, steps, profiles=profiles, **facts))
    return folder


def profile(kind: str, outputs: dict[str, str], **more: Any) -> Document:
    """One profile."""
    return {"kind": kind, "version": "1.0", "outputs": outputs, **more}


HIDDEN = tensor("float32", "batch", "tokens", "hidden", rows=True)
LENGTHS = tensor("int64", "batch", rows=True)
MASK = tensor("int64", "batch", "tokens", rows=True)
LOGITS = tensor("float32", "batch", "frames", "classes", rows=True)
