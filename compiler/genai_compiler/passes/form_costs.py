"""What the runs of a plan cost by the table: session calls, ports, operators; of all but the operators of heavy graphs.

Work that is the same in every form need not be known: only searches, which numpy does too, go by their extent, any
other operator counts as a small one. Loops count as they run once one row has settled: light runs in single numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from genai_compiler.costs import Costs
from genai_compiler.passes.fuse_islands import fuse_islands
from genai_compiler.passes.joinable import LIGHT
from genai_compiler.passes.keep_results import keep_results
from genai_compiler.passes.link_readers import link_readers
from genai_compiler.passes.profile import Profile
from genai_compiler.passes.use_numbers import STEP, use_numbers
from genai_compiler.plan.edits import Linked, Member
from genai_compiler.plan.ir import Branch, Component, Form, Fused, Invoke, Loop, Op, Plan
from genai_compiler.read.host_graph import SEARCHES
from genai_compiler.read.host_program import HostProgram
from genai_compiler.read.nodes import all_nodes, operator_of
from genai_compiler.read.weights import weight_bytes

TURNS = 64
"""How often a loop is taken to run."""
SMALL = 1
"""The extent of a search in a graph of which no extent is known."""


@dataclass
class FormCosts:
    """Costs of one plan in different forms. programs: of components that numpy can do; extents: of what each component
    searches, 0 where it is not known.
    """

    plan: Plan
    profile: Profile
    programs: Mapping[str, HostProgram]
    extents: Mapping[str, int]
    known: dict[tuple[tuple[str, Form], ...], tuple[Mapping[int, float], frozenset[str]]] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)

    def by_depth(self, forms: Mapping[str, Form]) -> Mapping[int, float]:
        """Microseconds of one turn of the loops of a depth (0: outside), when components have these forms."""
        return self._planned(forms)[0]

    def linked(self, forms: Mapping[str, Form]) -> frozenset[str]:
        """The components that run inside a linked graph, when components have these forms."""
        return self._planned(forms)[1]

    def _planned(self, forms: Mapping[str, Form]) -> tuple[Mapping[int, float], frozenset[str]]:
        key = tuple(sorted(forms.items()))
        if key not in self.known:
            plan = in_form(self.plan, forms, self.programs)
            if "fused" in forms.values():
                plan = link_readers(fuse_islands(plan, self.profile), self.profile)
            plan = use_numbers(keep_results(plan, self.profile), self.profile)
            found, linked = dict[int, float](), set[str]()
            for depth, run in runs(plan.body):
                component = plan.component(run.component)
                found[depth] = found.get(depth, 0.0) + self._run(component, run)
                linked.update(each.component for each in _members(component))
            self.known[key] = found, frozenset(linked)
        return self.known[key]

    def whole(self, forms: Mapping[str, Form]) -> float:
        """Microseconds of all, a loop counted TURNS times."""
        return sum(each * float(TURNS**depth) for depth, each in self.by_depth(forms).items())

    def _run(self, component: Component, run: Invoke) -> float:
        taken, given = len(run.inputs), max(len(run.outputs), 1)
        if component.host is not None:
            return self.hosted(component.name, component.host, taken, given)
        if run.numbers is not None:
            return STEP * len(run.numbers.steps)
        if component.adapter is not None:
            return 0.0
        names = [each.component for each in _members(component)] or [component.name]
        return self.profile.costs.run(taken, given) + sum(map(self.inside, names))

    def hosted(self, name: str, program: HostProgram, taken: int, given: int) -> float:
        """One invoke that numpy does."""
        costs, host = self.profile.costs, self.profile.costs.host
        found = [each.operator for each in program.steps]
        searches = sum(
            costs.search(each, "host", self.extents.get(name) or SMALL) for each in found if each in SEARCHES
        )
        others = sum(each not in SEARCHES for each in found)
        return host.call + taken * host.input + given * host.output + others * host.operator + searches

    def inside(self, name: str) -> float:
        """The operators of a component's graph; 0 where its weights say that they are more than a policy's."""
        if name not in self.work:
            graph = self.profile.graphs.get(name)
            light = graph is not None and weight_bytes(graph.model) <= LIGHT
            extent = self.extents.get(name) or SMALL
            operators = (operator_of(node) for node in all_nodes(graph.model)) if light and graph is not None else ()
            self.work[name] = sum(_operator(self.profile.costs, *each, extent) for each in operators)
        return self.work[name]


def _members(component: Component) -> tuple[Member, ...]:
    return component.edit.members if isinstance(component.edit, Linked) else ()


def _operator(costs: Costs, domain: str, operator: str, extent: int) -> float:
    if not domain and operator in SEARCHES:
        return costs.search(operator, "graph", extent)
    return 0.0 if operator == "Constant" else costs.node


def in_form(plan: Plan, forms: Mapping[str, Form], programs: Mapping[str, HostProgram]) -> Plan:
    """The plan whose components have these forms."""
    made = tuple(
        replace(each, form=forms[each.name], host=programs[each.name] if forms[each.name] == "host" else None)
        if each.name in forms
        else each
        for each in plan.components
    )
    return replace(plan, components=made)


def runs(ops: tuple[Op, ...], depth: int = 0) -> Iterator[tuple[int, Invoke]]:
    """(loops around it, run) of every run of a plan when no request replaces a component; all cases of a branch."""
    for op in ops:
        match op:
            case Invoke():
                yield depth, op
            case Fused():
                yield depth, op.run
            case Loop():
                yield from runs((*op.body, *op.advance), depth + 1)
            case Branch():
                for _, inner in op.cases:
                    yield from runs(inner, depth)
                yield from runs(op.default or (), depth)
            case _:
                pass
