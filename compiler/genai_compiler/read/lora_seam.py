"""Graph inputs that take LoRA factors: which axis is which, read from the graph itself (standard, 6.1 and 6.3).

An input of a graph that an initializer stands in for may be left unbound; only such an input can take factors, since a
request without adapters leaves it alone. Its shape says how it wants them: `[rank, features]` or `[features, rank]`,
with an axis before these when every row has factors of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from genai_compiler.plan.dtypes import FLOATS, canonical
from genai_compiler.read.document import AdapterTarget
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.signature import Port, port_of

Extent = int | str | None


class SeamFault(Exception):
    """A target's graph inputs can't take its factors. field: of `graph_inputs`."""

    def __init__(self, field: str, what: str, help: str = "") -> None:
        super().__init__(what)
        self.field, self.what, self.help = field, what, help


@dataclass(frozen=True)
class _Input:
    """A graph input with a default. known: what declaration or default say of its extents."""

    port: Port
    declared: tuple[Extent, ...]
    known: tuple[Extent, ...]


def seams_of(package: Package) -> Iterator[tuple[int, dict[str, Any] | SeamFault]]:
    """(number of the target, its seam as the manifest has it, or why its graph inputs can't be used).

    Targets whose graph has neither of their inputs are left out: nothing but an overlay can apply them.
    """
    adapters, taken = package.metadata.adapters, dict[tuple[str, str], str]()
    for at, target in enumerate(adapters.target_manifest.targets if adapters is not None else ()):
        graph, wanted = package.graphs.get(target.component), target.graph_inputs
        if graph is None or wanted is None:
            continue
        if not {str(each.name) for each in graph.model.graph.input} & {wanted.a, wanted.b}:
            continue
        try:
            for field, name in (("a", wanted.a), ("b", wanted.b), ("scale", wanted.scale)):
                owner = taken.setdefault((target.component, name), target.id) if name is not None else target.id
                if owner != target.id:
                    raise SeamFault(field, f"'{name}' already takes factors of target '{owner}'")
            yield at, _seam(target, graph)
        except SeamFault as fault:
            yield at, fault


def _seam(target: AdapterTarget, graph: Graph) -> dict[str, Any]:
    wanted = target.graph_inputs
    assert wanted is not None
    width = target.output_slice.width if target.output_slice is not None else target.output_features
    inputs = _inputs(graph)
    a = _factor("a", wanted.a, target.input_features, target, inputs, graph)
    b = _factor("b", wanted.b, width, target, inputs, graph)
    if a["rows"] != b["rows"]:
        raise SeamFault("b", f"one of '{wanted.a}' and '{wanted.b}' has factors for each row, the other for all rows")
    ranks = {each["rank"] for each in (a, b)} - {0}
    if len(ranks) > 1:
        raise SeamFault("b", f"'{wanted.a}' takes rank {a['rank']}, '{wanted.b}' rank {b['rank']}")
    a["rank"] = b["rank"] = next(iter(ranks), 0)
    scale = _scale(wanted.scale, target, inputs, graph) if wanted.scale is not None else None
    symbols = sorted({each.pop("symbol") for each in (a, b)} - {""})
    return {"a": a, "b": b, "scale": scale, "symbols": symbols}


def _inputs(graph: Graph) -> Mapping[str, _Input]:
    held = {each.name: tuple(int(dim) for dim in each.dims) for each in graph.model.graph.initializer}
    found: dict[str, _Input] = {}
    for each in graph.model.graph.input:
        if each.name in held:
            port, default = port_of(each), held[each.name]
            declared = port.shape if port.shape is not None else (None,) * len(default)
            same = len(declared) == len(default)
            known = tuple(
                mine if isinstance(mine, int) or not same else default[axis] for axis, mine in enumerate(declared)
            )
            found[port.name] = _Input(port, declared, known)
    return found


def _found(field: str, name: str, target: AdapterTarget, inputs: Mapping[str, _Input], graph: Graph) -> _Input:
    """The graph input of a name, with a default and of the target's type."""
    if name not in inputs:
        known = {str(each.name) for each in graph.model.graph.input}
        why = "has no default, so that no request could go without it" if name in known else "is no input of it"
        help = "give the graph an input with an initializer of the same name"
        raise SeamFault(field, f"'{name}' can't take factors of {graph.artifact}: it {why}", help)
    found = inputs[name]
    wanted = canonical(target.activation_dtype)
    if found.port.dtype != wanted or wanted not in FLOATS:
        raise SeamFault(field, f"'{name}' of {graph.artifact} is {found.port.dtype}, the target's activations {wanted}")
    return found


def _factor(
    field: str, name: str, features: int, target: AdapterTarget, inputs: Mapping[str, _Input], graph: Graph
) -> dict[str, Any]:
    found = _found(field, name, target, inputs, graph)
    shape = f"'{name}' of {graph.artifact} has the shape {_shown(found.declared)}"
    if len(found.declared) not in (2, 3):
        raise SeamFault(field, f"{shape}; factors have two axes, or three with one for rows")
    rows = len(found.declared) == 3
    if rows and not _is_rows(found.declared[0], graph):
        raise SeamFault(field, f"{shape}; its first axis is not the one that holds rows in the graph's other inputs")
    declared, known = found.declared[-2:], found.known[-2:]
    fits = [axis for axis in (0, 1) if known[axis] == features]
    if len(fits) == 2:
        fits = [axis for axis in fits if isinstance(declared[axis], int)]
    if len(fits) != 1:
        why = "both axes could be the features" if len(fits) == 2 else f"none of its axes has {features} features"
        help = "give the features a number and the rank a symbol"
        raise SeamFault(field, f"{shape}: {why}", help)
    rank = declared[1 - fits[0]]
    if rank == 0:
        raise SeamFault(field, f"{shape}, which holds no factors at all", "give the rank a symbol")
    fixed = rank if isinstance(rank, int) else 0
    symbol = rank if isinstance(rank, str) else ""
    facts = {"name": name, "dtype": found.port.dtype, "features": fits[0], "rows": rows, "rank": fixed}
    return {**facts, "symbol": symbol}


def _scale(name: str, target: AdapterTarget, inputs: Mapping[str, _Input], graph: Graph) -> dict[str, Any]:
    found = _found("scale", name, target, inputs, graph)
    for axis, extent in enumerate(found.declared):
        if not isinstance(extent, int) and not (axis == 0 and _is_rows(extent, graph)):
            what = f"'{name}' of {graph.artifact} has the shape {_shown(found.declared)}: axis {axis} has no extent"
            raise SeamFault("scale", what, "give it numbers, or the rows' symbol on its first axis")
    dims = [extent if isinstance(extent, int) else 0 for extent in found.declared]
    return {"name": name, "dtype": found.port.dtype, "dims": dims}


def _is_rows(extent: Extent, graph: Graph) -> bool:
    """Whether an extent is the symbol that other inputs have on their first axis."""
    firsts = {each.shape[0] for each in graph.signature.inputs if each.shape}
    return isinstance(extent, str) and extent in firsts


def _shown(shape: tuple[Extent, ...]) -> str:
    return f"[{', '.join('?' if each is None else str(each) for each in shape)}]"
