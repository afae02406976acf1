"""Ports and types that only the graphs of a package know (standard, 12.13)."""

from collections.abc import Mapping

from genai_compiler.check.components import check_components
from genai_compiler.check.contracts_io import DTYPES
from genai_compiler.check.fault import COMPONENTS, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.graph_ports import lora_inputs, ports_of, with_graph_ports
from genai_compiler.check.group_ports import check_group_ports
from genai_compiler.check.groups import check_groups
from genai_compiler.check.serving import check_serving
from genai_compiler.check.speculative import check_speculative
from genai_compiler.check.steps import check_steps
from genai_compiler.check.walk import Walk, infers_ports, invokes
from genai_compiler.plan.dtypes import stored
from genai_compiler.read.document import TensorContract, Workflow
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.signature import UNDEFINED, Port
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V311": Rule("unreadable-graph", "The graph of an ONNX component can be read."),
    "V312": Rule("port-not-in-graph", "A declared port is one of the graph, in the same direction."),
    "V313": Rule("contract-contradicts-graph", "A declared dtype is the graph's, and a workflow tensor can have it."),
    "V314": Rule("contract-contradicts-graph", "A declared rank is the graph's."),
    "V315": Rule("contract-contradicts-graph", "A declared fixed extent is the graph's."),
    "V316": Rule("unknown-port", "An invoke binds ports that the graph has."),
    "V317": Rule("missing-port", "An invoke feeds every graph input that has no initializer."),
}

PORT_RULES = frozenset(["V151", "V194", "V206", "V207", "V278", "V279", "V281", "V283", "V287", "V297", "V298"])
"""Rules that a document can't break alone while a component's ports are only in its graph."""
TYPE_RULES = frozenset(
    f"V{number}" for number in (213, 214, 237, 238, 243, 245, 247, 249, 251, 253, 259, 262, 263, 266, 267, 269)
)
"""Rules about contracts that only the graphs may know. Layouts are not among them: a graph says nothing of rows."""


def check_graph_contracts(package: Package) -> Faults:
    """Declared ports against the graphs; invokes and aliases against ports that only graphs know."""
    for name, component in package.workflow.components.items():
        graph = package.graphs.get(name)
        if graph is not None and not infers_ports(component):
            yield from _declared(name, component.ports.inputs, "inputs", graph)
            yield from _declared(name, component.ports.outputs, "outputs", graph)
    yield from _fed(package)
    yield from _inferred(package)


def _declared(name: str, ports: Mapping[str, TensorContract], side: str, graph: Graph) -> Faults:
    """Declared ports against the graph's own."""
    found = ports_of(graph, side)
    if side == "inputs":
        found = {**found, **{each.name: each for each in graph.signature.defaulted}}
    for port, contract in ports.items():
        path = (*COMPONENTS, name, "ports", side, port)
        if port in found:
            yield from _agrees(name, contract, found[port], graph.artifact, path)
        else:
            what = f"graph {graph.artifact} of component '{name}' has no {side[:-1]} '{port}'"
            yield Fault("V312", path, what, did_you_mean(port, found))


def _agrees(name: str, contract: TensorContract, port: Port, artifact: str, path: Path) -> Faults:
    head, help = f"port '{port.name}' of component '{name}' contradicts {artifact}:", "write what the graph has"
    said = stored(contract.dtype)
    if port.dtype not in (UNDEFINED, said):
        yield Fault("V313", (*path, "dtype"), f"{head} declared {contract.dtype}, the graph has {port.dtype}", help)
    if port.shape is None:
        return
    if len(port.shape) != contract.rank:
        what = f"{head} declared rank {contract.rank}, the graph has rank {len(port.shape)}"
        yield Fault("V314", (*path, "rank"), what, help)
        return
    for axis, (wanted, found) in enumerate(zip(contract.shape or (), port.shape, strict=False)):
        if isinstance(wanted, int) and isinstance(found, int) and wanted != found:
            what = f"{head} declared extent {wanted} on axis {axis}, the graph has {found}"
            yield Fault("V315", (*path, "shape", axis), what, help)


def _fed(package: Package) -> Faults:
    """Graph inputs that an invoke leaves without a value."""
    for path, step in invokes(package.workflow):
        graph = package.graphs.get(step.component)
        if graph is None:
            continue
        needed = (*ports_of(graph, "inputs"),)
        elsewhere = lora_inputs(package.metadata, step.component)
        left = [port for port in needed if port not in step.inputs and port not in elsewhere]
        if left:
            names = ", ".join(f"'{each}'" for each in left)
            what = f"nothing feeds {names} of {graph.artifact}, and the graph has no default"
            yield Fault("V317", (*path, "inputs"), what, "bind every graph input that no initializer stands in for")


def _inferred(package: Package) -> Faults:
    """What the document's own rules say once every port is known."""
    workflow = with_graph_ports(package)
    if workflow.components == package.workflow.components:
        return
    inferred = {name for name, each in package.workflow.components.items() if infers_ports(each)}
    walk = Walk(workflow)
    end = check_steps(walk)
    for fault in (*walk.faults, *check_serving(workflow, end)):
        if fault.rule in TYPE_RULES:
            yield fault
        elif fault.rule in ("V231", "V233"):
            yield fault._replace(rule="V316", what=fault.what.replace("declares no", "has a graph without the"))
    ports = (*check_components(workflow), *check_groups(workflow), *check_group_ports(workflow))
    if package.metadata.speculative is not None:
        ports = (*ports, *check_speculative(package.metadata.speculative, workflow))
    yield from (each for each in ports if each.rule in PORT_RULES)
    yield from _representable(workflow, inferred)


def _representable(workflow: Workflow, inferred: set[str]) -> Faults:
    for path, step in invokes(workflow):
        if step.component not in inferred:
            continue
        ports = workflow.components[step.component].ports
        for side, bound, declared in (("inputs", step.inputs, ports.inputs), ("outputs", step.outputs, ports.outputs)):
            for port in bound:
                contract = declared.get(port)
                if contract is not None and contract.dtype not in (*DTYPES, UNDEFINED):
                    what = (
                        f"port '{port}' of '{step.component}' has dtype {contract.dtype}, which no value here can have"
                    )
                    yield Fault("V313", (*path, side, port), what, "export the graph with another dtype")
