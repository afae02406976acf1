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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from genai_compiler.passes.joinable import Joinable, Shape
from genai_compiler.passes.profile import Profile
from genai_compiler.passes.prove_extents import irreplaceable, proved
from genai_compiler.plan.edits import Linked, Member, free_name
from genai_compiler.plan.ir import Branch, Component, Fused, Invoke, Loop, Op, Plan
from genai_compiler.plan.uses import all_reads, checked_values, defines, walk


def fuse_islands(plan: Plan, profile: Profile) -> Plan:
    """The plan with every island of two members or more linked."""
    body, extents = proved(irreplaceable(plan), profile)
    whole = {defines(op): op for op in walk(body) if isinstance(op, Invoke)}
    grouping = _Grouping(Joinable(plan, profile, extents), whole)
    body = tuple(grouping.region(plan.body))
    if not grouping.islands:
        return plan
    return _linked(plan, body, grouping)


@dataclass
class _Island:
    """Members so far. place: its index among the ops of its region. opsets: by domain. taken: what ports say of the
    shape of values from outside, by value.
    """

    place: int
    members: list[Invoke] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    opsets: dict[str, int] = field(default_factory=dict)
    taken: dict[str, Shape] = field(default_factory=dict)


@dataclass
class _Grouping:
    """Finds the islands of a plan.

    whole: invokes with the checks that they need when no request replaces a component, by what they define. islands:
    the invoke that stands for each, and its members. alone: why components stay alone.
    """

    joinable: Joinable
    whole: Mapping[tuple[str, ...], Invoke]
    islands: list[tuple[Invoke, list[Invoke]]] = field(default_factory=list)
    alone: dict[str, str] = field(default_factory=dict)

    def region(self, ops: tuple[Op, ...]) -> Iterator[Op]:
        """The ops of a region, an island's first member standing for all of them."""
        placed: list[Op | _Island] = []
        where: dict[str, int] = {}
        open_islands: list[_Island] = []
        for op in ops:
            if isinstance(op, Invoke) and self._may_join(op):
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

    def _may_join(self, op: Invoke) -> bool:
        reason = self.joinable.reason(op)
        if reason:
            self.alone.setdefault(op.component, reason)
        return not reason

    def _home(self, op: Invoke, islands: list[_Island], where: dict[str, int]) -> _Island | None:
        """The first island that the invoke may join."""
        for island in islands:
            known = all(where.get(value, -1) <= island.place for _, value in op.inputs)
            inside = {
                value for check in self.whole[defines(op)].before for value in checked_values(check)
            } & island.made
            fits = self.joinable.fits(op, island.made, island.taken)
            if known and not inside and fits and self.joinable.agree(op, island.opsets):
                return island
        return None

    def _join(self, op: Invoke, island: _Island) -> None:
        island.members.append(op)
        self.joinable.take(op, island.made, island.taken)
        island.made.update(defines(op))
        island.opsets.update(self.joinable.opsets(op))

    def _closed(self, island: _Island) -> Invoke:
        first = island.members[0]
        if len(island.members) > 1:
            self.islands.append((first, island.members))
        return first


def _linked(plan: Plan, body: tuple[Op, ...], grouping: _Grouping) -> Plan:
    """Put an invoke of its own component in the place of each island's first member."""
    inside = {id(member) for _, members in grouping.islands for member in members}
    others = [op for op in walk(body) if id(op) not in inside]
    read = {value for op in others for value in all_reads(op)}
    read |= {value for op in others if isinstance(op, Invoke) for value in _checked(op)}
    components, made, notes = list[Component](), dict[int, Invoke | Fused](), list[str]()
    for number, (first, members) in enumerate(grouping.islands, start=1):
        elsewhere = read.union(*(_reads(others) for each, others in grouping.islands if each is not first))
        whole = [grouping.whole[defines(member)] for member in members]
        elsewhere |= {value for each in (*members, *whole) for check in each.after for value in checked_values(check)}
        name = free_name(f"island_{number}", [each.name for each in plan.components])
        component = _component(name, members, elsewhere, plan)
        components.append(component)
        run = _invoke(component, whole)
        replaceable = any(plan.component(member.component).overridable for member in members)
        made[id(first)] = Fused(run, tuple(members), run.origin) if replaceable else run
        names = " + ".join(member.component for member in members)
        notes.append(f"fuse_islands: {component.name} is {names}: one run instead of {len(members)}")
    notes += [f"fuse_islands: {name} runs alone: {reason}" for name, reason in sorted(grouping.alone.items())]
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
    linked = Linked(tuple(Member(each.component, each.inputs, each.outputs) for each in members), given)
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
