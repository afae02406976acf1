"""Capabilities: what a document asks for, against what this compiler and its runtime offer (standard, section 8)."""

from collections.abc import Iterator

from genai_compiler.check.capabilities import derived
from genai_compiler.check.fault import Rule, Rules
from genai_compiler.plan.report import WORKFLOW, Path, Report
from genai_compiler.read.document import AdapterImplementation
from genai_compiler.read.package import Package
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V309": Rule("capability-missing", "Every capability that the document requires is offered."),
    "V310": Rule("adapter-missing", "Every adapter that the document names is provided, in that version."),
}

ALWAYS = frozenset({
    "kv_cache", "grouped_query_attention", "multi_head_attention", "prefix_cache", "continuous_batching",
    "control_flow_loop",
})  # fmt: skip
"""Never derived: any runtime has them, or makes no promise by having them."""

OFFERED = ALWAYS | {
    "workflow_ssa", "linear_effects", "serving_service_contract", "session_state_lease", "bounded_state_recurrence",
    "advisory_state", "nested_control_flow", "loop_induction_values", "typed_emit", "streaming_emit",
    "emit_valid_length", "input_presence", "loop_carried_state",
}  # fmt: skip
RETIRED = frozenset({"emit_row_identity", "bounded_state_growth"})
"""Names that older documents carry beside what replaced them; they ask for nothing."""


def negotiate(package: Package, report: Report) -> None:
    """Report capabilities that are asked for and missing, and adapters nobody provides."""
    used = derived(package.workflow)
    for capability, path in _asked(package):
        if capability not in OFFERED | RETIRED:
            reason = f" ({used[capability][0]} needs it)" if capability in used else ""
            what = f"the document requires '{capability}'{reason}, which this compiler does not offer (V309)"
            report.error("capability-missing", path, what, did_you_mean(capability, OFFERED))
    for name, component in package.workflow.components.items():
        if isinstance(component.implementation, AdapterImplementation):
            abi = f"{component.implementation.abi}@{component.implementation.version}"
            what = f"component '{name}' needs the adapter {abi}, which this compiler does not provide (V310)"
            report.error("adapter-missing", (*WORKFLOW, "components", name, "implementation"), what)


def _asked(package: Package) -> Iterator[tuple[str, Path]]:
    for at, each in enumerate(package.metadata.required_capabilities):
        yield each, ("required_capabilities", at)
    for at, each in enumerate(package.workflow.manifest.capabilities):
        yield each, (*WORKFLOW, "manifest", "capabilities", at)
