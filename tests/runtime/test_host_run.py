"""What numpy does in a graph's place gives the session's own answer, bit for bit, or leaves it to the session."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from genai_compiler.read.host_graph import host_program
from genai_compiler.read.package import Graph as PackageGraph
from genai_compiler.read.signature import load_graph, read_signature
from genai_runtime import ExecutionError
from genai_runtime.host_program import HostConstant, HostInput, HostProgram, HostStep
from genai_runtime.host_run import HostRunner
from genai_runtime.sessions import Graph, Sessions, Settings
from genai_runtime.timings import Timings
from genai_runtime.values import to_array, to_value
from onnx import TensorProto, helper

KINDS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}
KINDS |= {"int32": TensorProto.INT32, "bool": TensorProto.BOOL}
Shape = tuple[int | str, ...]
ROWS: Shape = ("rows",)


@dataclass
class Bench:
    """One graph: numpy's runner of it, and a plain session."""

    runner: HostRunner
    plain: Any
    sessions: Sessions
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def same(self, *arrays: Any) -> None:
        """Both give the same arrays, of the same types."""
        given = dict(zip(self.inputs, arrays, strict=True))
        wanted = self.plain.run(list(self.outputs), given)
        got = [to_array(each) for each in self.runner(*map(to_value, arrays))]
        for one, other in zip(got, wanted, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            np.testing.assert_array_equal(one, other)

    @property
    def opened(self) -> bool:
        """Whether the component's session was needed."""
        return bool(self.sessions.active_providers())


def bench(
    folder: Path,
    nodes: list[Any],
    inputs: Mapping[str, tuple[str, Shape]],
    outputs: Mapping[str, str],
    held: tuple[Any, ...] = (),
    timings: Timings | None = None,
) -> Bench:
    """inputs: port -> (dtype, shape); outputs: port -> dtype."""
    ins = [helper.make_tensor_value_info(name, KINDS[dtype], list(shape)) for name, (dtype, shape) in inputs.items()]
    outs = [helper.make_tensor_value_info(name, KINDS[dtype], None) for name, dtype in outputs.items()]
    graph = helper.make_graph(nodes, "policy", ins, outs, list(held))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    file = folder / "policy.onnx"
    onnx.save(model, file)
    read = PackageGraph("policy.onnx", read_signature(file, folder), load_graph(file, folder), False)
    program = as_the_executor_has_it(host_program(read))
    options: dict[str, Any] = {"intra_op_num_threads": 1, "log_severity_level": 4}
    sessions = Sessions({"policy": Graph(file, folder)}, Settings(options=options), timings=timings)
    runner = sessions.host_runner("policy", tuple(inputs), tuple(outputs), "steps[0]", program)
    plain = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return Bench(runner, plain, sessions, tuple(inputs), tuple(outputs))


def as_the_executor_has_it(program: Any) -> HostProgram:
    """The compiler's program as the runtime's own classes."""
    return HostProgram(
        tuple(HostInput(**vars(each)) for each in program.inputs),
        tuple(HostStep(**vars(each)) for each in program.steps),
        tuple(HostConstant(**vars(each)) for each in program.constants),
    )


def search(operator: str = "ArgMax", dtype: str = "float32", **more: int) -> tuple[list[Any], Any, Any]:
    attributes = {"axis": -1, "keepdims": 0, **more}
    node = helper.make_node(operator, ["scores"], ["token"], **attributes)
    return [node], {"scores": (dtype, ("rows", "words"))}, {"token": "int64"}


def scores(generator: np.random.Generator, dtype: str) -> np.ndarray[Any, Any]:
    """Rows full of ties, of both zeros and of infinities."""
    shape = (int(generator.integers(1, 4)), int(generator.integers(1, 300)))
    made = generator.integers(-3, 4, shape).astype(dtype)
    for value, share in ((-0.0, 0.3), (np.inf, 0.02), (-np.inf, 0.1)):
        made[generator.random(shape) < share] = value
    return made


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_ties_zeros_and_infinities(operator: str, dtype: str, keepdims: int, tmp_path: Path) -> None:
    made = bench(tmp_path, *search(operator, dtype, keepdims=keepdims))
    generator = np.random.default_rng(5)
    for _ in range(400):
        made.same(scores(generator, dtype))
    made.same(np.full((2, 7), np.inf, dtype))
    made.same(np.full((2, 7), -np.inf, dtype))
    assert not made.opened


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_nan_is_the_sessions_matter(operator: str, at: int, rows: int, tmp_path: Path) -> None:
    made = bench(tmp_path, *search(operator))
    array = np.tile(np.array([[1, 5, 2, 5, 0, 3, 0]], np.float32), (rows, 1))
    array[-1, at] = np.nan
    made.same(array)
    assert made.opened
    made.same(np.full((rows, 7), np.nan, np.float32))


def sampler() -> tuple[list[Any], Any, Any, Any]:
    """A greedy sampler of the standard's contract: rows that sit out give -1, the counter moves for others."""
    node = helper.make_node
    nodes = [
        node("ArgMax", ["scores"], ["best"], axis=1, keepdims=1),
        node("Squeeze", ["best", "one"], ["place"]),
        node("Not", ["done"], ["going"]),
        node("And", ["active", "going"], ["live"]),
        node("Where", ["live", "place", "nothing"], ["token"]),
        node("Cast", ["live"], ["step"], to=TensorProto.INT64),
        node("Add", ["counter", "step"], ["next_counter"]),
        node("Unsqueeze", ["token", "one"], ["slot"]),
        node("Cast", ["token"], ["short"], to=TensorProto.INT32),
        node("GreaterOrEqual", ["token", "limit"], ["late"]),
        node("Or", ["late", "done"], ["ended"]),
        node("Constant", [], ["limit"], value_int=3),
        node("Sub", ["counter", "limit"], ["left"]),
        node("Equal", ["token", "limit"], ["exact"]),
        node("Less", ["token", "counter"], ["less"]),
        node("LessOrEqual", ["token", "counter"], ["no_more"]),
        node("Greater", ["token", "counter"], ["more"]),
        node("Identity", ["more"], ["again"]),
    ]
    nodes.insert(0, nodes.pop(11))
    inputs = {"scores": ("float32", ("rows", 5)), "active": ("bool", ROWS), "done": ("bool", ROWS)}
    inputs |= {"counter": ("int64", ROWS)}
    numbers, flags = ("token", "next_counter", "slot", "left"), ("ended", "exact", "less", "no_more", "again")
    outputs = dict.fromkeys(numbers, "int64") | dict.fromkeys(flags, "bool") | {"short": "int32"}
    held = (
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        helper.make_tensor("nothing", TensorProto.INT64, [], [-1]),
    )
    return nodes, inputs, outputs, held


def test_everything_around_a_search_is_the_same_too(tmp_path: Path) -> None:
    made = bench(tmp_path, *sampler())
    generator = np.random.default_rng(6)
    for rows in (1, 2, 5):
        for _ in range(50):
            array = generator.integers(-2, 3, (rows, 5)).astype(np.float32)
            flags = generator.random((2, rows)) < 0.5
            made.same(array, flags[0], flags[1], generator.integers(-(2**63), 2**63 - 1, rows))
    made.same(array[:1], flags[0][:1], flags[1][:1], np.array([2**63 - 1]))
    assert not made.opened


def calls(made: Bench) -> Iterator[tuple[Any, ...]]:
    """Arguments that are none of this graph's: a rank, a type, a fixed extent, shapes that do not fit."""
    good = [np.ones((2, 5), np.float32), np.ones(2, np.bool_), np.zeros(2, np.bool_), np.zeros(2, np.int64)]
    for place, other in (
        (0, np.ones(5, np.float32)),
        (0, np.ones((2, 5), np.float64)),
        (0, np.ones((2, 6), np.float32)),
        (3, np.zeros(3, np.int64)),
        (3, np.zeros((2, 1), np.int64)),
    ):
        yield tuple(to_value(other if at == place else each) for at, each in enumerate(good))


def test_what_is_wrong_is_said_by_the_session(tmp_path: Path) -> None:
    made = bench(tmp_path, *sampler())
    for values in calls(made):
        with pytest.raises(ExecutionError) as failure:
            made.runner(*values)
        assert failure.value.code == "step-failed"
        assert failure.value.origin == "steps[0] (component 'policy')"
    assert made.opened


def test_an_empty_axis_is_the_sessions_matter(tmp_path: Path) -> None:
    made = bench(tmp_path, *search())
    empty = np.zeros((1, 0), np.float32)
    with pytest.raises(Exception):  # noqa: B017
        made.plain.run(None, {"scores": empty})
    with pytest.raises(ExecutionError):
        made.runner(to_value(empty))


def test_a_profile_sees_it(tmp_path: Path) -> None:
    timings = Timings()
    made = bench(tmp_path, *search(), timings=timings)
    made.same(np.ones((1, 4), np.float32))
    assert [(each.kind, each.name, each.origin) for each in timings.spans] == [("host", "policy", "steps[0]")]
    assert {each.name for each in timings.shares()} == {"host: policy", "loop"}


def test_results_own_their_memory(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [node("ArgMax", ["scores"], ["token"], axis=-1, keepdims=0), node("Identity", ["count"], ["same"])]
    inputs = {"scores": ("float32", ("rows", "words")), "count": ("int64", ROWS)}
    made = bench(tmp_path, nodes, inputs, {"token": "int64", "same": "int64"})
    count = to_value(np.array([7]))
    _, same = made.runner(to_value(np.ones((1, 3), np.float32)), count)
    to_array(count)[0] = 8
    assert to_array(same).tolist() == [7]
