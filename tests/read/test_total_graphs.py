"""Which graphs compute or say what is wrong for any value: by their operators, and by what decides extents."""

import pytest
from genai_compiler.read.total_graphs import partial_operator
from onnx import NodeProto

from tests.read.test_graph_facts import CONTRIB, model, node


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([node("Add", "x y", "z")], ""),
        ([node("Div", "x y", "z")], "Div"),
        ([node("FusedMatMul", "x y", "z", CONTRIB)], "com.microsoft::FusedMatMul"),
        ([node("ConstantOfShape", "x", "z")], "ConstantOfShape of extents by 'x'"),
        ([node("Shape", "x", "s"), node("Add", "s one", "t"), node("ConstantOfShape", "t", "z")], ""),
        ([node("Shape", "x", "s"), node("Add", "s y", "t"), node("ConstantOfShape", "t", "z")], "ConstantOfShape of"),
        ([node("Squeeze", "x axis", "z")], ""),
        ([node("Squeeze", "x", "z")], ""),
        ([node("Unsqueeze", "x y", "z")], "Unsqueeze of extents by 'y'"),
        ([node("ReduceSum", "x y", "z")], "ReduceSum of extents by 'y'"),
        ([node("Constant", "", "axes", value_ints=[0]), node("ReduceMax", "x axes", "z")], ""),
    ],
)
def test_what_values_may_be_wrong_for(nodes: list[NodeProto], wanted: str) -> None:
    found = partial_operator(model(nodes, "x y", "z"))
    assert found.startswith(wanted)
    assert bool(found) == bool(wanted)
