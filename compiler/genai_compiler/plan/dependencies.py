"""What a cached result of a workflow depends on: facts, not keys (standard, 1.11).

From every emitted value and state write backwards, through producers and branch results, to components and inputs.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from genai_compiler.check.walk import walk
from genai_compiler.read.document import (
    AdapterImplementation,
    BranchStep,
    Component,
    EmitStep,
    InvokeStep,
    LoopStep,
    Metadata,
    OnnxImplementation,
    Workflow,
)


@dataclass
class _Flow:
    """Who makes each value, which values it may be, what each component reads, and what leaves the workflow."""

    producers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    sources: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    reads: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    roots: set[str] = field(default_factory=set[str])


def cache_dependencies(metadata: Metadata) -> dict[str, list[str]]:
    """Sorted facts by kind: components, adapters, inputs, external_state, profiles."""
    components, inputs, external = set[str](), set[str](), set[str]()
    if metadata.pipeline is not None:
        workflow = metadata.pipeline.workflow
        names, live = _live(_flow(workflow))
        components = {_identity(name, workflow.components[name]) for name in names}
        external = {each for name in names for each in workflow.components[name].cache_affects_state}
        inputs = _inputs(metadata, workflow, live)
    artifacts = metadata.adapters.artifacts if metadata.adapters is not None else {}
    return {
        "components": sorted(components),
        "adapters": sorted(f"{alias}@{each.identity}:{each.version}" for alias, each in artifacts.items()),
        "inputs": sorted(inputs),
        "external_state": sorted(external),
        "profiles": sorted(
            f"{name}@{each.version}" for name, each in metadata.profiles.items() if each.generation_affecting
        ),
    }


def _flow(workflow: Workflow) -> _Flow:
    flow = _Flow()
    for _, step in walk(workflow.steps):
        match step:
            case InvokeStep():
                flow.reads[step.component].update(step.inputs.values())
                for value in step.outputs.values():
                    flow.producers[value].add(step.component)
            case LoopStep():
                for carry in step.carried:
                    flow.roots |= {carry.next, carry.initial or workflow.state[carry.cell].initializer}
            case BranchStep():
                for name, output in step.outputs.items():
                    flow.sources[name].update(output.cases.values(), [output.default] if output.default else [])
            case EmitStep():
                flow.roots.add(step.value)
            case _:
                pass
    return flow


def _live(flow: _Flow) -> tuple[set[str], set[str]]:
    """(components, values) that an emitted value or a state write depends on."""
    components, live, pending = set[str](), set(flow.roots), sorted(flow.roots)

    def reach(values: Iterable[str]) -> None:
        fresh = set(values) - live
        live.update(fresh)
        pending.extend(fresh)

    while pending:
        value = pending.pop()
        reach(flow.sources.get(value, ()))
        for component in flow.producers.get(value, set()) - components:
            components.add(component)
            reach(flow.reads[component])
    return components, live


def _inputs(metadata: Metadata, workflow: Workflow, live: set[str]) -> set[str]:
    """Live results that someone else may have made: externally suppliable inputs, outputs of the image program."""
    started = {cell.initializer for name, cell in workflow.state.items() if name in live}
    found = {name for name, each in workflow.inputs.items() if each.externally_suppliable and name in live | started}
    image = metadata.preprocessing.image if metadata.preprocessing is not None else None
    return found | {each.name for each in (image.outputs if image is not None else ()) if each.name in live}


def _identity(name: str, component: Component) -> str:
    match component.implementation:
        case OnnxImplementation(artifact=artifact):
            return f"{name}=onnx:{artifact}"
        case AdapterImplementation(abi=abi, version=version, artifact=artifact):
            return f"{name}=adapter:{abi}@{version}" + (f":{artifact}" if artifact else "")
        case _:
            return f"{name}=binding"
