"""Ports as graphs give them: contracts for components that declare none, and the workflow with those filled in."""

from collections.abc import Mapping

from genai_compiler.check.tensors import GraphContract
from genai_compiler.check.walk import infers_ports
from genai_compiler.read.document import Metadata, TensorContract, Workflow
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.signature import UNDEFINED, Port


def lora_inputs(metadata: Metadata, component: str) -> set[str]:
    """Graph inputs of a component that take LoRA factors: the adapter service feeds them."""
    targets = metadata.adapters.target_manifest.targets if metadata.adapters is not None else ()
    found = [each.graph_inputs for each in targets if each.component == component and each.graph_inputs is not None]
    return {name for each in found for name in (each.a, each.b, each.scale) if name is not None}


def with_graph_ports(package: Package) -> Workflow:
    """The workflow in which every component that declares no ports has those of its graph (standard, 2.4)."""
    workflow, components = package.workflow, dict(package.workflow.components)
    for name, component in components.items():
        graph = package.graphs.get(name)
        if graph is None or not infers_ports(component):
            continue
        optional = lora_inputs(package.metadata, name)
        inputs = {each.name: _contract(each, each.name in optional) for each in graph.signature.inputs}
        inputs |= {
            each.name: TensorContract(dtype=UNDEFINED, rank=0, optional=True) for each in graph.signature.defaulted
        }
        outputs = {each.name: _contract(each, True) for each in graph.signature.outputs}
        ports = component.ports.model_copy(update={"inputs": inputs, "outputs": outputs})
        components[name] = component.model_copy(update={"ports": ports})
    return workflow.model_copy(update={"components": components})


def _contract(port: Port, optional: bool) -> TensorContract:
    if port.shape is None or port.dtype == UNDEFINED:
        return TensorContract(dtype=UNDEFINED, rank=0, optional=optional)
    named = ("batch" if axis == 0 else f"axis_{axis}" for axis in range(len(port.shape)))
    shape = tuple(dim if isinstance(dim, int) else name for dim, name in zip(port.shape, named, strict=True))
    return GraphContract(dtype=port.dtype, rank=len(shape), shape=shape, optional=optional)


def ports_of(graph: Graph, side: str) -> Mapping[str, Port]:
    """The graph's inputs or outputs by name."""
    return {each.name: each for each in (graph.signature.inputs if side == "inputs" else graph.signature.outputs)}
