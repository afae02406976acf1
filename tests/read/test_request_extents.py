"""Which graphs see other shapes with every request: from the extents that their inputs state, and nothing else."""

from collections.abc import Sequence

import numpy as np
import pytest
from genai_compiler.read.request_extents import lengths_vary
from onnx import ModelProto, TensorProto, helper, numpy_helper

Dims = Sequence[int | str | None] | None


def model_of(*inputs: Dims) -> ModelProto:
    ports = [helper.make_tensor_value_info(f"x{at}", TensorProto.FLOAT, dims) for at, dims in enumerate(inputs)]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    return helper.make_model(helper.make_graph([helper.make_node("Identity", ["x0"], ["y"])], "g", ports, out))


@pytest.mark.parametrize(
    ("inputs", "vary"),
    [
        ([[1, 3, 224, 224]], False),
        ([["batch", 49152], ["batch"], [1]], False),
        ([[]], False),
        ([["batch", "sequence"]], True),
        ([["batch", 1], ["batch", 3, "past", 64]], True),
        ([["batch", "batch"]], True),
        ([["tokens", 8], ["rows"]], True),
        ([[None, 4]], True),
        ([None], True),
    ],
)
def test_only_rows_may_vary(inputs: list[Dims], vary: bool) -> None:
    assert lengths_vary(model_of(*inputs)) is vary


def test_weights_among_the_inputs_are_no_inputs() -> None:
    """As in models of IR version 3."""
    model = model_of(["batch", 4], [None, None])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((2, 2), np.float32), "x1"))
    assert not lengths_vary(model)
