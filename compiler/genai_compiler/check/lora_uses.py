"""Whether what an adapter changes is applied somewhere: by inputs of its graph, or by an overlay step."""

from collections.abc import Iterator

from genai_compiler.check.fault import COMPONENTS, Path
from genai_compiler.check.lora_targets import OVERLAY
from genai_compiler.check.walk import invokes
from genai_compiler.plan.dtypes import canonical
from genai_compiler.plan.report import Report
from genai_compiler.problem import Problem
from genai_compiler.read.document import AdapterImplementation, AdapterTarget, Component, TensorContract
from genai_compiler.read.lora_seam import SeamFault, seams_of
from genai_compiler.read.package import Package

TARGETS: Path = ("adapters", "target_manifest", "targets")


def check_lora_uses(package: Package) -> tuple[Problem, ...]:
    """Graph inputs that can't take factors, overlays that can't apply their target, targets that nothing applies.

    The document and its files must have passed the standard's own rules.
    """
    report = Report(package.places)
    seams = dict(seams_of(package))
    for at, seam in seams.items():
        if isinstance(seam, SeamFault):
            report.error("adapter-input", (*TARGETS, at, "graph_inputs", seam.field), seam.what, seam.help)
    for name, component in overlays(package).items():
        for path, what, help in _overlay_faults(package, name, component):
            report.error("adapter-overlay", path, what, help)
    _unapplied(package, set(seams), report)
    return tuple(report.problems)


def overlays(package: Package) -> dict[str, Component]:
    """Parameter-overlay components that some step invokes."""
    used = {step.component for _, step in invokes(package.workflow)}
    return {name: each for name, each in package.workflow.components.items() if name in used and is_overlay(each)}


def is_overlay(component: Component) -> bool:
    """Whether a component is the parameter-overlay adapter."""
    return isinstance(component.implementation, AdapterImplementation) and component.implementation.abi == OVERLAY


def overlay_of(component: Component) -> tuple[str, str] | None:
    """The (component, initializer) that an overlay applies, None when its contract does not say."""
    parameters = component.contract.parameters if component.contract is not None else {}
    named = parameters.get("component"), parameters.get("parameter")
    return (named[0], named[1]) if isinstance(named[0], str) and isinstance(named[1], str) else None


def _unapplied(package: Package, seams: set[int], report: Report) -> None:
    adapters = package.metadata.adapters
    if adapters is None:
        return
    bound = {each.target for artifact in adapters.artifacts.values() for each in artifact.bindings}
    run = {step.component for _, step in invokes(package.workflow)}
    applied = {overlay_of(each) for each in overlays(package).values()}
    for at, target in enumerate(adapters.target_manifest.targets):
        overlaid = (target.component, target.initializer) in applied
        if target.id in bound and target.component in run and at not in seams and not overlaid:
            what = f"nothing applies adapters to target '{target.id}': the graph of component '{target.component}' has "
            what += "no inputs for their factors, and no step overlays it"
            help = "export the graph with graph_inputs for the target, or add a parameter-overlay step"
            report.error("adapter-not-applied", (*TARGETS, at), what, help)


def _overlay_faults(package: Package, name: str, component: Component) -> Iterator[tuple[Path, str, str]]:
    """(place, what, help) of what keeps an overlay from applying its targets."""
    path, wanted = (*COMPONENTS, name), overlay_of(component)
    adapters = package.metadata.adapters
    targets = [
        each
        for each in (adapters.target_manifest.targets if adapters is not None else ())
        if (each.component, each.initializer) == wanted
    ]
    if component.contract is None or not targets:
        help = "give it a contract with action apply, component and parameter of a target of `adapters`"
        yield path, f"component '{name}' does not say which target of the adapter service it applies", help
        return
    if len({(each.input_features, each.output_features) for each in targets}) > 1:
        yield path, f"the targets that component '{name}' applies have different features", "make them agree"
        return
    for role, side in (("input", component.ports.inputs), ("output", component.ports.outputs)):
        port = component.contract.bindings.get(role, "")
        if set(side) - {port}:
            what = f"an overlay has one {role}, component '{name}' declares {', '.join(sorted(side))}"
            yield (*path, "ports", f"{role}s"), what, f"keep '{port}'"
        elif port in side:
            yield from _contract_faults(side[port], role, targets[0], (*path, "ports", f"{role}s", port))


def _contract_faults(
    contract: TensorContract, role: str, target: AdapterTarget, path: Path
) -> Iterator[tuple[Path, str, str]]:
    features = target.input_features if role == "input" else target.output_features
    if canonical(contract.dtype) != "float32" or contract.rank != 2:
        what = f"the {role} of an overlay is float32 [rows, features], not {contract.dtype} of rank {contract.rank}"
        yield path, what, "declare it so, and cast before and after it"
        return
    extent = contract.shape[1] if contract.shape is not None else None
    if isinstance(extent, int) and extent != features:
        what = f"the {role} has {extent} features, target '{target.id}' {features}"
        yield path, what, "make port and target agree"
