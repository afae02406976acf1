"""Folders in which nothing is declared, made of other packages or on the spot."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto, helper, save

DECLARED = ("genai_config.json", "inference_metadata.yaml", "expected.json")
STATED: Mapping[str, Any] = {"vocab_size": 24, "max_position_embeddings": 64, "eos_token_id": 2}


def undeclared(package: Path, folder: Path, config: Mapping[str, Any]) -> Path:
    """A package's graphs and text files, with a model's `config.json` in the place of its metadata."""
    folder.mkdir(parents=True)
    for each in package.iterdir():
        if each.name not in DECLARED and each.is_file():
            shutil.copy(each, folder / each.name)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    return folder


def plain_folder(
    folder: Path,
    graphs: Mapping[str, ModelProto],
    config: Mapping[str, Any] = STATED,
    generation: Mapping[str, Any] | None = None,
) -> Path:
    """Graphs by file name beside a `config.json`."""
    for name, model in graphs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save(model, folder / name)
    (folder / "config.json").write_text(json.dumps(dict(config), indent=1))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(dict(generation), indent=1))
    return folder


def renamed(model: ModelProto) -> ModelProto:
    """The same graph, its ports called by numbers: nothing can be read from their names."""
    names = [each.name for each in (*model.graph.input, *model.graph.output)]
    new = {name: f"port_{at}" for at, name in enumerate(reversed(names))}
    copy = ModelProto.FromString(model.SerializeToString())
    for each in (*copy.graph.input, *copy.graph.output):
        each.name = new[each.name]
    for node in copy.graph.node:
        node.input[:] = [new.get(each, each) for each in node.input]
        node.output[:] = [new.get(each, each) for each in node.output]
    return copy


def merged(model: ModelProto) -> ModelProto:
    """Two copies of the graph in the branches of one `If`, as exporters merge a decoder with and without past."""
    outputs = [each.name for each in model.graph.output]
    branches = []
    for side in ("with_past", "without_past"):
        new = {name: f"{side}.{name}" for node in model.graph.node for name in node.output if name}
        nodes = []
        for node in model.graph.node:
            copy = type(node).FromString(node.SerializeToString())
            copy.input[:] = [new.get(each, each) for each in node.input]
            copy.output[:] = [new.get(each, each) for each in node.output]
            nodes.append(copy)
        values = [type(each).FromString(each.SerializeToString()) for each in model.graph.output]
        for each in values:
            each.name = new[each.name]
        branches.append(helper.make_graph(nodes, side, [], values))
    node = helper.make_node("If", ["use_past"], outputs, then_branch=branches[0], else_branch=branches[1])
    flag = helper.make_tensor_value_info("use_past", TensorProto.BOOL, [1])
    graph = helper.make_graph(
        [node], "merged", [*model.graph.input, flag], list(model.graph.output), list(model.graph.initializer)
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=10)
