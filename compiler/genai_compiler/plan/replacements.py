"""Which components a request may put in another's place, and how their ports map (standard, 3.10)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from genai_compiler.plan.ir import Component, Replacement, Type
from genai_compiler.read.document import Component as Declared
from genai_compiler.read.document import OnnxImplementation


def with_replacements(components: tuple[Component, ...], declared: Mapping[str, Declared]) -> tuple[Component, ...]:
    """The components, each overridable one with what may legally stand in for it."""
    return tuple(
        replace(each, replacements=tuple(_legal(each, components, declared))) if each.overridable else each
        for each in components
    )


def _legal(
    target: Component, components: tuple[Component, ...], declared: Mapping[str, Declared]
) -> Iterator[Replacement]:
    mine = declared[target.name].contract
    for other in components:
        theirs = declared[other.name].contract
        if other.name != target.name and mine is not None and theirs is not None and _fits(target, other, declared):
            pairs = tuple((port, theirs.bindings[role]) for role, port in mine.bindings.items())
            yield Replacement(other.name, pairs)


def _fits(target: Component, other: Component, declared: Mapping[str, Declared]) -> bool:
    """Equal contract, roles and effects; every role's port has the same direction and the same type."""
    mine, theirs = declared[target.name], declared[other.name]
    if mine.contract is None or theirs.contract is None or not isinstance(theirs.implementation, OnnxImplementation):
        return False
    ours, its = mine.contract, theirs.contract
    if (ours.id, ours.version, set(ours.bindings)) != (its.id, its.version, set(its.bindings)):
        return False
    if set(mine.effects) != set(theirs.effects):
        return False
    return all(
        (port := _port(target, ours.bindings[role])) is not None and port == _port(other, its.bindings[role])
        for role in ours.bindings
    )


def _port(component: Component, port: str) -> tuple[str, Type] | None:
    """(direction, type) of a port."""
    inputs, outputs = dict(component.inputs), dict(component.outputs)
    if port in inputs:
        return "in", inputs[port]
    return ("out", outputs[port]) if port in outputs else None
