"""Adapters in a plan: the request's selection becomes a value, and the steps that it changes read it.

The standard lets an overlay, and a graph with inputs for factors, look at the selection behind their ports (5.3, 6.3).
In a plan nothing is hidden: one op reads the selection inputs and defines what these steps take.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from genai_compiler.check.lora_uses import is_overlay, overlay_of, overlays
from genai_compiler.check.walk import invokes
from genai_compiler.plan.adapted import SelectAdapters
from genai_compiler.plan.ir import Type
from genai_compiler.plan.scope import Scope
from genai_compiler.read.lora_seam import SeamFault, seams_of
from genai_compiler.read.package import Package

SELECTED = Type("adapters", 1, ("batch",), 0)
FACTORS = Type("factors", 0, ())
"""Types of values that are no tensors: the adapters of every row, and the graph inputs that take their factors."""


@dataclass(frozen=True)
class Adaptation:
    """The op at the start of a run, and the value that each adapted component's steps read."""

    ops: tuple[SelectAdapters, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, component: str) -> str:
        """The value that adapts a component, "" when nothing does."""
        return self.values.get(component, "")


def adaptation(package: Package, scope: Scope) -> Adaptation:
    """What the package's adapters add to its plan; nothing when it has none. Inputs must be in scope."""
    service = package.metadata.adapters
    if service is None:
        return Adaptation()
    run = {step.component for _, step in invokes(package.workflow)}
    targets = service.target_manifest.targets
    fed = {targets[at].component for at, seam in seams_of(package) if not isinstance(seam, SeamFault)}
    applied = overlays(package)
    selected = scope.values.define("adapters", SELECTED) if applied else ""
    factors = tuple((each, scope.values.define(f"{each}.factors", FACTORS)) for each in sorted(fed & run))
    names = service.selection
    kinds = (names.segments, names.adapter_counts, names.scales, *((names.active,) if names.active else ()))
    op = SelectAdapters(
        inputs=tuple(scope.find(each) or each for each in kinds),
        selected=selected,
        factors=factors,
        overlays=tuple(sorted({pair for each in applied.values() if (pair := overlay_of(each)) is not None})),
        origin="adapters.selection",
    )
    overlaid = {name: selected for name, each in package.workflow.components.items() if is_overlay(each) and applied}
    return Adaptation((op,), {**overlaid, **dict(factors)})
