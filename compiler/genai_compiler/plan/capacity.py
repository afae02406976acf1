"""Fixed-capacity state that a graph writes at given positions: what to check before each invoke (standard, 3.9)."""

from collections.abc import Iterator

from genai_compiler.plan.ir import CapacityCheck, Component
from genai_compiler.plan.scope import Scope
from genai_compiler.read.document import IndexedScatter, StateGroup
from genai_compiler.read.package import Package


def capacity_checks(
    component: Component, inputs: tuple[tuple[str, str], ...], scope: Scope, package: Package
) -> Iterator[CapacityCheck]:
    """One check for every indexed-scatter group whose destinations this invoke takes."""
    serving, bound = package.workflow.serving, dict(inputs)
    for name, group in serving.state_service.groups.items() if serving else ():
        update = group.update
        if not isinstance(update, IndexedScatter):
            continue
        destinations = bound.get(update.write_indices_ports.get(component.name, ""))
        capacity = scope.find(update.capacity)
        if destinations is not None and capacity is not None:
            lengths = scope.find(group.logical_lengths) if group.logical_lengths else None
            yield CapacityCheck(name, destinations, capacity, lengths or "", _states(component, group, bound))


def _states(component: Component, group: StateGroup, bound: dict[str, str]) -> tuple[tuple[str, int], ...]:
    """(value, sequence axis) of every state of the group that this invoke takes."""
    axis = group.sequence_axis
    aliases = group.ports.get(component.name, {}).values()
    return () if axis is None else tuple((bound[each.input], axis) for each in aliases if each.input in bound)
