"""Which components a request may put in another's place, and how their ports map (standard, 3.10)."""

from collections.abc import Iterator, Mapping

from genai_compiler.plan.ir import Replacement
from genai_compiler.plan.types import type_of
from genai_compiler.read.document import Component, OnnxImplementation, TensorContract


def replacements(name: str, components: Mapping[str, Component]) -> tuple[Replacement, ...]:
    """The legal replacements of component `name`; empty when it is not overridable."""
    target = components[name]
    if not target.application_overridable or target.contract is None:
        return ()
    return tuple(
        Replacement(other, tuple(_ports(target, each)))
        for other, each in components.items()
        if other != name and _fits(target, each)
    )


def _fits(target: Component, other: Component) -> bool:
    """Equal contract, roles and effects; every role's port has the same direction and the same contract."""
    mine, theirs = target.contract, other.contract
    if mine is None or theirs is None or not isinstance(other.implementation, OnnxImplementation):
        return False
    if (mine.id, mine.version, set(mine.bindings)) != (theirs.id, theirs.version, set(theirs.bindings)):
        return False
    if set(target.effects) != set(other.effects):
        return False
    return all(
        (port := _port(target, mine.bindings[role])) is not None and port == _port(other, theirs.bindings[role])
        for role in mine.bindings
    )


def _port(component: Component, port: str) -> tuple[str, object, bool] | None:
    """(direction, type, optional) of a declared port."""
    for direction, ports in (("in", component.ports.inputs), ("out", component.ports.outputs)):
        contract: TensorContract | None = ports.get(port)
        if contract is not None:
            return direction, type_of(contract), contract.optional
    return None


def _ports(target: Component, other: Component) -> Iterator[tuple[str, str]]:
    assert target.contract is not None and other.contract is not None
    for role, port in target.contract.bindings.items():
        yield port, other.contract.bindings[role]
