"""Components that an application may replace, and what could take their place (standard, 3.10 and 12.13)."""

from collections.abc import Iterator

from genai_compiler.check.fault import COMPONENTS, Fault, Faults, Path, Rule, Rules
from genai_compiler.check.graph_ports import ports_of
from genai_compiler.check.walk import invokes
from genai_compiler.plan.dtypes import canonical
from genai_compiler.read.document import ComponentContract, InvokeStep
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.signature import Port

RULES: Rules = {
    "V318": Rule("replacement-binding", "Every invoked port of a replaceable component is bound by its contract."),
    "V319": Rule("replacement-role", "A component of the same contract has exactly one port for each bound role."),
    "V320": Rule("replacement-port", "Ports of one role agree in direction, dtype, rank and fixed extents."),
    "V321": Rule("replacement-unfed", "A replacement is fed by what the replaceable component is fed with."),
}


def check_replacement(package: Package) -> Faults:
    """Every replaceable component against every other of its contract."""
    for name, component in package.workflow.components.items():
        contract, graph = component.contract, package.graphs.get(name)
        if not component.application_overridable or contract is None or graph is None:
            continue
        uses = [(path, step) for path, step in invokes(package.workflow) if step.component == name]
        faults = [fault for path, step in uses for fault in _covered(name, contract, step, path)]
        yield from faults
        for other, candidate in _same_contract(package, name, contract):
            found = list(_ports(name, contract, graph, other, candidate, package.graphs[other]))
            yield from found
            if not found and not faults:
                yield from _fed(contract, uses, other, candidate, package.graphs[other])


def _covered(name: str, contract: ComponentContract, step: InvokeStep, path: Path) -> Faults:
    bound = set(contract.bindings.values())
    for side, ports in (("inputs", step.inputs), ("outputs", step.outputs)):
        for port in ports:
            if port not in bound:
                what = f"'{name}' may be replaced, and its contract gives port '{port}' no role"
                yield Fault("V318", (*path, side, port), what, f"bind a role to '{port}' in the contract")


def _same_contract(package: Package, name: str, contract: ComponentContract) -> Iterator[tuple[str, ComponentContract]]:
    for other, component in package.workflow.components.items():
        theirs = component.contract
        if other == name or theirs is None or other not in package.graphs:
            continue
        if (theirs.id, theirs.version) == (contract.id, contract.version):
            yield other, theirs


def _ports(
    name: str, contract: ComponentContract, graph: Graph, other: str, theirs: ComponentContract, candidate: Graph
) -> Faults:
    """The candidate's port of each role, against the replaceable component's."""
    path = (*COMPONENTS, other, "contract", "bindings")
    for role, port in contract.bindings.items():
        mine = _sides(graph, port)
        if len(mine) != 1:
            continue
        if role not in theirs.bindings:
            what = f"'{other}' has the contract of the replaceable '{name}' and no port for role '{role}'"
            yield Fault("V319", path, what, f"bind '{role}'")
            continue
        found = _sides(candidate, theirs.bindings[role])
        if len(found) != 1:
            what = f"'{theirs.bindings[role]}' is not exactly one input or output of {candidate.artifact}"
            yield Fault("V319", (*path, role), what, "name one port of the graph")
        elif difference := _difference(mine[0], found[0]):
            what = f"role '{role}' differs between '{name}' and '{other}', which could replace it: {difference}"
            yield Fault("V320", (*path, role), what, "make the graphs agree, or give one another contract version")


def _sides(graph: Graph, port: str) -> list[tuple[str, Port]]:
    return [(side, ports[port]) for side in ("inputs", "outputs") if port in (ports := ports_of(graph, side))]


def _difference(mine: tuple[str, Port], theirs: tuple[str, Port]) -> str:
    (side, port), (other_side, other) = mine, theirs
    if side != other_side:
        return f"an {side[:-1]} here, an {other_side[:-1]} there"
    if canonical(port.dtype) != canonical(other.dtype):
        return f"{port.dtype} here, {other.dtype} there"
    if port.shape is None or other.shape is None:
        return ""
    if len(port.shape) != len(other.shape):
        return f"rank {len(port.shape)} here, rank {len(other.shape)} there"
    for axis, (a, b) in enumerate(zip(port.shape, other.shape, strict=True)):
        if isinstance(a, int) and isinstance(b, int) and a != b:
            return f"extent {a} on axis {axis} here, {b} there"
    return ""


def _fed(
    contract: ComponentContract,
    uses: list[tuple[Path, InvokeStep]],
    other: str,
    theirs: ComponentContract,
    candidate: Graph,
) -> Faults:
    """Inputs of the candidate that nothing would feed in the place of the replaceable component."""
    roles = {port: role for role, port in contract.bindings.items()}
    for _, step in uses:
        given = {theirs.bindings[roles[port]] for port in step.inputs}
        left = [port for port in ports_of(candidate, "inputs") if port not in given]
        if left:
            names = ", ".join(f"'{each}'" for each in left)
            what = f"in the place of '{step.component}' nothing would feed {names} of '{other}'"
            yield Fault("V321", (*COMPONENTS, other), what, "give it another contract version, or a default")
            return
