"""Two sessions as one: against arithmetic, on values and on io-bindings, with inputs that change under a binding."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from genai_runtime import binding, sessions
from genai_runtime.parted import Parted
from genai_runtime.sessions import Graph, Settings
from genai_runtime.values import Array, to_array, view
from onnx import ModelProto, TensorProto, helper

N, FLOAT = helper.make_node, TensorProto.FLOAT
WIDE = 8


def port(name: str, *dims: str | int) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, dims)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def session(made: ModelProto) -> Any:
    return ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.fixture
def parted() -> Parted:
    """first: early = x + shift, sum = x * x; second: late = sum - shift + y. `shift` is a port of both."""
    first = model(
        [N("Add", ["x", "shift"], ["early"]), N("Mul", ["x", "x"], ["sum"])],
        [port("x", "n", WIDE), port("shift", 1)],
        [port("sum", "n", WIDE), port("early", "n", WIDE)],
    )
    second = model(
        [N("Sub", ["sum", "shift"], ["less"]), N("Add", ["less", "y"], ["late"])],
        [port("sum", "n", WIDE), port("shift", 1), port("y", 1)],
        [port("late", "n", WIDE)],
    )
    return Parted(session(first), session(second), ["sum"])


def feeds(rows: int, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    sizes = {"x": (rows, WIDE), "shift": (1,), "y": (1,)}
    return {name: random.standard_normal(size, np.float32) for name, size in sizes.items()}


def early(fed: dict[str, Array]) -> Array:
    return np.asarray(fed["x"] + fed["shift"])


def late(fed: dict[str, Array]) -> Array:
    return np.asarray(fed["x"] * fed["x"] - fed["shift"] + fed["y"])


def test_its_ports_are_those_of_the_whole(parted: Parted) -> None:
    assert [each.name for each in parted.get_inputs()] == ["x", "shift", "y"]
    assert [each.name for each in parted.get_outputs()] == ["early", "late"]
    assert binding.reads_bound(parted)
    assert binding.home_of(parted) is binding.CPU


def test_values_in_any_order(parted: Parted) -> None:
    run = binding.run_with_values(parted, "here")
    for rows, outputs in ((3, ["late", "early"]), (1, ["early"]), (5, ["early", "late"]), (2, ["late"])):
        fed = feeds(rows, rows)
        made = binding.results(run({name: view(array) for name, array in fed.items()}, outputs, None))
        wanted = {"early": early(fed), "late": late(fed)}
        assert [np.array_equal(to_array(each), wanted[name]) for each, name in zip(made, outputs, strict=True)]
        assert all(np.array_equal(to_array(each), wanted[name]) for each, name in zip(made, outputs, strict=True))


def test_an_input_with_a_value_of_its_own_may_be_given() -> None:
    """The second graph has a weight in its place: it is no port that a session lists, and takes what is given."""
    first = model([N("Mul", ["x", "x"], ["sum"])], [port("x", "n", WIDE)], [port("sum", "n", WIDE)])
    second = model(
        [N("Add", ["sum", "y"], ["late"])], [port("sum", "n", WIDE), port("y", 1)], [port("late", "n", WIDE)]
    )
    second.graph.initializer.append(helper.make_tensor("y", FLOAT, [1], [3.0]))
    parted = Parted(session(first), session(second), ["sum"])
    x = feeds(2)["x"]
    for given in ({}, {"y": np.array([0.5], np.float32)}):
        fed = {name: view(array) for name, array in {"x": x, **given}.items()}
        wanted = x * x + given.get("y", np.float32(3))
        (made,) = binding.results(binding.run_with_values(parted)(fed, ["late"], None))
        assert np.array_equal(to_array(made), wanted)
        bound = binding.new_bindings(parted)
        for name, value in fed.items():
            bound.bind_ortvalue_input(name, value)
        bound.bind_output("late", binding.CPU)
        binding.run_bound(parted)(bound, None)
        assert np.array_equal(to_array(bound.get_outputs()[0]), wanted)


def test_a_binding_follows_what_is_written_and_what_is_bound(parted: Parted) -> None:
    """Contents change under it, then extents: what crosses gets another place."""
    bound, run = binding.new_bindings(parted), binding.run_bound(parted)
    for rows in (2, 7, 1):
        fed = feeds(rows, rows)
        for name, array in fed.items():
            bound.bind_ortvalue_input(name, view(array))
        bound.bind_output("late", binding.CPU)
        bound.bind_output("early", binding.CPU)
        for step in range(3):
            fed["x"][:] = feeds(rows, 10 * rows + step)["x"]
            fed["y"][:] = step
            run(bound, None)
            made = [to_array(each) for each in bound.get_outputs()]
            assert np.array_equal(made[0], late(fed))
            assert np.array_equal(made[1], early(fed))


def test_what_crosses_is_made_in_its_place(parted: Parted) -> None:
    """Behind the first run nothing is bound anew: the crossing value is where it was."""
    bound, run, fed = binding.new_bindings(parted), binding.run_bound(parted), feeds(4)
    out = np.zeros((4, WIDE), np.float32)
    for name, array in fed.items():
        bound.bind_ortvalue_input(name, view(array))
    bound.bind_ortvalue_output("late", view(out))
    inner: Any = bound
    assert not inner.joined
    places = set()
    for step in range(4):
        fed["x"][:] = step
        run(bound, None)
        assert np.array_equal(out, late(fed))
        places.add(inner.first.get_outputs()[0].data_ptr())
        assert inner.joined
    assert len(places) == 1


def test_a_name_that_is_no_port_is_refused_as_by_a_session(parted: Parted) -> None:
    with pytest.raises(binding.RUN_FAILURES):
        binding.new_bindings(parted).bind_ortvalue_input("else", view(np.zeros(1, np.float32)))
    with pytest.raises(binding.RUN_FAILURES):
        binding.run_with_values(parted)({"else": view(np.zeros(1, np.float32))}, ["late"], None)


@pytest.mark.parametrize("own", [{}, {"session.force_spinning_stop": "0"}], ids=["none", "own"])
@pytest.mark.parametrize("part", [True, False])
def test_sessions_that_take_turns_wait_briefly(
    part: bool, own: dict[str, str | int | bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the package says of it counts more."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(binding, "open_session", lambda file, options, providers: seen.append(options))
    sessions._open(Graph(tmp_path / "a.onnx", tmp_path, part=part), Settings(options=own))
    (options,) = seen
    stop = own.get("session.force_spinning_stop", "1" if part else None)
    assert options.get("session.force_spinning_stop") == stop
    assert options.get("session.intra_op.spin_duration_us") == ("1000" if part else None)
