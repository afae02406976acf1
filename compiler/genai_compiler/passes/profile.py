"""What passes may know beyond the plan: the package's graphs and the caller's wishes. And the shape of a pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from genai_compiler.costs import Costs, shipped_costs
from genai_compiler.plan.ir import Form, Plan
from genai_compiler.read.document import IndexedScatter, StateGroup
from genai_compiler.read.extents import Extent, Extents
from genai_compiler.read.opsets import Opsets
from genai_compiler.read.package import Graph, Package

CPU = "CPUExecutionProvider"
Asked = tuple[str, tuple[tuple[str, Extents | None], ...]]
"""A component, and the extents of what its ports are given."""
Inferred = Mapping[str, tuple[Extent | None, ...]]
"""Extents of its results by port (read/extents.py)."""


@dataclass(frozen=True)
class Profile:
    """Facts beside the plan. graphs by component; groups as the document declares them; apart: never fused, and why.

    preferred: the execution provider that the package would rather run on than the CPU, "" for none.
    costs: what forms are chosen by. forms: those that the caller asks for, by component ("" for all others).
    unlinkable, opsets, inferred: what passes have asked about the graphs before, and the answers: they take time.
    """

    graphs: Mapping[str, Graph]
    groups: Mapping[str, StateGroup]
    apart: Mapping[str, str] = field(default_factory=dict)
    costs: Costs = field(default_factory=shipped_costs)
    forms: Mapping[str, Form] = field(default_factory=dict)
    preferred: str = ""
    unlinkable: dict[str, str] = field(default_factory=dict, init=False, compare=False)
    opsets: dict[str, Opsets] = field(default_factory=dict, init=False, compare=False)
    inferred: dict[Asked, Inferred] = field(default_factory=dict, init=False, compare=False)


_BATCHING = ("onnx-genai.token-sampler", "onnx-genai.termination-predicate", "onnx-genai.state-update")
"""Contracts whose components fuse at version 2, where rows that sit out are part of them (standard, 13.1)."""


def profile_of(package: Package, costs: Costs | None = None, forms: Mapping[str, Form] | None = None) -> Profile:
    """What the package says, and the caller. costs: None is the shipped table."""
    serving = package.workflow.serving
    groups = serving.state_service.groups if serving else {}
    apart = {
        name: f"{each.contract.id}@{each.contract.version} does not say what rows do that sit out"
        for name, each in package.workflow.components.items()
        if each.contract is not None and each.contract.id in _BATCHING and each.contract.version.split(".")[0] != "2"
    }
    for group in groups.values():
        if isinstance(group.update, IndexedScatter):
            writers = dict.fromkeys(group.update.write_indices_ports, "it writes at places that are checked before")
            apart = {**apart, **writers}
    preferred = next((each.name for each in package.session.providers if each.name != CPU), "")
    return Profile(package.graphs, groups, apart, costs or shipped_costs(), forms or {}, preferred)


class Pass(Protocol):
    """A rewrite: never edits its input; its docstring shows before and after."""

    __name__: str

    def __call__(self, plan: Plan, profile: Profile) -> Plan: ...
