"""Which session holds the weights of a package, and why that one: a line for each that holds much.

Taken from the plan as it is at the end and from the graphs that its sessions open, so that it stays true whatever a
pass links or takes apart.
"""

from collections.abc import Collection, Iterator, Mapping

from onnx import ModelProto

from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Component, Decode, Fused, Hold, Invoke, Plan
from genai_compiler.plan.uses import walk
from genai_compiler.problem import counted
from genai_compiler.read.weights import held_bytes

NOTEWORTHY = 1_000_000
"""Bytes from which a session's weights are spoken of."""


def held_weights(plan: Plan, models: Mapping[str, ModelProto], sessions: Collection[str]) -> Iterator[str]:
    """`decoder: 106195968 bytes, one session for prompt and steps`, the largest first.

    models: the graphs that components' sessions open; sessions: those that are opened.
    """
    sizes = {name: held_bytes(models[name]) for name in sorted(set(sessions) & set(models))}
    known = {each.name: each for each in plan.components}
    for name, size in sorted(sizes.items(), key=lambda each: -each[1]):
        if size >= NOTEWORTHY:
            why = _why(known[name], plan) if name in known else "one of two sessions of one graph"
            yield f"{name}: {size} bytes, {why}"


def _why(component: Component, plan: Plan) -> str:
    """What makes one session of all that reads these weights."""
    why = _used(component.name, plan)
    if isinstance(component.edit, Linked):
        why += f", linked of {', '.join(dict.fromkeys(each.component for each in component.edit.members))}"
    return why


def _used(name: str, plan: Plan) -> str:
    facts = plan.decoder
    front = facts.front.component if facts is not None and facts.front is not None else ""
    if facts is not None and facts.prompt_component and name in (facts.component, facts.prompt_component):
        return "for the prompt alone" if name == facts.prompt_component else "for the steps alone"
    if facts is not None and name in (facts.component, front):
        return "one session for prompt and steps"
    runs = {op.origin for op in walk(plan.body) if _runs(op, name)}
    return f"one session for {counted(len(runs), 'step')} of the workflow" if len(runs) > 1 else "one session"


def _runs(op: object, name: str) -> bool:
    match op:
        case Fused() | Hold():
            return op.run.component == name
        case Invoke() | Decode():
            return op.component == name
        case _:
            return False
