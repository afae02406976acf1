"""Packages whose decoder opens in two sessions: fixtures that say the types of all values, and bounds to suit."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from onnx import ModelProto, TensorProto, helper, load, save, shape_inference

from tests.conftest import FIXTURES

FLOATS = frozenset({"LayerNormalization", "MatMul", "Add", "Tanh", "GroupQueryAttention"})
"""Operators of the fixtures whose results are floats, behind those that inference does not see through."""


class Everything:
    """All operators are in it."""

    def __contains__(self, operator: object) -> bool:
        return True


def typed(case: str, home: Path) -> Path:
    """A copy of a fixture whose graphs say the type of every value, as graphs of the exporters do."""
    folder = home / case
    shutil.copytree(FIXTURES / case, folder)
    for file in folder.rglob("*.onnx*"):
        text = file.suffix == ".textproto"
        model = text_format.Parse(file.read_text(), ModelProto()) if text else load(file)
        _say_types(model)
        if text:
            file.write_text(text_format.MessageToString(model))
        else:
            save(model, file)
    return folder


def _say_types(model: ModelProto) -> None:
    graph = model.graph
    known = list(shape_inference.infer_shapes(model).graph.value_info)
    names = {each.name for each in (*known, *graph.output)}
    floats = [node.output[0] for node in graph.node if node.op_type in FLOATS and node.output[0] not in names]
    del graph.value_info[:]
    graph.value_info.extend(
        (*known, *(helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in floats))
    )


def cut_anything(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """Small graphs are cut too, where one value crosses, whatever makes it. more: bounds of the pass."""
    one_pass = sys.modules["genai_compiler.passes.split_opening"]
    for name, value in {"LEAST": 1, "LARGEST_SIDE": 1, "CROSSING": 1, **more}.items():
        monkeypatch.setattr(one_pass, name, value)
    monkeypatch.setattr("genai_compiler.read.cuts.APART", Everything())
