"""Join the light invokes of a region into islands: one linked graph, one session run.

Before:  %t = invoke sample(logits=%l); %d = invoke stop(token=%t); emit %t; %n = invoke count(length=%c)
After:   component island_1 = sample + stop + count
         %t, %d, %n = invoke island_1(%l=%l, %c=%c); emit %t

An island stands where its first members stand. A later invoke joins when all it reads is there already: invokes are
pure, so that only the order of errors could change. Values that anything outside reads stay results. Heavy graphs stay
alone, because each weight belongs to one session; so does what has effects, updates cells in place, or writes at
checked places. Where a request may replace a member, the members stay beside the island for such a request. An invoke
begins another island when it would take a value from inside about which something is not proved that must hold: an
extent of its document, or the rank and the fixed extents of its graph's input, which a session would look at.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from genai_compiler.costs import Costs
from genai_compiler.passes.joinable import Joinable, Shape
from genai_compiler.passes.profile import Profile
from genai_compiler.passes.prove_extents import irreplaceable, proved
from genai_compiler.plan.boundaries import boundaries
from genai_compiler.plan.edits import Linked, Member, free_name
from genai_compiler.plan.ir import Branch, Component, Fused, Invoke, Loop, Op, Plan
from genai_compiler.plan.uses import all_reads, checked_values, defines, walk
from genai_compiler.read.opsets import NO_OPSETS, Opsets


def fuse_islands(plan: Plan, profile: Profile) -> Plan:
    """The plan with every island of two members or more linked, and the reason for each boundary that remains."""
    body, extents = proved(irreplaceable(plan), profile)
    whole = {defines(op): op for op in walk(body) if isinstance(op, Invoke)}
    grouping = _Grouping(Joinable(plan, profile, extents), whole)
    body = tuple(grouping.region(plan.body))
    graphs = [each.name for each in plan.components if each.name in profile.graphs and each.adapter is None]
    plan = replace(plan, boundaries=boundaries(plan, graphs, grouping.between))
    return _linked(plan, body, grouping, profile.costs) if grouping.islands else plan


@dataclass
class _Island:
    """Members so far. place: its index among the ops of its region. opsets: of all members. taken: what ports say of
    the shape of values from outside, by value.
    """

    place: int
    members: list[Invoke] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    opsets: Opsets = NO_OPSETS
    taken: dict[str, Shape] = field(default_factory=dict)


@dataclass
class _Grouping:
    """Finds the islands of a plan.

    whole: invokes with the checks that they need when no request replaces a component, by what they define. islands:
    the invoke that stands for each, and its members. homes: of invokes, by identity; refused: why an invoke did not
    join an island.
    """

    joinable: Joinable
    whole: Mapping[tuple[str, ...], Invoke]
    islands: list[tuple[Invoke, list[Invoke]]] = field(default_factory=list)
    homes: dict[int, _Island] = field(default_factory=dict)
    refused: dict[tuple[int, int], str] = field(default_factory=dict)

    def region(self, ops: tuple[Op, ...]) -> Iterator[Op]:
        """The ops of a region, an island's first member standing for all of them."""
        placed: list[Op | _Island] = []
        where: dict[str, int] = {}
        open_islands: list[_Island] = []
        for op in ops:
            if isinstance(op, Invoke) and not self.joinable.reason(op):
                island = self._home(op, open_islands, where)
                if island is None:
                    island = _Island(len(placed))
                    open_islands.append(island)
                    placed.append(island)
                self._join(op, island)
                where.update((value, island.place) for value in defines(op))
                continue
            if isinstance(op, Loop | Branch):
                open_islands = []
            where.update((value, len(placed)) for value in defines(op))
            placed.append(self._nested(op))
        for each in placed:
            yield self._closed(each) if isinstance(each, _Island) else each

    def _nested(self, op: Op) -> Op:
        match op:
            case Loop() if not op.advance:
                return replace(op, body=tuple(self.region(op.body)))
            case Branch():
                cases = tuple((key, tuple(self.region(ops))) for key, ops in op.cases)
                default = tuple(self.region(op.default)) if op.default is not None else None
                return replace(op, cases=cases, default=default)
            case _:
                return op

    def between(self, first: Invoke, second: Invoke) -> str:
        """Why two invokes of one region are not one run, "" when they are."""
        home = self.homes.get(id(first))
        if home is not None and home is self.homes.get(id(second)):
            return ""
        for each in (first, second):
            if reason := self.joinable.reason(each):
                return f"'{each.component}' runs alone: {reason}"
        if home is None:
            return "the runtime drives the loop that they stand in"
        return self.refused.get((id(second), id(home)), "a loop or a branch stands between them")

    def _home(self, op: Invoke, islands: list[_Island], where: dict[str, int]) -> _Island | None:
        """The first island that the invoke may join."""
        for island in islands:
            against = self._against(op, island, where)
            if not against:
                return island
            self.refused[id(op), id(island)] = against
        return None

    def _against(self, op: Invoke, island: _Island, where: dict[str, int]) -> str:
        """Why an invoke can't join an island, "" when it can."""
        late = next((value for _, value in op.inputs if where.get(value, -1) > island.place), "")
        if late:
            return f"'{op.component}' also reads %{late}, which is made later"
        compared = {value for check in self.whole[defines(op)].before for value in checked_values(check)} & island.made
        if compared:
            return f"nothing proves the extents of %{min(compared)}, which are compared before '{op.component}' runs"
        misfit = self.joinable.misfit(op, island.made, island.taken)
        return misfit or island.opsets.joined(self.joinable.opsets(op.component)).conflict()

    def _join(self, op: Invoke, island: _Island) -> None:
        island.members.append(op)
        self.joinable.take(op, island.made, island.taken)
        island.made.update(defines(op))
        island.opsets = island.opsets.joined(self.joinable.opsets(op.component))
        self.homes[id(op)] = island

    def _closed(self, island: _Island) -> Invoke:
        first = island.members[0]
        if len(island.members) > 1:
            self.islands.append((first, island.members))
        return first


def _linked(plan: Plan, body: tuple[Op, ...], grouping: _Grouping, costs: Costs) -> Plan:
    """Put an invoke of its own component in the place of each island's first member."""
    inside = {id(member) for _, members in grouping.islands for member in members}
    others = [op for op in walk(body) if id(op) not in inside]
    read = {value for op in others for value in all_reads(op)}
    read |= {value for op in others if isinstance(op, Invoke) for value in _checked(op)}
    islands = Counter(value for _, members in grouping.islands for value in _reads(members))
    components, made, notes = list[Component](), dict[int, Invoke | Fused](), list[str]()
    for number, (first, members) in enumerate(grouping.islands, start=1):
        own = _reads(members)
        produced = {value for member in members for value in defines(member)}
        elsewhere = {value for value in produced if value in read or islands[value] > (value in own)}
        whole = [grouping.whole[defines(member)] for member in members]
        elsewhere |= {value for each in (*members, *whole) for check in each.after for value in checked_values(check)}
        name = free_name(f"island_{number}", [each.name for each in plan.components])
        component = _component(name, members, elsewhere, plan)
        components.append(component)
        run = _invoke(component, whole)
        replaceable = any(plan.component(member.component).overridable for member in members)
        made[id(first)] = Fused(run, tuple(members), run.origin) if replaceable else run
        names = " + ".join(member.component for member in members)
        saved = costs.saved(
            ((len(each.inputs), len(each.outputs)) for each in members), len(run.inputs), len(run.outputs)
        )
        notes.append(
            f"fuse_islands: {component.name} is {names}: one run instead of {len(members)}, {saved:.1f} us less"
        )
    return replace(
        plan,
        body=tuple(_replaced(body, made)),
        components=(*plan.components, *components),
        decisions=(*plan.decisions, *notes),
    )


def _reads(members: list[Invoke]) -> set[str]:
    return {value for each in members for value in (*(value for _, value in each.inputs), *_checked(each))}


def _checked(op: Invoke) -> Iterator[str]:
    for check in (*op.before, *op.after):
        yield from checked_values(check)


def _component(name: str, members: list[Invoke], elsewhere: set[str], plan: Plan) -> Component:
    produced = [value for member in members for value in defines(member)]
    taken = dict.fromkeys(value for member in members for _, value in member.inputs if value not in produced)
    given = tuple(value for value in produced if value in elsewhere)
    joined = tuple(Member(each.component, each.inputs, each.outputs, (each.origin,)) for each in members)
    linked = Linked(joined, given)
    return Component(
        name=name,
        artifact="",
        inputs=tuple((value, plan.types[value]) for value in taken),
        outputs=tuple((value, plan.types[value]) for value in given),
        pure=True,
        overridable=False,
        origin=members[0].origin,
        edit=linked,
    )


def _invoke(component: Component, members: list[Invoke]) -> Invoke:
    return Invoke(
        component.name,
        tuple((port, port) for port, _ in component.inputs),
        tuple((port, port) for port, _ in component.outputs),
        members[0].origin,
        tuple(check for each in members for check in each.before),
        tuple(check for each in members for check in each.after),
    )


def _replaced(ops: tuple[Op, ...], made: Mapping[int, Invoke | Fused]) -> Iterator[Op]:
    for op in ops:
        match op:
            case Invoke():
                yield made.get(id(op), op)
            case Loop():
                yield replace(op, body=tuple(_replaced(op.body, made)))
            case Branch():
                cases = tuple((key, tuple(_replaced(ops, made))) for key, ops in op.cases)
                default = tuple(_replaced(op.default, made)) if op.default is not None else None
                yield replace(op, cases=cases, default=default)
            case _:
                yield op
