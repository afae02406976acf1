"""Read `workflow-cases-1` files of the conformance data, and compare what a run published with them.

Any executor can be judged: give `compare` its outputs as arrays, `Rows`, `Events` or `RowEvents`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.data import DATA
from tests.reference.values import Array, Document, Events, Published, RowEvents, Rows, numpy_dtype

EXPECTED = DATA / "conformance" / "expected"
PACKAGES = DATA / "conformance" / "packages"
FORMAT = "workflow-cases-1"


@dataclass(frozen=True)
class Call:
    """One invocation of a case: its request, and the plain `expect` block it must meet."""

    inputs: dict[str, Array]
    stop_on_eos: bool
    session: str | None
    overrides: dict[str, str]
    expect: Document

    @property
    def error_kind(self) -> str | None:
        """The kind of failure expected, None when the call must succeed."""
        return str(self.expect["error_kind"]) if self.expect["status"] == "error" else None


@dataclass(frozen=True)
class Case:
    """Calls made in order against one freshly loaded package."""

    package: str
    id: str
    description: str
    calls: tuple[Call, ...]

    @property
    def folder(self) -> Path:
        """The package's folder in the shared data."""
        return PACKAGES / self.package


def workflow_packages() -> list[str]:
    """The packages that have workflow cases, [] when the shared data is absent."""
    names: list[str] = []
    for path in sorted(EXPECTED.glob("*.json")):
        if json.loads(path.read_text("utf-8")).get("format") == FORMAT:
            names.append(path.stem)
    return names


def expected_file(name: str) -> Document:
    """The whole content of one package's expected file."""
    loaded: Document = json.loads((EXPECTED / f"{name}.json").read_text("utf-8"))
    return loaded


def load_cases(name: str) -> list[Case]:
    """The cases of one package's expected file."""
    loaded = expected_file(name)
    assert loaded["format"] == FORMAT, loaded["format"]
    return [
        Case(name, case["id"], case["description"], tuple(_call(call) for call in case["calls"]))
        for case in loaded["cases"]
    ]


def all_cases() -> list[Case]:
    """Every workflow case of the shared data."""
    return [case for name in workflow_packages() for case in load_cases(name)]


def _call(call: Document) -> Call:
    request = call["request"]
    return Call(
        inputs={name: tensor(spec) for name, spec in request["inputs"].items()},
        stop_on_eos=request.get("stop_on_eos", True),
        session=request.get("session_id"),
        overrides=request.get("component_overrides") or {},
        expect=call["expect"],
    )


def tensor(spec: Document) -> Array:
    """An array from `{dtype, shape, data}` with row-major data."""
    return np.array(spec["data"], numpy_dtype(spec["dtype"])).reshape(spec["shape"])


def compare(expect: Document, got: Mapping[str, Published], iterations: int | None) -> list[str]:
    """What differs between an `ok` expectation and a run, one line each; [] when it is met.

    iterations: loop bodies executed, None when the caller can't tell.
    """
    wanted: Document = expect.get("outputs", {})
    faults = [f"output {name!r} is missing" for name in wanted if name not in got]
    faults += [f"output {name!r} was not expected" for name in got if name not in wanted]
    for name in wanted:
        if name in got:
            faults += _output_faults(name, wanted[name], got[name])
    if iterations is not None and iterations != expect.get("loop_iterations", iterations):
        faults.append(f"{iterations} loop iterations, expected {expect['loop_iterations']}")
    return faults


def _output_faults(name: str, spec: Document, got: Published) -> list[str]:
    match spec["kind"], got:
        case "tensor", np.ndarray():
            return tensor_faults(name, spec, got)
        case "rows", Rows(items):
            return _list_faults(f"{name}.row", spec["rows"], items)
        case "events", Events(items):
            return _list_faults(name, spec["events"], items)
        case "events", RowEvents(items):
            return [f"{name} is published as events of {len(items)} rows, expected plain events"]
        case kind, _:
            return [f"{name} is {type(got).__name__}, expected {kind}"]


def _list_faults(name: str, specs: list[Document | None], items: tuple[Array | None, ...]) -> list[str]:
    if len(specs) != len(items):
        return [f"{name}: {len(items)} entries, expected {len(specs)}"]
    faults: list[str] = []
    for index, (spec, item) in enumerate(zip(specs, items, strict=True)):
        if spec is None or item is None:
            if spec is not None or item is not None:
                faults.append(f"{name}.{index} is {item}, expected {spec}")
        else:
            faults += tensor_faults(f"{name}.{index}", spec, item)
    return faults


def tensor_faults(name: str, spec: Document, got: Array) -> list[str]:
    """What differs between a tensor and its description (data, or hash and probes)."""
    if got.dtype != numpy_dtype(spec["dtype"]):
        return [f"{name} has dtype {got.dtype}, expected {spec['dtype']}"]
    if list(got.shape) != spec["shape"]:
        return [f"{name} has shape {list(got.shape)}, expected {spec['shape']}"]
    if spec.get("nondeterministic"):
        return []
    rtol, atol = spec.get("rtol", 0.0), spec.get("atol", 0.0)
    if "data" in spec:
        return _number_faults(name, got, tensor(spec), rtol, atol)
    if "sha256" in spec and got.dtype.kind in "biu":
        digest = hashlib.sha256(np.ascontiguousarray(got).tobytes()).hexdigest()
        return [] if digest == spec["sha256"] else [f"{name} has sha256 {digest}, expected {spec['sha256']}"]
    flat = got.reshape(-1)
    at = [index for index, _ in spec["probes"]]
    values = np.array([value for _, value in spec["probes"]], got.dtype)
    return _number_faults(f"{name} probes", flat[at], values, rtol, atol)


def _number_faults(name: str, got: Array, wanted: Array, rtol: float, atol: float) -> list[str]:
    if got.dtype.kind in "biu":
        good: Any = got == wanted
    else:
        good = np.isclose(got.astype(np.float64), wanted.astype(np.float64), rtol, atol, equal_nan=True)
    if np.all(good):
        return []
    first = int(np.argmin(np.reshape(good, -1)))
    pair = f"{got.reshape(-1)[first]} at {first}, expected {wanted.reshape(-1)[first]}"
    return [f"{name}: {int(np.size(good) - np.sum(good))} of {got.size} differ, first {pair}"]
