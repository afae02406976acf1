"""Adapters of others, found by entry point: their faults are told by step and in words, never as a traceback."""

import importlib.metadata
import weakref
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pytest
from genai_runtime import ExecutionError, LoadError
from genai_runtime.adapters import open_adapter
from genai_runtime.adapters.registry import GROUP
from genai_runtime.values import to_array, to_value

ABI, ORIGIN = "somebody.double@1", "pipeline.workflow.steps[0]"
PORTS = (("x", "in"),), (("y", "out"),)


class Entry(EntryPoint):
    """An entry point whose object is at hand."""

    made: Callable[[], Any]

    def load(self) -> Any:
        return self.made()


def installed(monkeypatch: pytest.MonkeyPatch, made: Callable[[], Any]) -> None:
    entry = Entry(ABI, "somebody:double", GROUP)
    vars(entry)["made"] = made
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: EntryPoints([entry]).select(**wanted))


def double(parameters: Any) -> Callable[[Any], Any]:
    return lambda inputs: {"out": inputs["in"] * 2}


def test_it_runs_under_its_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, lambda: double)
    (made,) = open_adapter(ABI, {}, *PORTS, ORIGIN)(to_value(np.array([3, 4])))
    assert to_array(made).tolist() == [6, 8]


@pytest.mark.parametrize("fault", [ImportError("no module named what_it_needs"), OSError("disk"), SyntaxError("x")])
def test_one_that_cant_be_imported_is_named(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise fault

    installed(monkeypatch, broken)
    with pytest.raises(LoadError) as refusal:
        open_adapter(ABI, {}, *PORTS, ORIGIN)
    assert (refusal.value.code, refusal.value.origin) == ("adapter-missing", ORIGIN)
    assert "somebody:double" in refusal.value.what


@pytest.mark.parametrize("fault", [TypeError("takes no parameters"), ValueError("gain is 1 or 2")])
def test_one_that_takes_other_parameters_says_so(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(parameters: Any) -> Any:
        raise fault

    installed(monkeypatch, lambda: refuses)
    with pytest.raises(LoadError, match="adapter-parameters"):
        open_adapter(ABI, {"gain": 3}, *PORTS, ORIGIN)


@pytest.mark.parametrize("fault", [RuntimeError("lost"), OSError("gone"), NotImplementedError()], ids=repr)
def test_a_call_that_fails_names_the_step(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(inputs: Any) -> Any:
        raise fault

    installed(monkeypatch, lambda: lambda parameters: call)
    adapter = open_adapter(ABI, {}, *PORTS, ORIGIN)
    with pytest.raises(ExecutionError) as refusal:
        adapter(to_value(np.array([1])))
    assert (refusal.value.code, refusal.value.origin) == ("adapter", ORIGIN)
    assert type(fault).__name__ in refusal.value.what


@pytest.mark.parametrize(
    "fault", [KeyError("gain"), AttributeError("no such table"), OSError("no table.bin")], ids=repr
)
def test_one_that_cant_be_made_says_so_whatever_it_raises(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(parameters: Any) -> Any:
        raise fault

    installed(monkeypatch, lambda: refuses)
    with pytest.raises(LoadError, match="adapter-parameters") as refusal:
        open_adapter(ABI, {}, *PORTS, ORIGIN)
    assert type(fault).__name__ in refusal.value.what


def test_one_that_makes_nothing_to_call_is_refused_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, lambda: lambda parameters: None)
    with pytest.raises(LoadError, match="NoneType"):
        open_adapter(ABI, {}, *PORTS, ORIGIN)


FORM = (("int64", 1),)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({}, "nothing for 'out'"),
        ({"out": [1, 2]}, "a list for 'out'"),
        ({"out": None}, "a NoneType for 'out'"),
        ({"out": np.array(["a"])}, "no tensor here holds"),
        ({"out": np.array([1 + 2j])}, "no tensor here holds"),
        ({"out": np.array([1.0])}, "port 'y' is float64 of rank 1"),
        ({"out": np.array([[1]])}, "port 'y' is int64 of rank 2"),
        ({"out": to_value(np.array([1.0], np.float32))}, "port 'y' is float32 of rank 1"),
        ({"out": to_value(np.array([[1]]))}, "port 'y' is int64 of rank 2"),
        (None, "NoneType"),
    ],
    ids=range(10),  # an OrtValue's own text has an address in it, and every process must name the tests alike
)
def test_what_it_gives_is_held_to_its_contract(made: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays and tensors alike: a wrong one would go on as something else."""
    installed(monkeypatch, lambda: lambda parameters: lambda inputs: made)
    adapter = open_adapter(ABI, {}, *PORTS, ORIGIN, forms=FORM)
    with pytest.raises(ExecutionError, match=said) as refusal:
        adapter(to_value(np.array([1])))
    assert (refusal.value.code, refusal.value.origin) == ("adapter", ORIGIN)


def test_it_can_write_into_nothing_that_other_steps_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoils(inputs: Any) -> Any:
        inputs["in"][0] = 99
        return {"out": inputs["in"]}

    installed(monkeypatch, lambda: lambda parameters: spoils)
    value = to_value(np.array([1]))
    with pytest.raises(ExecutionError, match="read-only"):
        open_adapter(ABI, {}, *PORTS, ORIGIN, forms=FORM)(value)
    assert to_array(value).tolist() == [1]


def test_what_it_keeps_and_changes_later_was_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    held = np.array([1])

    def again(inputs: Any) -> Any:
        held[0] += 1
        return {"out": held}

    installed(monkeypatch, lambda: lambda parameters: again)
    adapter = open_adapter(ABI, {}, *PORTS, ORIGIN, forms=FORM)
    first, second = (adapter(to_value(np.array([0])))[0] for _ in range(2))
    assert (to_array(first).tolist(), to_array(second).tolist()) == ([2], [3])


def test_a_tensor_that_comes_again_is_the_same_array_and_is_let_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    installed(monkeypatch, lambda: lambda parameters: lambda inputs: {"out": seen.append(inputs["in"]) or inputs["in"]})
    adapter = open_adapter(ABI, {}, *PORTS, ORIGIN, forms=FORM)
    one, other = to_value(np.array([1])), to_value(np.array([2]))
    for value in (one, one, other, one):
        adapter(value)
    assert seen[0] is seen[1]
    assert [each.tolist() for each in seen] == [[1], [1], [2], [1]]
    last = weakref.ref(seen[-1])
    seen.clear()
    del one, value
    assert last() is None
