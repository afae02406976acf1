"""Gather columns of a weight where the graph gathers rows of it transposed, which would be a second copy in memory.

Before:  component decoder = model.onnx
           %embedded = Gather(Transpose(head), %ids)
After:   component decoder = model.onnx, edited
           edit: columns of head, not rows of head_turned
           %embedded = Transpose(Gather(head, %ids, axis=1))

Packages that tie the embedding of tokens to the projection to logits have one matrix for both. The projection reads it
as it is; of the transposition ONNX Runtime makes a constant when the session is opened. Columns are the same numbers,
so that results are the same to the last bit; what they cost are reads that lie apart, some microseconds a token, and
so only a large weight is worth it (docs/decisions/0040).
"""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.edits import Edited, GatherColumns
from genai_compiler.plan.ir import Component, Decode, Fused, Invoke, Op, Plan, SpeculativeBlock
from genai_compiler.plan.uses import walk
from genai_compiler.problem import sized
from genai_compiler.read.turned_weights import TurnedWeight, turned_weights

LEAST = 1 << 20
"""Bytes of a weight that is worth it."""


def gather_columns(plan: Plan, profile: Profile) -> Plan:
    """The plan whose graphs have such weights once."""
    runs = {name for op in walk(plan.body) for name in _runs(op)}
    if plan.decoder is not None:
        runs |= {plan.decoder.prompt_component, plan.decoder.front.component if plan.decoder.front is not None else ""}
    notes, components = list[str](), list[Component]()
    for each in plan.components:
        found = _found(each, profile) if each.name in runs else ()
        large = tuple(weight for weight in found if weight.bytes >= LEAST)
        notes += (_note(each.name, weight) for weight in found)
        components.append(replace(each, edit=_edit(each, large)) if large else each)
    if not notes:
        return plan
    return replace(plan, components=tuple(components), decisions=(*plan.decisions, *notes))


def _runs(op: Op) -> Iterator[str]:
    """Components whose sessions an op runs."""
    match op:
        case Invoke() | Decode():
            yield op.component
        case Fused():
            yield from (each.component for each in (op.run, *op.members))
        case SpeculativeBlock():
            yield op.decode.component
        case _:
            pass


def _found(component: Component, profile: Profile) -> tuple[TurnedWeight, ...]:
    graph = profile.graphs.get(component.name)
    if graph is None or graph.absent or not isinstance(component.edit, Edited | None):
        return ()
    return turned_weights(graph.model, {port for port, _ in component.inputs})


def _edit(component: Component, found: tuple[TurnedWeight, ...]) -> Edited:
    parts = component.edit.parts if isinstance(component.edit, Edited) else ()
    return Edited((*parts, *map(GatherColumns, found)))


def _note(name: str, found: TurnedWeight) -> str:
    if found.bytes < LEAST:
        return f"gather_columns: {name} keeps '{found.weight}' turned, too: {found.bytes} bytes more are little"
    spared = sized(found.bytes)
    return f"gather_columns: {name} gathers columns of '{found.weight}': no turned copy of {spared} in memory"
