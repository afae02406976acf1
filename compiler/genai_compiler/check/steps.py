"""The steps of a workflow, walked in order with the names each can see: sequences and invokes (standard, 12.10)."""

from collections.abc import Mapping

from genai_compiler.check import branches, emits, loops
from genai_compiler.check.fault import WORKFLOW, Path, Rule, Rules
from genai_compiler.check.finals import Finals
from genai_compiler.check.scope import REPORTED, Scope, Value
from genai_compiler.check.tensors import mismatch
from genai_compiler.check.walk import Walk, inputs_of, outputs_of
from genai_compiler.read.document import (
    BranchStep,
    Component,
    EmitStep,
    InvokeStep,
    LoopStep,
    SequenceStep,
    Step,
    TensorContract,
)
from genai_compiler.read.signature import UNDEFINED
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V229": Rule("no-steps", "A sequence, and the body of a loop, holds at least one step."),
    "V230": Rule("unknown-component", "An invoke names a declared component."),
    "V231": Rule("unknown-port", "An invoke binds input ports that its component declares."),
    "V232": Rule("missing-port", "An invoke binds every input port that is not optional."),
    "V233": Rule("unknown-port", "An invoke binds output ports that its component declares."),
    "V234": Rule("missing-port", "An invoke binds every output port that is not optional."),
    "V235": Rule("unknown-value", "A step reads values that are defined before it and visible to it."),
    "V236": Rule("value-defined-twice", "Every definition has a name that nothing visible has."),
    "V237": Rule("type-mismatch", "A value fits the input port it feeds: dtype, rank, fixed extents."),
}

Declared = Mapping[str, TensorContract]
_PRESENCE = TensorContract(dtype="bool", rank=0, shape=())


def check_steps(walk: Walk) -> Scope:
    """Walk the root sequence, noting every fault; returns what is visible at its end."""
    scope, workflow = Scope(), walk.workflow
    for name, declared in workflow.inputs.items():
        scope.names[name] = Value(declared.contract)
    for declared in workflow.inputs.values():
        if declared.present_as:
            scope.names.setdefault(declared.present_as, Value(_PRESENCE))
    _sequence(walk, workflow.steps, (*WORKFLOW, "steps"), scope)
    return scope


def _sequence(walk: Walk, steps: tuple[Step, ...], path: Path, scope: Scope) -> Finals:
    if not steps:
        walk.fault("V229", path, "a list of steps is empty", "remove it, or say what it does")
    return run(walk, steps, path, scope)


def run(walk: Walk, steps: tuple[Step, ...], path: Path, scope: Scope) -> Finals:
    """The steps of a list in order; returns the session cells they update (see `finals`)."""
    final: Finals = {}
    for at, step in enumerate(steps):
        final |= _step(walk, step, (*path, at), scope)
    return final


def _step(walk: Walk, step: Step, path: Path, scope: Scope) -> Finals:
    match step:
        case SequenceStep():
            return _sequence(walk, step.steps, (*path, "steps"), scope)
        case InvokeStep():
            _invoke(walk, step, path, scope)
        case LoopStep():
            return loops.check_loop(walk, step, path, scope, run)
        case BranchStep():
            return branches.check_branch(walk, step, path, scope, _step)
        case EmitStep():
            emits.check_emit(walk, step, path, scope)
    return {}


def _invoke(walk: Walk, step: InvokeStep, path: Path, scope: Scope) -> None:
    component = walk.workflow.components.get(step.component)
    if component is None:
        help = did_you_mean(step.component, walk.workflow.components)
        walk.fault("V230", (*path, "component"), f"no component '{step.component}' is declared", help)
        for port, name in step.outputs.items():
            walk.define(name, REPORTED, (*path, "outputs", port), scope)
        return
    _inputs(walk, step, component, path, scope)
    _outputs(walk, step, component, path, scope)


def _inputs(walk: Walk, step: InvokeStep, component: Component, path: Path, scope: Scope) -> None:
    ports = inputs_of(component)
    for port, name in step.inputs.items():
        place = (*path, "inputs", port)
        if ports is not None and port not in ports:
            what = f"component '{step.component}' declares no input '{port}'"
            walk.fault("V231", place, what, did_you_mean(port, ports))
            continue
        value = walk.read("V235", name, place, scope)
        if value is not None and value.contract is not None and ports is not None:
            fault = mismatch(value.contract, ports[port])
            if fault:
                what = f"'{name}' can't feed input '{port}' of '{step.component}': {fault}"
                walk.fault("V237", place, what, f"make the value and components.{step.component}.ports agree")
    _all_bound(walk, "V232", step, ports, step.inputs, (*path, "inputs"))


def _outputs(walk: Walk, step: InvokeStep, component: Component, path: Path, scope: Scope) -> None:
    ports = outputs_of(component)
    for port, name in step.outputs.items():
        place, value = (*path, "outputs", port), Value()
        if ports is not None:
            value = _of_port(ports[port]) if port in ports else REPORTED
            if port not in ports:
                what = f"component '{step.component}' declares no output '{port}'"
                walk.fault("V233", place, what, did_you_mean(port, ports))
        walk.define(name, value, place, scope)
    _all_bound(walk, "V234", step, ports, step.outputs, (*path, "outputs"))


def _of_port(contract: TensorContract) -> Value:
    return Value(None if contract.dtype == UNDEFINED else contract)


def _all_bound(
    walk: Walk,
    rule: str,
    step: InvokeStep,
    ports: Mapping[str, TensorContract] | None,
    bound: dict[str, str],
    path: Path,
) -> None:
    left = [port for port, contract in (ports or {}).items() if not contract.optional and port not in bound]
    if left:
        side, names = path[-1], ", ".join(f"'{each}'" for each in left)
        what = f"component '{step.component}' needs its {side} {names} bound here"
        walk.fault(rule, path, what, f"bind {'them' if len(left) > 1 else 'it'}, or declare the port optional")
