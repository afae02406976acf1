"""Capabilities: what a document asks for, against what this compiler and its runtime offer (standard, section 8)."""

from collections.abc import Iterator
from importlib.metadata import entry_points

from genai_compiler.check.capabilities import derived
from genai_compiler.check.components import ACTIONS
from genai_compiler.check.fault import Rule, Rules
from genai_compiler.check.walk import invokes
from genai_compiler.plan.report import WORKFLOW, Path, Report
from genai_compiler.problem import Missing
from genai_compiler.read.document import AdapterImplementation, Component, Metadata, Workflow
from genai_compiler.read.package import Package
from genai_compiler.read.places import Places, format_path
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V309": Rule("capability-missing", "Every capability that the document requires is offered."),
    "V310": Rule("adapter-missing", "Every adapter that the document names is provided, in that version."),
    "V341": Rule("boundary-adapter", "No step invokes the component that puts the prompt of a speech together."),
}

ALWAYS = frozenset({
    "kv_cache", "grouped_query_attention", "multi_head_attention", "prefix_cache", "continuous_batching",
    "control_flow_loop",
})  # fmt: skip
"""Never derived: any runtime has them, or makes no promise by having them."""

OFFERED = ALWAYS | {
    "workflow_ssa", "linear_effects", "serving_service_contract", "session_state_lease", "bounded_state_recurrence",
    "advisory_state", "nested_control_flow", "loop_induction_values", "typed_emit", "streaming_emit",
    "emit_valid_length", "input_presence", "loop_carried_state", "grammar_guidance_adapter", "telemetry_adapter",
    "adaptive_proposal_budget", "audio_preprocessing_program", "image_preprocessing_program", "packed_image_outputs",
    "parameter_adapters", "heterogeneous_adapter_batching",
}  # fmt: skip
PROVIDED = frozenset({
    "genai-compile.diffusion@1",
    "onnx-genai.audio-preprocess@1", "onnx-genai.grammar-guidance@1", "onnx-genai.image-preprocess@1",
    "onnx-genai.parameter-overlay@1", "onnx-genai.telemetry@1", "genai-compile.image-processor@1",
    "genai-compile.audio-processor@1", "genai-compile.one-picture@1", "genai-compile.join-pictures@1",
    "genai-compile.one-sound@1", "genai-compile.end-source@1",
    "genai-compile.grid-positions@1", "genai-compile.window-rows@1", "genai-compile.entry-count@1",
})  # fmt: skip
"""Adapters that the runtime brings; others come through the entry-point group `genai_runtime.adapters`."""

BOUNDARY = frozenset({"onnx-genai.text-assembly@1"})
"""Adapters of a server's boundary: legal in a document as long as no step invokes them (standard, 5.4)."""

ENTRY_POINTS = "genai_runtime.adapters"
GRAPHS = "graphs"
"""Parameter of an adapter's contract: the components whose graphs it runs itself, with commas between."""
RETIRED = frozenset({"emit_row_identity", "bounded_state_growth"})
"""Names that older documents carry beside what replaced them; they ask for nothing."""


def negotiate(package: Package, report: Report) -> None:
    """Report capabilities that are asked for and missing, and adapters nobody provides."""
    report.problems.extend(missing_of(package.metadata, package.places))
    for name in sorted({step.component for _, step in invokes(package.workflow)}):
        component = package.workflow.components.get(name)
        implementation = component.implementation if component is not None else None
        if not isinstance(implementation, AdapterImplementation):
            continue
        abi = f"{implementation.abi}@{implementation.version}"
        _check_graphs(name, package, report)
        if abi in BOUNDARY:
            what = f"component '{name}' is {abi}, which works before a workflow begins: no step invokes it (V341)"
            help = "remove the step; model.speech puts the prompt together"
            report.error("boundary-adapter", (*WORKFLOW, "components", name), what, help)
        elif component is not None and component.contract is None and implementation.abi in ACTIONS:
            what = f"component '{name}' is {abi}, and nothing says which of its actions a step runs"
            help = f"give it a contract with parameters.action, one of: {', '.join(ACTIONS[implementation.abi])}"
            report.error("adapter-contract", (*WORKFLOW, "components", name), what, help)


def graphs_of(component: Component) -> tuple[str, ...]:
    """The components whose graphs an adapter runs itself."""
    told = component.contract.parameters.get(GRAPHS) if component.contract is not None else None
    return tuple(each.strip() for each in told.split(",")) if isinstance(told, str) else ()


def _check_graphs(name: str, package: Package, report: Report) -> None:
    for each in graphs_of(package.workflow.components[name]):
        if each not in package.graphs:
            what = f"the adapter '{name}' runs the graph of '{each}', which is no ONNX component"
            path = (*WORKFLOW, "components", name, "contract", "parameters", GRAPHS)
            report.error("unknown-component", path, what, did_you_mean(each, package.graphs))


def missing_of(metadata: Metadata, places: Places) -> tuple[Missing, ...]:
    """Capabilities and adapters that a document needs and that nobody here offers, whatever else is wrong with it."""
    if metadata.pipeline is None:
        return ()
    workflow = metadata.pipeline.workflow
    return (*_capabilities(metadata, workflow, places), *_adapters(workflow, places))


def _capabilities(metadata: Metadata, workflow: Workflow, places: Places) -> Iterator[Missing]:
    used = derived(workflow)
    asked = dict(_asked(metadata, workflow))
    for capability, path in ({name: at for name, (_, at) in used.items()} | asked).items():
        if capability in OFFERED | RETIRED:
            continue
        reason, place = used.get(capability, ("the document lists it", path))
        needs = f" ({reason} needs it)" if capability in used else ""
        what = f"the document requires '{capability}'{needs}, which this compiler does not offer (V309)"
        help = did_you_mean(capability, OFFERED)
        where, by = places.find(path), f"{reason}: {format_path(place)}"
        yield Missing("capability-missing", where, format_path(path), what, help, id=capability, needed_by=by)


def _adapters(workflow: Workflow, places: Places) -> Iterator[Missing]:
    for name, component in workflow.components.items():
        if not isinstance(component.implementation, AdapterImplementation):
            continue
        abi = f"{component.implementation.abi}@{component.implementation.version}"
        if abi not in PROVIDED | BOUNDARY and not entry_points(group=ENTRY_POINTS, name=abi):
            what = f"component '{name}' needs the adapter {abi}, which is not provided here (V310)"
            help = f"install a package that provides it (entry-point group '{ENTRY_POINTS}')"
            path = (*WORKFLOW, "components", name, "implementation")
            by = f"component '{name}': {format_path(path)}"
            yield Missing("adapter-missing", places.find(path), format_path(path), what, help, id=abi, needed_by=by)


def _asked(metadata: Metadata, workflow: Workflow) -> Iterator[tuple[str, Path]]:
    """Capabilities that the document lists, and where; the manifest's entry counts where both lists have one."""
    for at, each in enumerate(metadata.required_capabilities):
        yield each, ("required_capabilities", at)
    for at, each in enumerate(workflow.manifest.capabilities):
        yield each, (*WORKFLOW, "manifest", "capabilities", at)
