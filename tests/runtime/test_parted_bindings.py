"""Two sessions as one: what crosses between them, however inputs are bound, and whatever keeps it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_runtime import binding
from genai_runtime.parted import Parted
from genai_runtime.values import Array, to_array, view
from onnx import TensorProto, helper, save

CPU_ALONE = [("CPUExecutionProvider", {})]
OUTPUT = "sum"


def parted(home: Path, arena: bool = True) -> Parted:
    """sum = 2 x + y: the first session doubles, the second adds."""

    def floats(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 2])

    sides = [
        ("first", helper.make_node("Add", ["x", "x"], ["twice"]), ["x"], "twice"),
        ("second", helper.make_node("Add", ["twice", "y"], [OUTPUT]), ["twice", "y"], OUTPUT),
    ]
    for name, node, taken, given in sides:
        graph = helper.make_graph([node], name, [floats(each) for each in taken], [floats(given)])
        opsets = [helper.make_opsetid("", 17)]
        save(helper.make_model(graph, opset_imports=opsets, ir_version=9), home / f"{name}.onnx")
    options: dict[str, Any] = {"enable_cpu_mem_arena": arena}
    opened = [binding.open_session(home / f"{name}.onnx", options, CPU_ALONE) for name, *_ in sides]
    return Parted(opened[0], opened[1], ["twice"])


def numbers(rows: int, first: float) -> Array:
    found: Array = np.arange(first, first + 2 * rows, dtype=np.float32).reshape(rows, 2)
    return found


class Counted:
    """An io-binding that counts what is bound of the value that crosses."""

    def __init__(self, bound: Any) -> None:
        self.bound, self.times = bound, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bound, name)

    def bind_ortvalue_input(self, name: str, value: Any) -> None:
        self.times += name == "twice"
        self.bound.bind_ortvalue_input(name, value)


def counted(whole: Parted) -> tuple[Any, Counted]:
    bound: Any = whole.new_bindings()
    bound.second = Counted(bound.second)
    return bound, bound.second


@pytest.mark.parametrize("arena", [True, False])
def test_a_run_needs_no_arena(arena: bool, tmp_path: Path) -> None:
    """ONNX Runtime refuses to shrink one that is not there."""
    whole = parted(tmp_path, arena)
    x, y = numbers(3, 1), numbers(3, 50)
    (made,) = whole.run_with_values("")({"x": view(x), "y": view(y)}, [OUTPUT], None)
    assert to_array(made).tolist() == (2 * x + y).tolist()
    bound = whole.new_bindings()
    bound.bind_ortvalue_input("x", view(x))
    bound.bind_ortvalue_input("y", view(y))
    bound.bind_output(OUTPUT, binding.CPU)
    whole.run_bound("")(bound, None)
    assert to_array(bound.get_outputs()[0]).tolist() == (2 * x + y).tolist()


@pytest.mark.parametrize("by_address", [False, True])
def test_what_crosses_is_bound_again_where_shapes_change(by_address: bool, tmp_path: Path) -> None:
    whole = parted(tmp_path)
    bound, second = counted(whole)
    run = whole.run_bound("")
    for rows, first, times in ((3, 1, 1), (3, 7, 1), (2, 9, 2), (3, 4, 3)):
        x, y = numbers(rows, first), numbers(rows, 2 * first)
        for name, array in (("x", x), ("y", y)):
            if by_address:
                binding.bind_at(bound, name, "float32", list(array.shape), array.ctypes.data)
            else:
                bound.bind_ortvalue_input(name, view(array))
        bound.bind_output(OUTPUT, binding.CPU)
        run(bound, None)
        assert to_array(bound.get_outputs()[0]).tolist() == (2 * x + y).tolist()
        assert second.times == times


def test_what_a_provider_copies_when_it_is_bound_is_bound_for_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the CPU a run reads what crossed when it was bound, not what the first session wrote there since."""
    monkeypatch.setattr(binding, "reads_bound", lambda session: False)
    whole = parted(tmp_path)
    bound, second = counted(whole)
    x, y = numbers(3, 1), numbers(3, 50)
    for name, array in (("x", x), ("y", y)):
        bound.bind_ortvalue_input(name, view(array))
    bound.bind_output(OUTPUT, binding.CPU)
    run = whole.run_bound("")
    for times in (1, 2, 3):
        run(bound, None)
        assert second.times == times
