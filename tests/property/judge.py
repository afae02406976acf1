"""Compile a made package, run it, hold every call against the reference interpreter: same bits, or the same refusal."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import genai_runtime
import ml_dtypes
import numpy as np
import yaml
from genai_compiler import Options, compile_package
from genai_compiler.plan.ir import Form
from genai_runtime import Event

from tests.property.dead_steps import without_dead_steps
from tests.property.kinds import Document
from tests.property.requests import Request
from tests.reference.document import steps_below
from tests.reference.interpreter import Result as Wanted
from tests.reference.interpreter import interpret
from tests.reference.machine import SessionStore
from tests.reference.values import Array, Events, ReferenceError, RowEvents, Rows

_RUN_TIME = {"cell-contract", "emit-contract", "symbol-conflict", "wrong-shape", "step-failed"}
SAME_KIND: Mapping[str, set[str]] = {
    "missing_input": {"missing-input"},
    "unknown_input": {"unknown-input"},
    "dtype": {"wrong-dtype", "adapter"},
    "rank": {"wrong-rank", "adapter"},
    "shape": {"wrong-shape", "symbol-conflict", *_RUN_TIME},
    "symbol": {"symbol-conflict", *_RUN_TIME},
    "literal": {"literal-length", "bad-value", "symbol-conflict"},
    "recurrence": {"recurrence"},
    "inactive_rows": {"inactive-rows"},
    "capacity": {"capacity"},
    "control": {"loop-bound", "emit-length", "recurrence", "capacity"},
    "emit": {"emit-length", "emit-contract", "emit-rows"},
    "override": {"bad-override"},
    "adapter": {"adapter"},
    "predicate": {"branch-case", "branch-predicate", "loop-predicate"},
    "execution": {"step-failed"},
}
"""The interpreter's kinds of refusal, and the codes that we report each by."""


class Disagreement(AssertionError):
    """The executor and the interpreter differ."""


Outcome = tuple[genai_runtime.Result, list[Event]] | genai_runtime.GenaiError


@dataclass
class Subject:
    """A loaded executor, the document it was compiled from, and what sessions the interpreter keeps.

    A component without effects whose values nothing reads need not run (standard 2.5), so it need not fail either:
    where only the interpreter refuses, what it says of the document without such steps counts.
    """

    model: genai_runtime.Model
    folder: Path
    document: Document
    timed: frozenset[str] = frozenset()
    store: SessionStore = field(default_factory=dict[tuple[str, str], Array])

    def __post_init__(self) -> None:
        self.emits = _modes(self.document["pipeline"]["workflow"]["steps"])
        self.pruned = without_dead_steps(self.document)

    def wanted(self, request: Request) -> Wanted | ReferenceError:
        """What the interpreter makes of a request."""
        try:
            return interpret(
                self.folder,
                {name: self._as_declared(name, _native(array)) for name, array in request.inputs.items()},
                stop_on_eos=request.stop_on_eos,
                session=request.session,
                sessions_store=self.store,
                overrides=request.overrides,
                document=self.document,
            )
        except ReferenceError as refused:
            return refused

    def _as_declared(self, name: str, array: Array) -> Array:
        """Numpy has no bfloat16: the runtime takes float32 for it and rounds; the interpreter is given it rounded."""
        for input, spec in self.document["pipeline"]["workflow"]["inputs"].items():
            named = name in (input, spec["source"].get("name"))
            if named and spec["contract"]["dtype"] in ("bfloat16", "bf16") and array.dtype == np.float32:
                return array.astype(ml_dtypes.bfloat16)
        return array

    def judge(self, request: Request, exact: bool = True) -> Wanted | None:
        """Both routes on one request: raises Disagreement; gives what they agree on, None when both refuse.

        exact: both must refuse for the same reason, which a request with more than one fault has not.
        """
        wanted = self.wanted(request)
        outcome = self._outcome(request)
        if isinstance(wanted, ReferenceError) and not _both_refuse(wanted, outcome, exact) and self.pruned is not None:
            wanted = replace(self, document=self.pruned).wanted(request)
        if _both_refuse(wanted, outcome, exact):
            return None
        if isinstance(wanted, ReferenceError) or isinstance(outcome, genai_runtime.GenaiError):
            raise Disagreement(f"{request}\nexecutor: {outcome}\ninterpreter: {wanted!r}")
        faults = differences(wanted, outcome[0], self.timed) + streamed(*outcome, self.emits)
        if faults:
            raise Disagreement(f"{request}\n" + "\n".join(faults))
        return wanted

    def _outcome(self, request: Request) -> Outcome:
        """What the executor makes of a request: its result and the events on the way, or its refusal."""
        events: list[Event] = []
        try:
            running = self.model.stream(
                request.inputs,
                stop_on_eos=request.stop_on_eos,
                session=request.session,
                overrides=request.overrides,
            )
            while True:
                events.append(next(running))
        except StopIteration as done:
            return done.value, events
        except genai_runtime.GenaiError as refused:
            return refused


def _both_refuse(wanted: Wanted | ReferenceError, outcome: Outcome, exact: bool) -> bool:
    refused = isinstance(wanted, ReferenceError) and isinstance(outcome, genai_runtime.GenaiError)
    return refused and (not exact or outcome.code in SAME_KIND.get(wanted.kind, ()))


def differences(wanted: Wanted, result: genai_runtime.Result, timed: frozenset[str] = frozenset()) -> list[str]:
    """What the executor's result has otherwise. timed: outputs of a clock, held by type only."""
    published = {*result.aggregate, *result.row_slots}
    faults = [f"published {sorted(published)}, wanted {sorted(wanted.outputs)}"] * (published != set(wanted.outputs))
    if result.iterations != wanted.iterations:
        faults.append(f"{result.iterations} iterations, wanted {wanted.iterations}")
    for name, value in wanted.outputs.items():
        match value:
            case Rows(items):
                faults += _list(name, items, result.row_slots.get(name, []))
            case Events(items, latest):
                faults += _list(name, items, result.events(name), name in timed)
                faults += _one(name, latest, result.aggregate.get(name), name in timed)
            case RowEvents(rows, held):
                faults += _rows(name, rows, result.row_events(name))
                faults += _list(name, held, result.row_slots.get(name, []))
            case _:
                faults += _one(name, value, result.aggregate.get(name), name in timed)
    return faults


def streamed(result: genai_runtime.Result, events: list[Event], emits: Mapping[str, set[tuple[str, int]]]) -> list[str]:
    """What the events of a run do not add up to. emits: the modes and axes of each output's emits."""
    faults: list[str] = []
    for name, ways in emits.items():
        if len(ways) > 1:
            continue
        ((mode, axis),) = ways
        rows: list[int | None] = (
            [None] if name in result.aggregate else list(range(len(result.row_slots.get(name, []))))
        )
        for row in rows:
            mine = [each.value for each in events if (each.output, each.row) == (name, row)]
            held = result.aggregate[name] if row is None else result.row_slots[name][row]
            kept = None if not mine else np.concatenate(mine, axis) if mode == "append" else mine[-1]
            faults += _one(f"streamed {name}", kept, held)
            listed = result.events(name) if row is None else result.row_events(name)[row]
            faults += _list(f"streamed {name}", mine if mode == "event" else [], listed)
    return faults


def _modes(steps: list[Document]) -> dict[str, set[tuple[str, int]]]:
    found: dict[str, set[tuple[str, int]]] = {}
    for step in steps_below(steps):
        if step["kind"] == "emit":
            axis = step.get("axis")
            found.setdefault(step["output"], set()).add((step["mode"], -1 if axis is None else axis))
    return found


def _native(array: Array) -> Array:
    """The same numbers in this machine's byte order: a contract speaks of numbers."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _rows(name: str, wanted: tuple[tuple[Array, ...], ...], got: list[list[Array]]) -> list[str]:
    if len(wanted) != len(got):
        return [f"{name}: {len(got)} rows, wanted {len(wanted)}"]
    return [fault for at, row in enumerate(wanted) for fault in _list(f"{name} row {at}", row, got[at])]


def _list(name: str, wanted: Any, got: Any, timed: bool = False) -> list[str]:
    if len(wanted) != len(got):
        return [f"{name}: {len(got)} entries, wanted {len(wanted)}"]
    return [
        fault for at, (a, b) in enumerate(zip(wanted, got, strict=True)) for fault in _one(f"{name}[{at}]", a, b, timed)
    ]


def _one(name: str, wanted: Array | None, got: Array | None, timed: bool = False) -> list[str]:
    if wanted is None or got is None:
        return [] if wanted is got else [f"{name}: {got!r}, wanted {wanted!r}"]
    wanted = published_as(wanted)
    if (wanted.dtype, wanted.shape) != (got.dtype, got.shape):
        return [f"{name}: {got.dtype}{list(got.shape)}, wanted {wanted.dtype}{list(wanted.shape)}"]
    same = timed or np.ascontiguousarray(wanted).tobytes() == np.ascontiguousarray(got).tobytes()
    return [] if same else [f"{name}: {got.tolist()}, wanted {wanted.tolist()}"]


def published_as(array: Array) -> Array:
    """An array as our runtime hands it out: bfloat16 as float32, float8 as its bits."""
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array.view(np.uint8) if array.dtype.name.startswith("float8") else array


@dataclass
class Bench:
    """One folder whose document changes from package to package, and a folder for what is compiled from it."""

    root: Path
    made: int = 0

    def __post_init__(self) -> None:
        self.package.mkdir(parents=True, exist_ok=True)

    @property
    def package(self) -> Path:
        """The package's folder."""
        return self.root / "package"

    def compiled(
        self, document: Document, text: str = "json", timed: frozenset[str] = frozenset(), form: Form | None = None
    ) -> Subject:
        """Compile and load; raises CompileError. form: of every component that can have it."""
        self.write(document, text)
        self.made += 1
        out = self.root / f"compiled{self.made % 2}"
        compile_package(self.package, out=out, options=Options(force=True, forms={"": form} if form else {}))
        model = genai_runtime.load(out, threads=1)
        return Subject(model, self.package, copy.deepcopy(document), timed)

    def write(self, document: Document, text: str = "json") -> None:
        """The document as JSON or as YAML, never both."""
        for suffix in ("json", "yaml"):
            (self.package / f"inference_metadata.{suffix}").unlink(missing_ok=True)
        written = json.dumps(document) if text == "json" else yaml.dump(document, Dumper=_dumper(), sort_keys=False)
        (self.package / f"inference_metadata.{text}").write_text(written, encoding="utf-8")


def _dumper() -> Any:
    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)
