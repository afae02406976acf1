"""Small packages of integer arithmetic for one test each, on the graphs of the fixture nested-loops.

Inputs a, b, n, m are int64 [1]; `package.true` is a literal. Outputs: `out` int64 [1], `trace` int64 [steps].
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conftest import FIXTURES
from tools.fixtures.document import (
    Document,
    application,
    cell,
    emit,
    invoke,
    literal,
    onnx,
    output,
    package,
    tensor,
    write_document,
)

ONE, FLAG, SCALAR = tensor("int64", 1), tensor("bool", 1), tensor("int64")
CAPABILITIES = ["workflow_ssa", "linear_effects", "nested_control_flow", "typed_emit", "streaming_emit",
                "loop_induction_values", "session_state_lease", "bounded_state_recurrence"]  # fmt: skip


def flow_package(
    folder: Path, steps: Sequence[Document], state: Mapping[str, Document] | None = None, **workflow: Document
) -> Path:
    """A package of these steps and cells; `workflow` adds to or replaces sections of the workflow."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("add", "below", "mix"):
        shutil.copy(FIXTURES / "nested-loops" / f"{name}.onnx", folder)
    components = {
        "add": onnx("add.onnx", {"a": ONE, "b": ONE}, {"sum": ONE}),
        "below": onnx("below.onnx", {"value": ONE, "limit": ONE}, {"below": FLAG}),
        "mix": onnx("mix.onnx", {"acc": ONE, "outer": ONE, "inner": SCALAR}, {"next": ONE}),
    }
    inputs = {name: application(ONE, name) for name in "abnm"} | {"package.true": literal(FLAG, True)}
    outputs = {"out": output(ONE), "trace": output(tensor("int64", "steps"))}
    document = package(CAPABILITIES, inputs, outputs, components, steps, state=dict(state or {}))
    for section, more in workflow.items():
        document["pipeline"]["workflow"].setdefault(section, {}).update(more)
    write_document(folder, document)
    return folder


def add(a: str, b: str, sum: str) -> Document:
    """sum = a + b."""
    return invoke("add", {"a": a, "b": b}, {"sum": sum})


def below(value: str, limit: str, flag: str) -> Document:
    """flag = value < limit."""
    return invoke("below", {"value": value, "limit": limit}, {"below": flag})


def traced(value: str) -> Document:
    """Append a value to `trace`."""
    return emit(value, "trace", "append", axis=0)


def session_cell(initializer: str) -> Document:
    """An int64 [1] cell that lives as long as its session."""
    return {**cell(ONE, initializer), "scope": "session", "session": {"policy": "exclusive"}}
