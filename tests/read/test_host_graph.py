"""Which graphs numpy can do to the same bits, and why others can't."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from genai_compiler.read.host_graph import Unhosted, host_program, searched
from genai_compiler.read.host_program import HostConstant, HostInput, HostProgram, HostStep
from genai_compiler.read.package import Graph
from genai_compiler.read.signature import load_graph, read_signature
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT, HALF = TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16


def read(folder: Path, nodes: list[Any], held: tuple[Any, ...] = (), kind: int = FLOAT, shape: Any = ("b", 8)) -> Graph:
    """A graph over `scores`, whose last node gives the output."""
    ins = [helper.make_tensor_value_info("scores", kind, shape and list(shape))]
    outs = [helper.make_tensor_value_info(nodes[-1].output[0], INT, None)]
    graph = helper.make_graph(nodes, "policy", ins, outs, list(held))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "policy.onnx")
    file = folder / "policy.onnx"
    return Graph("policy.onnx", read_signature(file, folder), load_graph(file, folder), False)


def node(operator: str, *takes: str, gives: str = "token", **attributes: Any) -> Any:
    return helper.make_node(operator, list(takes), [gives], **attributes)


def test_the_whole_program(tmp_path: Path) -> None:
    held = (numpy_helper.from_array(np.array([1]), "axes"),)
    nodes = [
        node("ArgMax", "scores", gives="best", axis=1),
        node("Squeeze", "best", "axes", gives="place"),
        node("Cast", "place", to=TensorProto.INT32),
    ]
    program = host_program(read(tmp_path, nodes, held))
    assert program == HostProgram(
        (HostInput("scores", "float32", (-1, 8)),),
        (
            HostStep("ArgMax", ("scores",), "best", (1,)),
            HostStep("Squeeze", ("best",), "place", (1,)),
            HostStep("Cast", ("place",), "token", dtype="int32"),
        ),
        (HostConstant("axes", "int64", (1,), (1,)),),
    )
    assert searched(program) == ("scores",)


BEST = node("ArgMax", "scores", gives="best", axis=-1)
WIDE = numpy_helper.from_array(np.arange(65), "wide")
HALVES = numpy_helper.from_array(np.ones(1, np.float32), "half")
REFUSED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "it searches nothing": ([node("Identity", "scores")], {}),
    "another axis": ([node("ArgMax", "scores", axis=0)], {}),
    "an axis by default": ([node("ArgMax", "scores")], {}),
    "the last of equals": ([node("ArgMax", "scores", axis=-1, select_last_index=1)], {}),
    "half precision": ([node("ArgMax", "scores", axis=-1)], {"kind": HALF}),
    "an unknown rank": ([node("ArgMax", "scores", axis=-1)], {"shape": None}),
    "a search of something computed": ([node("Neg", "scores", gives="n"), node("ArgMax", "n", axis=-1)], {}),
    "an operator that rounds": ([BEST, node("Softmax", "scores", gives="soft"), node("Identity", "best")], {}),
    "another domain": ([BEST, node("Gelu", "best", domain="com.microsoft")], {}),
    "a float from a whole number": ([BEST, node("Cast", "best", to=FLOAT)], {}),
    "a large constant": ([BEST, node("Add", "best", "wide")], {"held": (WIDE,)}),
    "a constant that is no whole number": ([BEST, node("Identity", "best")], {"held": (HALVES,)}),
    "all axes of extent 1": ([BEST, node("Squeeze", "best")], {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_would_not_do_alike(name: str, tmp_path: Path) -> None:
    nodes, more = REFUSED[name]
    with pytest.raises(Unhosted):
        host_program(read(tmp_path, nodes, **more))
