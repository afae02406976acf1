"""Let a linked reader select positions before the projection to logits, not after it: a prompt projects what is read.

Before:  component model_linked = model + last
After:   component model_linked = model + last, edited
           positions selected after 'final_norm', before 'logits'

Needs all of: the projected value leaves the linked graph nowhere; one selection on the axis of positions and the extent
of that axis are all that is read of it; all of it comes from one hidden state, and every operator between treats each
position for itself (read/projection.py). The projection then sees one position a row, as it does in later steps. Its
sums may round differently than among many positions, as they do there (docs/decisions/0007).
"""

from dataclasses import replace

from onnx import ModelProto, NodeProto, ValueInfoProto

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.edits import Hoist, Linked
from genai_compiler.plan.ir import Plan
from genai_compiler.read.extents import Extents, output_extents
from genai_compiler.read.layouts import POSITIONS
from genai_compiler.read.nodes import constant_ints, input_at, integer, nested_graphs, operator_of
from genai_compiler.read.package import Graph
from genai_compiler.read.projection import logits_projection

AXES_OPSET = 13
"""Of Unsqueeze and Squeeze that take axes as an input."""
RANK = 3
"""Of what is selected from: [rows, positions, features]."""


def hoist_selection(plan: Plan, profile: Profile) -> Plan:
    """The plan whose linked graphs select as early as they can."""
    for component in plan.components:
        linked = component.edit
        found = _found(linked, profile) if isinstance(linked, Linked) else None
        if found is not None and isinstance(linked, Linked):
            hoist, label = found
            edited = replace(component, edit=replace(linked, hoist=hoist))
            note = f"hoist_selection: {component.name} projects selected positions only, after '{label}'"
            plan = replace(
                plan,
                components=tuple(edited if each is component else each for each in plan.components),
                decisions=(*plan.decisions, note),
            )
    return plan


def _found(linked: Linked, profile: Profile) -> tuple[Hoist, str] | None:
    """(what to hoist, the name of the node behind which it goes)."""
    head, *readers = linked.members
    model = profile.graphs[head.component].model
    for port, value in head.outputs:
        uses = [(each, name) for each in readers for name, taken in each.inputs if taken == value]
        if value in linked.outputs or len(uses) != 1 or _opset(model) < AXES_OPSET:
            continue
        reader, taken = uses[0]
        drops = _drops(profile.graphs[reader.component], taken)
        place = logits_projection(model, port, {name for name, _ in head.inputs}) if drops is not None else ""
        if drops is not None and not isinstance(place, str):
            return Hoist(port, place.hidden, place.behind, drops), place.label
    return None


def _opset(model: ModelProto) -> int:
    return next((int(each.version) for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)


def _drops(graph: Graph, port: str) -> bool | None:
    """Whether the one selection that a reader makes of a port drops the axis of positions; None when it reads more."""
    model = graph.model.graph
    inner = (node for each in nested_graphs(model) if each is not model for node in each.node)
    if any(port in node.input for node in inner) or any(each.name == port for each in model.output):
        return None
    users = [node for node in model.node if port in node.input and not _asks_extents(node)]
    if len(users) != 1 or list(users[0].input).count(port) != 1 or input_at(users[0], 0) != port:
        return None
    return _selection(users[0], graph)


def _asks_extents(node: NodeProto) -> bool:
    """Whether a node asks for extents of rows and positions alone."""
    end = integer(node, "end", RANK)
    return operator_of(node) == ("", "Shape") and 0 <= integer(node, "start", 0) < end <= POSITIONS + 1


def _selection(node: NodeProto, graph: Graph) -> bool | None:
    match operator_of(node):
        case ("", "Slice"):
            return False if constant_ints(graph.model.graph, input_at(node, 3)) == [POSITIONS] else None
        case ("", "Gather") if integer(node, "axis", 0) % RANK == POSITIONS:
            rank = _extents(input_at(node, 1), graph)
            return None if rank is None or len(rank) > 1 else not rank
        case ("", "GatherND") if integer(node, "batch_dims", 0) == POSITIONS:
            extents = _extents(input_at(node, 1), graph)
            return None if extents is None or len(extents) not in (2, 3) or extents[-1] != 1 else len(extents) == 2
        case _:
            return None


def _extents(value: str, graph: Graph) -> tuple[int | str | None, ...] | None:
    """The extents of a value inside a reader, None where not even its rank is certain."""
    held = next((tuple(each.dims) for each in graph.model.graph.initializer if each.name == value), None)
    if held is not None and not any(each.name == value for each in graph.signature.defaulted):
        return held
    asked = ModelProto()
    asked.CopyFrom(graph.model)
    asked.graph.output.append(ValueInfoProto(name=value))
    ports: dict[str, Extents] = {
        each.name: tuple(dim if isinstance(dim, int) else f"{each.name} {axis}" for axis, dim in enumerate(each.shape))
        for each in graph.signature.inputs
        if each.shape is not None
    }
    return output_extents(asked, ports).get(value)
