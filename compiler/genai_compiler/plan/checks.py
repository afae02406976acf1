"""What one invoke must still check while it runs: extents that its ports share or fix and that nothing has proved."""

from dataclasses import replace

from genai_compiler.plan.ir import Check, Component, ExtentCheck, FormCheck, SymbolCheck, Type
from genai_compiler.plan.scope import Scope
from genai_compiler.read.contracts import TensorContract
from genai_compiler.read.package import Package
from genai_compiler.read.signature import UNDEFINED, Port

Term = int | tuple[str, int] | tuple[str, str]


def input_checks(
    component: Component, inputs: tuple[tuple[str, str], ...], scope: Scope, package: Package
) -> tuple[Check, ...]:
    """Checks before the run: forms that nothing says; symbols across ports (standard, 3.2); a contract's numbers."""
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
    graph = package.graphs.get(component.name)
    own = (*graph.signature.inputs, *graph.signature.defaulted) if graph is not None else ()
    forms = _form_checks(
        [(port, value, ports[port], scope.type(value)) for port, value in inputs if port in ports], own
    )
    return (*forms, *_symbol_checks(component, held, package), *checks)


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
    graph, made = package.graphs.get(component.name), Type(UNDEFINED, 0, (), ranked=False)
    own = graph.signature.outputs if graph is not None else ()  # an adapter's are held where it is called
    said = {each.name for each in own} & set(ports)
    forms = _form_checks([(port, value, ports[port], made) for port, value in outputs if port in said], own)
    return (*forms, *_symbol_checks(component, held, package), *checks)


def _form_checks(held: list[tuple[str, str, Type, Type]], stated: tuple[Port, ...]) -> list[FormCheck]:
    """Of each (port, value, wanted, found): what the contract promises and neither graph nor value says (3.3, V327)."""
    ports, checks = {each.name: each for each in stated}, list[FormCheck]()
    for port, value, wanted, found in held:
        own = ports.get(port, Port(port, UNDEFINED, None))
        open = own.dtype == found.dtype == UNDEFINED != wanted.dtype
        dtype = wanted.dtype if open else ""
        rank = wanted.rank if own.shape is None and not found.ranked and wanted.ranked else -1
        if dtype or rank >= 0:
            checks.append(FormCheck(value, dtype, rank))
    return checks


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
