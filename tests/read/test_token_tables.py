"""Which inputs of a graph hold nothing but the places of a table's rows: what ONNX Runtime takes tells it, too."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from genai_compiler.read.value_flow import Edges
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

ROWS = 7
node = helper.make_node
LOOKUP = node("Gather", ["table", "x"], ["y"])


def graph(*nodes: Any) -> ModelProto:
    held = {
        "table": np.ones((ROWS, 3), np.float32),
        "short": np.ones((4, 3), np.float32),
        "packed": np.ones((3, ROWS), np.float32),
        "zero": np.array(0),
        "last": np.array(ROWS - 1),
        "axis": np.array([0]),
        "picture": np.array(-2),
    }
    tensors = [numpy_helper.from_array(each, name) for name, each in held.items()]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(
        helper.make_graph(nodes, "g", [ids], [made], tensors),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


WAYS = {
    "as they are": ([node("Identity", ["ids"], ["x"]), LOOKUP], ROWS),
    "in another type": ([node("Cast", ["ids"], ["x"], to=TensorProto.INT32), LOOKUP], ROWS),
    "on another axis": ([node("Unsqueeze", ["ids", "axis"], ["x"]), LOOKUP], ROWS),
    "two tables": (
        [
            node("Gather", ["short", "ids"], ["a"]),
            node("Gather", ["table", "ids"], ["b"]),
            node("Add", ["a", "b"], ["y"]),
        ],
        4,
    ),
    "clipped": ([node("Clip", ["ids", "zero", "last"], ["x"]), LOOKUP], None),
    "replaced": (
        [node("Less", ["ids", "zero"], ["c"]), node("Where", ["c", "zero", "ids"], ["x"]), LOOKUP],
        None,
    ),
    "moved": ([node("Add", ["ids", "last"], ["x"]), LOOKUP], None),
    "a picture below zero": ([node("Equal", ["ids", "picture"], ["c"]), node("Gather", ["table", "ids"], ["y"])], None),
    "numbers below zero": ([node("Less", ["ids", "zero"], ["c"]), node("Gather", ["table", "ids"], ["y"])], None),
    "turned round": ([node("Neg", ["ids"], ["c"]), node("Gather", ["table", "ids"], ["y"])], None),
    "padding": ([node("Equal", ["ids", "last"], ["c"]), node("Gather", ["table", "ids"], ["y"])], ROWS),
    "along another axis": ([node("Gather", ["packed", "ids"], ["y"], axis=1)], None),
    "picked from": ([node("Gather", ["ids", "axis"], ["x"]), LOOKUP], None),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_entry_looks_into_the_table(way: str) -> None:
    nodes, rows = WAYS[way]
    model = graph(*nodes)
    assert Edges(model.graph).entry_rows("ids") == rows
    if rows is not None:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        session.run(None, {"ids": np.array([rows - 1])})
        with pytest.raises(InvalidArgument, match="out of data bounds"):
            session.run(None, {"ids": np.array([0, rows])})
