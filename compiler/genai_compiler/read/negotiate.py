"""Capabilities: what a document asks for, against what this compiler and its runtime offer (standard, section 8)."""

from collections.abc import Iterator

from genai_compiler.plan.report import WORKFLOW, Path, Report
from genai_compiler.plan.scope import did_you_mean
from genai_compiler.read.document import (
    AdapterImplementation,
    Bounded,
    BranchStep,
    EmitStep,
    InvokeStep,
    LoopStep,
    Step,
)
from genai_compiler.read.package import Package

ALWAYS = frozenset(
    "kv_cache grouped_query_attention multi_head_attention prefix_cache continuous_batching control_flow_loop".split()
)
"""Never derived: any runtime has them, or makes no promise by having them."""

OFFERED = ALWAYS | frozenset(
    "workflow_ssa linear_effects serving_service_contract session_state_lease bounded_state_recurrence advisory_state "
    "nested_control_flow loop_induction_values typed_emit streaming_emit emit_valid_length input_presence "
    "loop_carried_state".split()
)
RETIRED = frozenset({"emit_row_identity", "bounded_state_growth"})
"""Names that older documents carry beside what replaced them; they ask for nothing."""


def negotiate(package: Package, report: Report) -> None:
    """Report capabilities that are asked for and missing, ones used but not declared, and adapters nobody provides."""
    manifest = package.workflow.manifest
    for capability, path in _asked(package):
        if capability not in OFFERED | RETIRED:
            what = f"the document requires '{capability}', which this compiler does not offer"
            report.error("capability-missing", path, what, did_you_mean(capability, OFFERED))
    for capability, reason in derived(package).items():
        if capability not in manifest.capabilities and capability not in ALWAYS:
            path = (*WORKFLOW, "manifest", "capabilities")
            what = f"the workflow uses '{capability}' ({reason}) and its manifest does not list it"
            report.error("capability-undeclared", path, what, f"add '{capability}' to manifest.capabilities")
    for name, component in package.workflow.components.items():
        if isinstance(component.implementation, AdapterImplementation):
            abi = f"{component.implementation.abi}@{component.implementation.version}"
            what = f"component '{name}' needs the adapter {abi}, which this compiler does not provide"
            report.error("adapter-missing", (*WORKFLOW, "components", name, "implementation"), what)


def _asked(package: Package) -> Iterator[tuple[str, Path]]:
    for at, each in enumerate(package.metadata.required_capabilities):
        yield each, ("required_capabilities", at)
    for at, each in enumerate(package.workflow.manifest.capabilities):
        yield each, (*WORKFLOW, "manifest", "capabilities", at)


def derived(package: Package) -> dict[str, str]:
    """Capability -> what in the workflow implies it (standard, 8.1)."""
    workflow, found = package.workflow, {"workflow_ssa": "every workflow"}
    if workflow.serving is not None:
        found["serving_service_contract"] = "serving"
    for name, cell in workflow.state.items():
        if cell.scope == "session":
            found.setdefault("session_state_lease", f"state cell '{name}'")
        if isinstance(cell.recurrence, Bounded):
            found.setdefault("bounded_state_recurrence", f"state cell '{name}'")
        if cell.state_class == "advisory":
            found.setdefault("advisory_state", f"state cell '{name}'")
    for name, each in workflow.inputs.items():
        if each.present_as:
            found.setdefault("input_presence", f"input '{name}'")
    if workflow.effects or any(component.effects for component in workflow.components.values()):
        found["linear_effects"] = "effects"
    for step in _all(workflow.steps):
        _from_step(step, package, found)
    return found


def _from_step(step: Step, package: Package, found: dict[str, str]) -> None:
    match step:
        case LoopStep():
            found.setdefault("nested_control_flow", "a loop")
            if step.iteration is not None:
                found.setdefault("loop_induction_values", "a loop's iteration value")
            if step.carried or any(isinstance(each, EmitStep) for each in _all(step.steps)):
                found.setdefault("linear_effects", "a loop that carries or emits")
        case BranchStep():
            found.setdefault("nested_control_flow", "a branch")
            if any(_effectful(each, package) for each in _inside(step)):
                found.setdefault("linear_effects", "a branch that emits, carries or has effects")
        case EmitStep():
            found.setdefault("typed_emit", "an emit")
            if step.mode == "event":
                found.setdefault("streaming_emit", "an event emit")
            if step.valid_length:
                found.setdefault("emit_valid_length", "an emit with valid_length")
        case _:
            pass


def _effectful(step: Step, package: Package) -> bool:
    if isinstance(step, InvokeStep):
        component = package.workflow.components.get(step.component)
        return component is not None and bool(component.effects)
    return isinstance(step, EmitStep) or (isinstance(step, LoopStep) and bool(step.carried))


def _inside(step: BranchStep) -> Iterator[Step]:
    yield from _all((*step.cases.values(), *((step.default,) if step.default is not None else ())))


def _all(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        match step.kind:
            case "sequence":
                yield from _all(step.steps)
            case "loop":
                yield from _all((*step.setup, *step.steps))
            case "branch":
                yield from _inside(step)
            case _:
                pass
