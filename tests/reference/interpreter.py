"""A deliberately naive interpreter of `pipeline.workflow` documents: the second, independent route to every value.

It walks the plain document, runs one ONNX Runtime session an invoke, and follows section 3 of the metadata
standard line by line. It knows nothing of the compiler, its plan or its runtime.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.reference.document import read_document
from tests.reference.emits import publisher
from tests.reference.executors import synthesised_inputs
from tests.reference.inputs import bind_inputs
from tests.reference.invoke import check_overrides
from tests.reference.machine import Env, Machine, SessionStore
from tests.reference.regions import run_steps
from tests.reference.values import Array, Document, Published, ReferenceError, Scope


@dataclass(frozen=True)
class Result:
    """One invocation: its outputs by name, the loop bodies executed, and the values of its root region."""

    outputs: dict[str, Published]
    iterations: int
    values: Env


def interpret(
    package: Path | str,
    inputs: Mapping[str, Array],
    *,
    stop_on_eos: bool = True,
    session: str | None = None,
    sessions_store: SessionStore | None = None,
    overrides: Mapping[str, str] | None = None,
    document: Document | None = None,
) -> Result:
    """Run a package's workflow once.

    inputs: tensors by workflow input name or application alias. session: an id whose state cells live in
    `sessions_store` between calls; without one nothing is stored. overrides: component -> replacement.
    document: the package's document as plain data, for a caller that has it already.
    Raises ReferenceError with a kind of the conformance suite.
    """
    folder = Path(package)
    document = read_document(folder) if document is None else document
    workflow = (document.get("pipeline") or {}).get("workflow")
    if workflow is None:
        raise ReferenceError("artifact", f"{folder.name} has no pipeline.workflow")
    _relax_synthesised(workflow)
    scope = Scope(free=_free_symbols(workflow))
    machine = Machine(
        package=folder,
        document=document,
        scope=scope,
        publisher=publisher(workflow, scope),
        stop_on_eos=stop_on_eos,
        session=session,
        store=sessions_store if sessions_store is not None else {},
        overrides=overrides or {},
    )
    check_overrides(machine)
    env = bind_inputs(workflow, inputs, scope)
    run_steps(machine, workflow["steps"], env)
    outputs = machine.publisher.finish()
    machine.keep_session(env)
    return Result(outputs, machine.iterations, env)


def _free_symbols(workflow: Document) -> frozenset[str]:
    """Symbols on the varying axis of growing and bounded cells: never bound in the package scope (3.2)."""
    names: set[str] = set()
    for cell in (workflow.get("state") or {}).values():
        axis = cell["recurrence"].get("axis")
        shape = cell["contract"].get("shape")
        if axis is not None and shape and isinstance(shape[axis], str):
            names.add(shape[axis])
    return frozenset(names)


def _relax_synthesised(workflow: Document) -> None:
    for name in synthesised_inputs(workflow):
        workflow["inputs"][name]["required"] = False
