"""Graph files of a compiled folder: each component has its own, whatever artifacts and components are called."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import genai_runtime
import onnx
from genai_compiler import compile_package
from genai_compiler.emit.graph_files import graph_files, made_graphs
from genai_compiler.plan.edits import Linked, Member
from genai_compiler.read.package import Graph
from genai_compiler.read.signature import signature_of
from onnx import TensorProto, helper

from tests.conftest import FIXTURES

PLAIN_LOOP = [32, 18, 40, 29, 13, 43, 54, 40]
"""Greedy tokens behind 1, 9, 14 in tiny-gqa-v1, of a loop over its graph in ONNX Runtime (docs/tour.md)."""


def graph_of(artifact: str, op: str) -> Graph:
    ports = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [2]) for each in ("x", "y")]
    nodes = [helper.make_node(op, ["x"], ["y"])]
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph(nodes, op, ports[:1], ports[1:]), opset_imports=opset, ir_version=9)
    return Graph(artifact, signature_of(model, artifact, Path()), model, textproto=True)


def operators(content: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(content).graph.node]


def test_graphs_that_are_made_never_share_a_file() -> None:
    graphs = {
        "below": graph_of("a/b.onnx.textproto", "Abs"),
        "beside": graph_of("a__b.onnx.textproto", "Neg"),
        "again": graph_of("a__b.onnx.textproto", "Neg"),
        "upper": graph_of("A__b.onnx.textproto", "Exp"),
        "island": graph_of("island_1.onnx.textproto", "Relu"),
    }
    linked = Linked(
        (Member("below", (("x", "v"),), (("y", "w"),)), Member("beside", (("x", "w"),), (("y", "z"),))), ("z",)
    )
    plan: Any = SimpleNamespace(components=(SimpleNamespace(name="island_1", edit=linked, parts=None),))
    package: Any = SimpleNamespace(graphs=graphs, root=Path())
    found = graph_files(plan, package, bundle=False)
    made = made_graphs(found)
    wanted = {"below": ["Abs"], "beside": ["Neg"], "again": ["Neg"], "upper": ["Exp"], "island": ["Relu"]}
    assert {name: operators(made[each.file]) for name, each in found.items()} == {**wanted, "island_1": ["Abs", "Neg"]}
    assert found["beside"].file == found["again"].file
    assert len({each.lower() for each in made}) == 5


def test_a_graph_may_call_a_value_as_the_compiler_would(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for file in (FIXTURES / "tiny-gqa-v1").iterdir():
        (package / file.name).write_bytes(file.read_bytes())
    model = onnx.load(package / "model.onnx")
    inner = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention").output[0]
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["last_position" if each == inner else each for each in names]
    del model.graph.value_info[:]
    onnx.save(model, package / "model.onnx")
    made = compile_package(package)
    assert made.plan is not None
    assert any(each.edit is not None for each in made.plan.components), "nothing was edited"
    with genai_runtime.load(tmp_path / "package.compiled") as loaded:
        assert loaded.generate([1, 9, 14], max_new_tokens=8).tokens == PLAIN_LOOP


def test_no_graph_gets_a_name_that_a_system_keeps() -> None:
    """Windows opens a device under these names, whatever stands behind the first dot; a component may be called so."""
    names = ["aux", "CON", "com1", "lpt0", "nul", "a:b", "a|b?", "console"]
    graphs = {name: graph_of(f"{name}.onnx.textproto", "Abs") for name in names}
    linked = Linked((Member("aux", (("x", "v"),), (("y", "w"),)), Member("nul", (("x", "w"),), (("y", "z"),))), ("z",))
    plan: Any = SimpleNamespace(components=(SimpleNamespace(name="prn", edit=linked, parts=None),))
    package: Any = SimpleNamespace(graphs=graphs, root=Path())
    found = graph_files(plan, package, bundle=True)
    files = [each.file.removeprefix("graphs/") for each in found.values()]
    assert len({each.lower() for each in files}) == len(names) + 1
    assert found["console"].file == "graphs/console.onnx"
    for each in files:
        assert not set(each) & set('<>:"/\\|?*')
        assert not re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)", each.partition(".")[0])
