"""Which invokes may be linked with others into one graph, and what a session would have looked at between them."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import CapacityCheck, Invoke, Plan
from genai_compiler.read.extents import Extents
from genai_compiler.read.linkable import unlinkable
from genai_compiler.read.opsets import Opsets, opsets_of
from genai_compiler.read.weights import weight_bytes

LIGHT = 64 << 10
"""Bytes of weights up to which a graph may have a copy in an island."""

APART = {"own": "a session of its own is its form", "host": "numpy does it"}
"""Forms that are not linked, and what that says of the component."""

Shape = tuple[int | str | None, ...]


@dataclass
class Joinable:
    """Judges the invokes of a plan. extents: of values, when no request replaces a component."""

    plan: Plan
    profile: Profile
    extents: Mapping[str, Extents]

    def reason(self, op: Invoke) -> str:
        """Why an invoke stays alone, "" when it need not."""
        fixed = self.fixed(op)
        if fixed:
            return fixed
        if op.held:
            return "it updates cells in place"
        size = weight_bytes(self.profile.graphs[op.component].model)
        if size > LIGHT:
            return f"its weights ({size / 1e6:.1f} MB) belong to one session"
        return self.unlinkable(op)

    def fixed(self, op: Invoke) -> str:
        """Why an invoke can't be linked even where its weights stay in one session, "" when it can."""
        component = self.plan.component(op.component)
        if self.profile.graphs.get(op.component) is None or component.adapter is not None:
            return "it is no graph"
        if not component.pure:
            return "it has effects"
        if component.form in APART:
            return APART[component.form]
        if any(each.component == op.component for each in self.plan.placements):
            return "hints say where it runs"
        if op.adapted:
            return "adapters of a request change what it computes"
        if any(isinstance(each, CapacityCheck) for each in op.before):
            return "it writes at places that are checked before"
        return ""

    def unlinkable(self, op: Invoke) -> str:
        """What its contract or its graph has against being linked, "" when nothing."""
        known = self.profile.unlinkable
        if op.component not in known:
            known[op.component] = unlinkable(self.profile.graphs[op.component].model)
        return self.profile.apart.get(op.component, "") or known[op.component]

    def misfit(self, op: Invoke, made: Set[str], taken: Mapping[str, Shape]) -> str:
        """What value from inside is not certain to have the rank and the fixed extents of the port that takes it.

        "" when all are. made: values from inside. taken: what ports say of the shape of values from outside; ports that
        take one value must ask for one shape.
        """
        ports = self._ports(op)
        for port, value in op.inputs:
            shape = ports.get(port)
            if shape is None:
                continue
            if value not in made:
                if _one_shape(shape, taken.get(value, shape)) is None:
                    return f"port '{port}' of '{op.component}' asks for another shape of %{value} than a port before"
                continue
            extents = self.extents.get(value)
            if extents is None or len(extents) != len(shape):
                return f"nothing proves that %{value} has the rank that port '{port}' of '{op.component}' asks for"
            for axis, (dim, extent) in enumerate(zip(shape, extents, strict=True)):
                if isinstance(dim, int) and dim != extent:
                    return f"nothing proves that %{value} has {dim} entries on axis {axis}, as '{op.component}' asks"
        return ""

    def take(self, op: Invoke, made: Set[str], taken: dict[str, Shape]) -> None:
        """Note what the ports of an invoke that joins say of values from outside."""
        ports = self._ports(op)
        for port, value in op.inputs:
            shape = ports.get(port)
            if shape is not None and value not in made:
                taken[value] = _one_shape(shape, taken.get(value, shape)) or shape

    def opsets(self, component: str) -> Opsets:
        """Of what versions its graph is."""
        known = self.profile.opsets
        if component not in known:
            known[component] = opsets_of(self.profile.graphs[component].model)
        return known[component]

    def _ports(self, op: Invoke) -> Mapping[str, Shape | None]:
        """The shapes that the graph of an invoke asks of its inputs."""
        signature = self.profile.graphs[op.component].signature
        return {each.name: each.shape for each in (*signature.inputs, *signature.defaulted)}


def _one_shape(one: Shape, other: Shape) -> Shape | None:
    """What holds for a value of both shapes, None where no value has both."""
    pairs = list(zip(one, other, strict=False))
    if len(one) != len(other) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        return None
    return tuple(a if isinstance(a, int) else b for a, b in pairs)
