"""What one invoke must still check while it runs: extents that its ports share or fix and that nothing has proved."""

from dataclasses import replace

from genai_compiler.plan.ir import Check, Component, ExtentCheck, SymbolCheck, Type
from genai_compiler.plan.scope import Scope
from genai_compiler.read.contracts import TensorContract
from genai_compiler.read.package import Package

Term = int | tuple[str, int] | tuple[str, str]


def input_checks(
    component: Component, inputs: tuple[tuple[str, str], ...], scope: Scope, package: Package
) -> tuple[Check, ...]:
    """Checks before the run: symbols unify across input ports (standard, 3.2); numbers that only the contract gives."""
    ports = dict(component.inputs)
    request = frozenset(package.workflow.inputs)
    declared = package.workflow.components[component.name].ports.inputs
    held = [
        (value, _as_declared(ports[port], declared.get(port)), scope.type(value), value in request)
        for port, value in inputs
        if port in ports
    ]
    enforced = _graph_numbers(component, package, "inputs")
    checks: list[Check] = []
    for port, value in inputs:
        found = scope.type(value)
        for axis, dim in enumerate(ports[port].dims if port in ports else ()):
            known = axis < len(found.dims) and found.dims[axis] == dim
            if isinstance(dim, int) and not known and (port, axis) not in enforced:
                checks.append(ExtentCheck(value, axis, dim))
    return (*_symbol_checks(component, held, package), *checks)


def output_checks(component: Component, outputs: tuple[tuple[str, str], ...], package: Package) -> tuple[Check, ...]:
    """Checks after the run: symbols unify across output ports; numbers that the graph leaves symbolic."""
    ports = dict(component.outputs)
    enforced = _graph_numbers(component, package, "outputs")
    declared = package.workflow.components[component.name].ports.outputs
    held = [
        (value, _as_declared(ports[port], declared.get(port)), Type("", 0), False)
        for port, value in outputs
        if port in ports
    ]
    checks: list[Check] = [
        ExtentCheck(value, axis, dim)
        for port, value in outputs
        for axis, dim in enumerate(ports[port].dims if port in ports else ())
        if isinstance(dim, int) and (port, axis) not in enforced
    ]
    return (*_symbol_checks(component, held, package), *checks)


def _as_declared(type: Type, contract: TensorContract | None) -> Type:
    """The port's type with the symbols of its contract, which hold although the graph fixes their extents."""
    dims = contract.shape if contract is not None else None
    return type if dims is None or len(dims) != type.rank else replace(type, shape=tuple(dims))


def _symbol_checks(component: Component, held: list[tuple[str, Type, Type, bool]], package: Package) -> list[Check]:
    """One check a symbol that several axes carry, or one that stands for several entries each (standard, 3.2).

    Symbols inferred from a graph are the graph's own affair.
    """
    declared = package.workflow.components[component.name].ports
    if not declared.inputs and not declared.outputs:
        return []
    groups: dict[str, list[tuple[str, int, int, Term]]] = {}
    ragged: set[str] = set()  # symbols whose extents may not be whole numbers of units
    for value, wanted, found, from_request in held:
        for axis, dim in enumerate(wanted.dims):
            if isinstance(dim, str):
                factor = wanted.row_factor if axis == wanted.row_axis else 1
                term = _term(value, axis, found, from_request)
                groups.setdefault(dim, []).append((value, axis, factor, term))
                bound = from_request and found.row_axis == axis and found.row_factor % factor == 0
                if not bound and (term % factor if isinstance(term, int) else factor > 1):
                    ragged.add(dim)
    return [
        SymbolCheck(symbol, tuple(dict.fromkeys((value, axis, factor) for value, axis, factor, _ in places)))
        for symbol, places in sorted(groups.items())
        if symbol in ragged or len({(factor, term) for _, _, factor, term in places}) > 1
    ]


def _term(value: str, axis: int, found: Type, from_request: bool) -> Term:
    """What is known of an extent: a number, a symbol that binding has unified, or only that it is this value's own."""
    dim = found.dims[axis] if axis < len(found.dims) else None
    if isinstance(dim, int):
        return dim
    return ("symbol", dim) if from_request and isinstance(dim, str) else (value, axis)


def _graph_numbers(component: Component, package: Package, side: str) -> set[tuple[str, int]]:
    """(port, axis) whose number stands in the graph itself: ONNX Runtime holds inputs to it."""
    graph = package.graphs.get(component.name)
    ports = () if graph is None else graph.signature.inputs if side == "inputs" else graph.signature.outputs
    return {(p.name, axis) for p in ports for axis, dim in enumerate(p.shape or ()) if isinstance(dim, int)}
