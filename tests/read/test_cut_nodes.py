"""Graphs whose nodes lack inputs or outputs that their operators need: what can be read of them is read, or refused.

ONNX Runtime refuses such graphs when it opens them; what looks at a graph before has to stand them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from genai_compiler.lower.plain_ports import plain_ports
from genai_compiler.problem import CompileError
from genai_compiler.read.folded import fold_extents
from genai_compiler.read.host_graph import Unhosted, host_program
from genai_compiler.read.package import Graph
from genai_compiler.read.projection import logits_projection
from genai_compiler.read.signature import signature_of
from onnx import ModelProto, NodeProto

from tests.conftest import FIXTURES

GRAPHS = (
    "tiny-concat-v1/model.onnx",
    "tiny-shifted-v1/iterator.onnx",
    "tiny-encoder-v2/decoder.onnx",
    "wide-search/greedy.onnx",
)
CUTS: dict[str, Callable[[NodeProto], None]] = {
    "no inputs": lambda node: node.ClearField("input"),
    "no outputs": lambda node: node.ClearField("output"),
    "without the last input": lambda node: node.input.__delitem__(slice(-1, None)),
}


def cut(model: ModelProto, how: str) -> Iterator[tuple[str, ModelProto]]:
    """(what was cut, the graph), one node at a time."""
    for at, node in enumerate(model.graph.node):
        copy = ModelProto.FromString(model.SerializeToString())
        CUTS[how](copy.graph.node[at])
        yield f"{at} {node.op_type}", copy


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_what_looks_at_graphs_stands_cut_nodes(name: str, how: str, tmp_path: Path) -> None:
    model, failed = onnx.load(FIXTURES / name), list[str]()
    for what, changed in cut(model, how):
        try:
            _looked_at(changed, tmp_path)
        except (CompileError, Unhosted):
            continue
        except Exception as fault:
            failed.append(f"{what}: {type(fault).__name__} {fault}")
    assert not failed


def _looked_at(model: ModelProto, root: Path) -> None:
    signature = signature_of(model, "model.onnx", root)
    plain_ports(model.graph, signature, 64)
    logits_projection(model, model.graph.output[0].name)
    host_program(Graph("model.onnx", signature, model, False))


@pytest.mark.parametrize("operator", ["Range", "Shape", "ConstantOfShape", "Gather", "Concat"])
def test_nodes_without_inputs_are_no_numbers(operator: str) -> None:
    graph = onnx.helper.make_graph([onnx.helper.make_node(operator, [], ["x"])], "g", [], [])
    model = onnx.helper.make_model(graph)
    assert fold_extents(model, {}) == 0
    assert [each.op_type for each in model.graph.node] == [operator]
