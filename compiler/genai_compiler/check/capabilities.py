"""Capabilities that a workflow uses, and whether its manifest lists them (standard, 8.1, V122 and V274)."""

from genai_compiler.check.fault import WORKFLOW, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.walk import below, branches, walk
from genai_compiler.read.document import (
    AdapterImplementation,
    Bounded,
    BranchStep,
    Component,
    EmitStep,
    InvokeStep,
    LoopStep,
    Metadata,
    RuntimeRole,
    Step,
    Workflow,
)

RULES: Rules = {
    "V122": Rule("capability-undeclared", "A manifest beside `adapters` lists both adapter capabilities."),
    "V274": Rule("capability-undeclared", "A manifest lists every capability that its workflow uses."),
}

_OF_CONTRACT = {
    "onnx-genai.parameter-overlay": "parameter_adapters",
    "onnx-genai.adaptive-proposal-budget": "adaptive_proposal_budget",
    "onnx-genai.grammar-guidance": "grammar_guidance_adapter",
    "onnx-genai.telemetry": "telemetry_adapter",
}
Used = dict[str, tuple[str, Path]]
"""Capability -> what uses it, in words, and where that stands."""


def check_capabilities(metadata: Metadata, workflow: Workflow) -> Faults:
    """Every capability that is used and not declared."""
    path = (*WORKFLOW, "manifest", "capabilities")
    declared = workflow.manifest.capabilities
    service = _of_adapters(metadata)
    for name, (reason, _) in (service | derived(workflow)).items():
        if name not in declared:
            what = f"the document uses '{name}' ({reason}) and the manifest does not list it"
            help = f"add '{name}' to manifest.capabilities"
            yield Fault("V122" if name in service else "V274", path, what, help)


def _of_adapters(metadata: Metadata) -> Used:
    if metadata.adapters is None:
        return {}
    names = ("parameter_adapters", "heterogeneous_adapter_batching")
    return dict.fromkeys(names, ("the adapter service", ("adapters",)))


def derived(workflow: Workflow) -> Used:
    """What the workflow implies by its parts and by its steps."""
    found: Used = {"workflow_ssa": ("every workflow", WORKFLOW)}
    if workflow.serving is not None:
        found["serving_service_contract"] = ("serving", (*WORKFLOW, "serving"))
    if workflow.effects:
        found["linear_effects"] = ("effects", (*WORKFLOW, "effects"))
    _from_state_and_inputs(workflow, found)
    for name, component in workflow.components.items():
        place, reason = (*WORKFLOW, "components", name), f"component '{name}'"
        if component.effects:
            found.setdefault("linear_effects", (reason, place))
        for identity in _identities(component):
            if identity in _OF_CONTRACT:
                found.setdefault(_OF_CONTRACT[identity], (reason, place))
    for path, step in walk(workflow.steps):
        for capability, reason in _from_step(step, path, workflow).items():
            found.setdefault(capability, (reason, path))
    return found


def _from_state_and_inputs(workflow: Workflow, found: Used) -> None:
    for name, cell in workflow.state.items():
        reason = f"state cell '{name}'", (*WORKFLOW, "state", name)
        if cell.scope == "session":
            found.setdefault("session_state_lease", reason)
        if isinstance(cell.recurrence, Bounded):
            found.setdefault("bounded_state_recurrence", reason)
        if cell.state_class == "advisory":
            found.setdefault("advisory_state", reason)
    for name, declared in workflow.inputs.items():
        reason = f"input '{name}'", (*WORKFLOW, "inputs", name)
        if declared.present_as is not None:
            found.setdefault("input_presence", reason)
        if isinstance(declared.role, RuntimeRole) and declared.role.role.startswith("adapter_"):
            found.setdefault("heterogeneous_adapter_batching", reason)


def _identities(component: Component) -> tuple[str, ...]:
    how = component.implementation
    ids = (how.abi,) if isinstance(how, AdapterImplementation) else ()
    return (*ids, component.contract.id) if component.contract is not None else ids


def _from_step(step: Step, path: Path, workflow: Workflow) -> dict[str, str]:
    match step:
        case LoopStep():
            found = {"nested_control_flow": "a loop"}
            if step.iteration is not None:
                found["loop_induction_values"] = "a loop's iteration value"
            if step.carried or any(isinstance(each, EmitStep) for _, each in walk(step.steps)):
                found["linear_effects"] = "a loop that carries or emits"
            return found
        case BranchStep():
            found = {"nested_control_flow": "a branch"}
            inside = [each for at, case in branches(step, path) for _, each in below(case, at)]
            if any(_effectful(each, workflow) for each in inside):
                found["linear_effects"] = "a branch that emits, carries or has effects"
            return found
        case EmitStep():
            found = {"typed_emit": "an emit"}
            if step.mode == "event":
                found["streaming_emit"] = "an event emit"
            if step.valid_length is not None:
                found["emit_valid_length"] = "an emit with valid_length"
            return found
        case _:
            return {}


def _effectful(step: Step, workflow: Workflow) -> bool:
    if isinstance(step, InvokeStep):
        component = workflow.components.get(step.component)
        return component is not None and bool(component.effects)
    return isinstance(step, EmitStep) or (isinstance(step, LoopStep) and bool(step.carried))
