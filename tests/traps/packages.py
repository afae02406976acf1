"""Tiny v1 packages compiled and loaded, and what compiling one says: shared by the traps of configurations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import genai_runtime
from genai_compiler import compile_package
from genai_compiler.driver import check_package
from genai_compiler.problem import Problem
from onnx import ModelProto

from tests.lower.packages import Recipe, decoder, write_package
from tests.traps.loop import plain_tokens

FREE: dict[str, Any] = {"temperature": 0, "stop_on_eos": False}
PROMPTS = [[3, 7, 11, 20, 9], [5], [21, 14, 8]]


def package(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    model: ModelProto | Recipe | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """A package in `folder`: `config` laid over a plain one, further files by name."""
    write_package(folder, model or Recipe(), config or {})
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def loaded(folder: Path, out: Path | None = None) -> genai_runtime.Model:
    """The package in `folder`, compiled beside it and loaded."""
    out = out or folder.with_name(f"{folder.name}.out")
    compile_package(folder, out=out)
    return genai_runtime.load(out, threads=1)


def told(folder: Path) -> list[tuple[str, str, str]]:
    """(severity, code, path) of what checking a package says, but for text files that it lacks."""
    return [(each.severity.value, each.code, each.path) for each in problems(folder) if each.code != "missing-file"]


def problems(folder: Path) -> tuple[Problem, ...]:
    """Everything that checking a package says."""
    return check_package(folder)


def gives_plain_tokens(
    model: genai_runtime.Model, graph: Path, count: int = 12, prompts: list[list[int]] = PROMPTS
) -> None:
    """Each prompt alone, and all of them as one batch, give a plain loop's tokens over the graph."""
    wanted = [plain_tokens(graph, prompt, count) for prompt in prompts]
    assert [model.generate(each, max_new_tokens=count, **FREE).tokens for each in prompts] == wanted
    assert [row.tokens for row in model.generate(batch=prompts, max_new_tokens=count, **FREE).rows] == wanted


__all__ = ["FREE", "PROMPTS", "Recipe", "decoder", "gives_plain_tokens", "loaded", "package", "problems", "told"]
