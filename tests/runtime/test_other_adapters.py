"""Adapters of others, found by entry point: their faults are told by step and in words, never as a traceback."""

import importlib.metadata
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
