"""Packages of version 1 whose decoder is cut into stages, and what they are held against.

That is the uncut graph in a plain ONNX Runtime loop, without stages, windows or lengths.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.convert import convert_package
from genai_compiler.plan.text import plan_text
from genai_compiler.problem import errors
from onnx import ModelProto

from tests.real_packages import GREEDY
from tests.reference.plain_loop import greedy
from tools.fixtures.graph import Sketch
from tools.fixtures.stages import EMBEDDED, FINAL, MIDDLE, cut, save, stage, write_config

PROMPTS = ([1, 9, 14], [7], [1, 9, 14, 20, 33, 2, 5, 6, 11])
NEW = 10
Graphs = dict[str, ModelProto]
Entries = dict[str, dict[str, Any]]


def three(sketch: Sketch) -> Graphs:
    return dict(zip(("embeddings", "layers", "lm_head"), cut(sketch.proto(), EMBEDDED, FINAL), strict=True))


def halves(sketch: Sketch) -> Graphs:
    return dict(zip(("a", "b", "c", "d"), cut(sketch.proto(), EMBEDDED, MIDDLE, FINAL), strict=True))


def two_phases(sketch: Sketch) -> Graphs:
    embeddings, layers, head = cut(sketch.proto(), EMBEDDED, FINAL)
    return {"embeddings": embeddings, "context": layers, "iterator": layers, "lm_head": head}


def package(
    folder: Path,
    graphs: Graphs,
    change: Callable[[Entries], object] = lambda stages: None,
    decoder: Mapping[str, Any] | None = None,
) -> Path:
    """A package of these stages, in this order. change: edits their entries."""
    save(folder, graphs)
    stages = {name: stage(name, each) for name, each in graphs.items()}
    if "context" in stages:
        stages["context"]["run_on_token_gen"] = False
        stages["iterator"]["run_on_prompt"] = False
    change(stages)
    write_config(folder, [{name: each} for name, each in stages.items()], decoder or {})
    return folder


def tokens(folder: Path) -> list[list[int]]:
    """What the package makes of each prompt."""
    out = folder.with_name(folder.name + ".out")
    compile_package(folder, out=out)
    with genai_runtime.load(out, threads=1) as model:
        return [model.generate(each, max_new_tokens=NEW, **GREEDY).tokens for each in PROMPTS]


def wanted(folder: Path, sketch: Sketch) -> list[list[int]]:
    """What the uncut graph makes of them, in a plain loop."""
    folder.mkdir(exist_ok=True)
    sketch.save(folder / "whole.onnx")
    return [greedy(folder / "whole.onnx", each, NEW) for each in PROMPTS]


def refused(folder: Path) -> dict[str, str]:
    """Code -> place and words of every error."""
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.with_name("refused"))
    assert not folder.with_name("refused").exists()
    found: dict[str, str] = {}
    for each in errors(caught.value.problems):
        found[each.code] = f"{found.get(each.code, '')}{each.path}: {each.what} {each.help}\n"
    return found


def converts(folder: Path, home: Path) -> None:
    """The package, converted into a document of its own, is the same plan."""
    before = compile_package(folder, out=home / "before")
    shutil.copytree(folder, home / "after" / folder.name)
    text = convert_package(folder).text
    (home / "after" / folder.name / "genai_config.json").unlink()
    (home / "after" / folder.name / "inference_metadata.yaml").write_text(text, "utf-8")
    after = compile_package(home / "after" / folder.name, out=home / "out")
    assert before.plan is not None
    assert after.plan is not None
    assert plan_text(before.plan).splitlines()[1:] == plan_text(after.plan).splitlines()[1:]
