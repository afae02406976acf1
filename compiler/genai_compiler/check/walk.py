"""The step tree: where each step stands, and what every check of steps shares."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from genai_compiler.check.fault import WORKFLOW, Fault, Path
from genai_compiler.check.scope import MISSING, REPORTED, Scope, Value
from genai_compiler.read.document import (
    BatchLayout,
    BranchStep,
    Component,
    InvokeStep,
    LoopStep,
    OnnxImplementation,
    SequenceStep,
    Step,
    TensorContract,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean
from genai_compiler.read.tree import Limits

MOST = Limits().problems
NEAR = 1000
"""How many problems a document may have before the rest is counted only, and how many names a near one is sought in."""


def walk(steps: tuple[Step, ...], path: Path = (*WORKFLOW, "steps")) -> Iterator[tuple[Path, Step]]:
    """Every step of a list and below it, with its path, in document order."""
    for at, step in enumerate(steps):
        yield from below(step, (*path, at))


def below(step: Step, path: Path) -> Iterator[tuple[Path, Step]]:
    """A step and every step inside it."""
    yield path, step
    match step:
        case SequenceStep():
            yield from walk(step.steps, (*path, "steps"))
        case LoopStep():
            yield from walk(step.setup, (*path, "setup"))
            yield from walk(step.steps, (*path, "steps"))
        case BranchStep():
            for at, case in branches(step, path):
                yield from below(case, at)
        case _:
            pass


def branches(step: BranchStep, path: Path) -> Iterator[tuple[Path, Step]]:
    """The cases of a branch and its default, with their paths."""
    for key, case in step.cases.items():
        yield (*path, "cases", key), case
    if step.default is not None:
        yield (*path, "default"), step.default


def invokes(workflow: Workflow) -> Iterator[tuple[Path, InvokeStep]]:
    """Every invoke of the workflow."""
    for path, step in walk(workflow.steps):
        if isinstance(step, InvokeStep):
            yield path, step


def infers_ports(component: Component) -> bool:
    """Whether only its graph says which ports it has (standard, 2.4)."""
    ports = component.ports
    return isinstance(component.implementation, OnnxImplementation) and not ports.inputs and not ports.outputs


def inputs_of(component: Component) -> Mapping[str, TensorContract] | None:
    """Its declared input ports; None when only its graph knows them."""
    return None if infers_ports(component) else component.ports.inputs


def outputs_of(component: Component) -> Mapping[str, TensorContract] | None:
    """Its declared output ports; None when only its graph knows them."""
    return None if infers_ports(component) else component.ports.outputs


@dataclass(frozen=True)
class Walk:
    """One pass over the steps of a workflow: what it reads and the faults found so far.

    layouts: output -> layout of the first root value emitted into it, and that emit's path.
    """

    workflow: Workflow
    faults: list[Fault] = field(default_factory=list[Fault])
    layouts: dict[str, tuple[BatchLayout, Path]] = field(default_factory=dict[str, tuple[BatchLayout, Path]])

    def fault(self, rule: str, path: Path, what: str, help: str = "") -> None:
        """A rule is broken."""
        self.faults.append(Fault(rule, path, what, help))

    def read(self, rule: str, name: str, path: Path, scope: Scope, needs: str = "") -> Value | None:
        """What a name means here, or None after a fault: undefined (`rule`), or an input that may be absent (V135)."""
        value = scope.find(name)
        if value is None:
            what = needs or f"nothing that is visible here defines '{name}'"
            help = did_you_mean(name, scope.visible()[-NEAR:]) if len(self.faults) < MOST else ""
            self.fault(rule, path, what, help)
            scope.names[name] = MISSING
            return None
        self._presence(name, path, scope)
        return None if value.missing else value

    def _presence(self, name: str, path: Path, scope: Scope) -> None:
        declared = self.workflow.inputs.get(name)
        if declared is not None and declared.present_as and name not in scope.present:
            what = f"input '{name}' may be absent here; only the case \"true\" of a branch on '{declared.present_as}' "
            help = f"read it inside a branch with predicate '{declared.present_as}'"
            self.fault("V135", path, what + "may read it", help)

    def define(self, name: str, value: Value, path: Path, scope: Scope) -> None:
        """Make a fresh name visible in this region; a name already visible is a fault (V236)."""
        if scope.taken(name) is not None:
            what = f"'{name}' is already defined; every definition needs a name of its own"
            self.fault("V236", path, what, "choose another name")
            value = REPORTED
        scope.names[name] = value
