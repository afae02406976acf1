"""Let the run that ends an iteration make what begins the next one, so that one row needs one run a token.

Before:  loop { emit %t; %m, %a = invoke light(mask=%mask, token=%t) steady
                %t.next = invoke model(ids=%t, mask=%m) on cache steady }
After:   component model_turned = model + light
         loop { emit %t; %m, %a = invoke light(mask=%mask, token=%t) steady
                %t.next, %ahead.m, %ahead.a = invoke model_turned(ids=%t, mask=%m) on cache steady
                  idle ahead.mask like %mask
                ahead of the next: %m is %ahead.m, %a is %ahead.a }

Everything stays as it was but for one row that has settled (plan/settled_loops.py): there the run gets the next values
and `light` is not run. Batches, the first iterations, the last one and every other place of the model give it zeros and
throw away what it makes of them, since cells of rows that sit out are merged between two iterations, and since what an
iteration does that never comes must not fail. What fails when it looks ahead is run again with zeros; then `light` says
at its own place what is wrong. So its operators must bear zeros, and no value may end the process
(read/total_graphs.py).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from genai_compiler.passes.joinable import Joinable
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ahead import Ahead, Idle
from genai_compiler.plan.boundaries import ITERATES
from genai_compiler.plan.boundary import Boundary
from genai_compiler.plan.edits import Linked, Member, free_name
from genai_compiler.plan.ir import Component, Hold, Invoke, Loop, Op, Plan
from genai_compiler.plan.settled_loops import Surroundings, has_shorter_way, run_of
from genai_compiler.plan.unfit import Unfit
from genai_compiler.plan.uses import all_reads, defines, walk
from genai_compiler.read.opsets import Opsets
from genai_compiler.read.total_graphs import partial_operator


def turn_loop(plan: Plan, profile: Profile) -> Plan:
    """The plan in which such loops are turned."""
    around = Surroundings(plan)
    for op in plan.body:
        if isinstance(op, Loop) and has_shorter_way(op, around) and sum(map(_is_run, op.body)) > 1:
            try:
                plan = _turned(_Turn(plan, profile, op), plan)
                around = Surroundings(plan)
            except Unfit as why:
                plan = replace(plan, decisions=(*plan.decisions, f"turn_loop: the loop stays as it is: {why}"))
    return plan


def _is_run(op: Op) -> bool:
    return run_of(op) is not None


@dataclass
class _Turn:
    """One loop, its light invoke and its held one, and what stands against linking them."""

    plan: Plan
    profile: Profile
    loop: Loop

    def __post_init__(self) -> None:
        runs = [each for each in self.loop.body if _is_run(each)]
        if len(runs) != 2 or not isinstance(runs[1], Invoke) or not runs[1].held:
            raise Unfit("it does not make two runs, of which the second updates cells in place")
        if not isinstance(runs[0], Invoke):
            raise Unfit("a request may replace a member of its first run")
        self.light, self.held = runs[0], runs[1]
        self.next = {each.cell: each.next for each in self.loop.carried}
        self.made = {value: port for port, value in self.held.outputs}
        self._check_light()
        self._check_flow()

    def models(self) -> Iterator[str]:
        """The components whose graphs are in the light run."""
        edit = self.plan.component(self.light.component).edit
        yield from (each.component for each in edit.members) if isinstance(edit, Linked) else (self.light.component,)

    def _check_light(self) -> None:
        joinable, light, held = Joinable(self.plan, self.profile, {}), self.light, self.held
        if self.plan.component(held.component).edit is None:
            reason = joinable.fixed(held) or joinable.unlinkable(held)
            if reason:
                raise Unfit(f"'{held.component}' runs alone: {reason}")
        if light.held or light.adapted or light.before or light.after:
            raise Unfit(f"what '{light.component}' takes or gives is compared")
        for name in self.models():
            reason = joinable.reason(Invoke(name, (), (), ""))
            reason = reason or ("its graph is absent" if self.profile.graphs[name].absent else "")
            if reason:
                raise Unfit(f"'{name}' runs alone: {reason}")
            odd = partial_operator(self.profile.graphs[name].model)
            if odd:
                raise Unfit(f"'{name}' has {odd}, which values may be wrong for")
        if self.loop.steady and not set(defines(light)) <= set(self.loop.steady):
            raise Unfit(f"results of '{light.component}' change their extents")

    def _check_flow(self) -> None:
        """Who reads the cells that the light run makes: their tensors are written over when the held run begins."""
        ahead = {cell for cell, value in self.next.items() if value in defines(self.light)}
        at = next(at for at, each in enumerate(self.loop.body) if each is self.held)
        late = {value for op in self.loop.body[at:] for value in all_reads(op)} & ahead
        handed = {value for cell, value in self.next.items() if value != cell} & ahead
        if late or handed:
            raise Unfit(f"cell '{min(late | handed)}' is read behind the run that would write over it")
        steps = {value for op in self.loop.body for value in defines(op)}
        strange = {value for _, value in self.light.inputs} & steps
        if strange:
            raise Unfit(f"'{self.light.component}' reads %{min(strange)}, which no cell brings it")

    def following(self, value: str) -> str:
        """What stands for an input of the light run an iteration later."""
        return self.next.get(value, value)

    def inside(self, value: str) -> str:
        """The held run's port that gives what the light run takes next, "" where it comes from outside."""
        following = self.following(value)
        if following in self.next and following != value:
            raise Unfit(f"'{self.light.component}' reads cell '{value}', which becomes another cell")
        carried = next((each for each in self.loop.carried if each.cell == value), None)
        if following not in self.made:
            return ""
        type = self.plan.types[value]
        if carried is None or not carried.proved or not type.ranked:
            raise Unfit(f"nothing proves the extents of %{following}")
        return self.made[following]


def _turned(turn: _Turn, plan: Plan) -> Plan:
    old, light = plan.component(turn.held.component), plan.component(turn.light.component)
    if old.edit is not None and not isinstance(old.edit, Linked):
        raise Unfit(f"'{old.name}' is changed in another way")
    _agree(turn, old)
    taken = {port for port, _ in (*old.inputs, *old.outputs)} | _names(old)
    ports = {value: turn.inside(value) or free_name(f"ahead.{value}", taken) for _, value in turn.light.inputs}
    made = {value: free_name(f"ahead.{value}", taken) for value in defines(turn.light)}
    new = _component(turn, old, light, ports, made)
    outer = {value: port for value, port in ports.items() if not turn.inside(value)}
    values = {value: free_name(name, plan.types) for value, name in made.items()}
    run = replace(
        turn.held,
        component=new.name,
        outputs=(*turn.held.outputs, *((made[value], values[value]) for value in made)),
        idle=tuple(_idle(value, port, turn, {}) for value, port in outer.items()),
    )
    ahead = Ahead(
        defines(turn.light),
        tuple(values.items()),
        tuple((port, turn.following(value)) for value, port in outer.items()),
        tuple((outer.get(value, ""), turn.following(value)) for _, value in turn.light.inputs),
    )
    body = tuple(run if each is turn.held else each for each in turn.loop.body)
    loop = replace(turn.loop, body=body, ahead=ahead, steady=(*turn.loop.steady, *values.values()))
    note = f"turn_loop: {new.name} is {old.name} + {light.name}: one row that has settled needs one run instead of 2"
    return replace(
        plan,
        body=tuple(_placed(plan, turn, new.name, outer, run, loop)),
        components=(*(each for each in plan.components if each is not old or old.edit is None), new),
        groups=tuple(replace(g, component=new.name) if g.component == old.name else g for g in plan.groups),
        types={**plan.types, **{values[value]: plan.types[value] for value in made}},
        decisions=(*plan.decisions, note),
        boundaries=tuple(_told(plan, new)),
    )


def _agree(turn: _Turn, old: Component) -> None:
    """One version of each operator set serves all members."""
    edit, judge = old.edit, Joinable(turn.plan, turn.profile, {})
    members = [each.component for each in edit.members] if isinstance(edit, Linked) else [old.name]
    all_of_them = reduce(Opsets.joined, map(judge.opsets, (*members, *turn.models())))
    if why := all_of_them.conflict():
        raise Unfit(why)


def _told(plan: Plan, turned: Component) -> Iterator[Boundary]:
    """The boundaries, those that one row does not have in other words."""
    members = {each.component for each in turned.edit.members} if isinstance(turned.edit, Linked) else set[str]()
    for each in plan.boundaries:
        ahead = each.why == ITERATES and {each.first, each.second} <= members
        yield replace(each, why=f"{ITERATES}; one run for one row that has settled") if ahead else each


def _names(component: Component) -> set[str]:
    edit = component.edit
    members = edit.members if isinstance(edit, Linked) else ()
    return {name for each in members for _, name in (*each.inputs, *each.outputs)}


def _component(
    turn: _Turn, old: Component, light: Component, ports: Mapping[str, str], made: Mapping[str, str]
) -> Component:
    """The held run's graph with the light run's behind it. ports, made: the plan's values -> names inside."""
    own = tuple((port, port) for port, _ in old.inputs), tuple((port, port) for port, _ in old.outputs)
    first = old.edit if isinstance(old.edit, Linked) else Linked((Member(old.name, *own),), ())
    takes = {port: ports[value] for port, value in turn.light.inputs}
    gives = {port: made[value] for port, value in turn.light.outputs}
    if isinstance(light.edit, Linked):
        names = {port: takes.get(port) or gives.get(port) or f"ahead/{port}" for each in light.edit.members
                 for _, port in (*each.inputs, *each.outputs)}  # fmt: skip
        members = tuple(
            Member(each.component, _renamed(each.inputs, names), _renamed(each.outputs, names))
            for each in light.edit.members
        )
    else:
        members = (Member(light.name, tuple(takes.items()), tuple(gives.items())),)
    types = dict((*light.inputs, *light.outputs))
    added = {takes[port]: types[port] for port, value in turn.light.inputs if not turn.inside(value)}
    results = tuple((name, types[port]) for port, name in gives.items())
    outputs = (*old.outputs, *results)
    return replace(
        old,
        name=free_name(f"{turn.held.component}_turned", [each.name for each in turn.plan.components]),
        artifact="",
        inputs=(*old.inputs, *added.items()),
        outputs=outputs,
        edit=replace(first, members=(*first.members, *members), outputs=tuple(port for port, _ in outputs)),
    )


def _renamed(pairs: tuple[tuple[str, str], ...], names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((port, names[name]) for port, name in pairs)


def _idle(value: str, port: str, turn: _Turn, initial: Mapping[str, str]) -> Idle:
    """What goes in at a place that looks nothing ahead. initial: of cells, outside the loop."""
    if value == turn.loop.iteration:
        return Idle(port, "", turn.plan.types[value].rank)
    return Idle(port, initial.get(value, value))


def _placed(plan: Plan, turn: _Turn, name: str, outer: Mapping[str, str], run: Invoke, loop: Loop) -> Iterator[Op]:
    """The plan's ops with the new graph at every place of the old one."""
    initial = {each.cell: each.initial for each in turn.loop.carried}
    known = {each.name for each in plan.inputs} | {each.present_as for each in plan.inputs}
    old, places = turn.held.component, 0
    for op in plan.body:
        if op is turn.loop:
            op, places = loop, places + 1
        elif isinstance(op, Hold) and op.group == run.held:
            op = replace(op, run=run)
        elif isinstance(op, Invoke) and op.component == old:
            idle = tuple(_idle(value, port, turn, initial) for value, port in outer.items())
            strange = [each.like for each in idle if each.like and each.like not in known]
            if strange:
                raise Unfit(f"%{strange[0]} is not there when '{old}' runs at {op.origin}")
            op, places = replace(op, component=name, idle=idle), places + 1
        known.update(defines(op))
        yield op
    uses = Counter(op.component for op in walk(plan.body) if isinstance(op, Invoke))
    if uses[old] != places:
        raise Unfit(f"'{old}' runs inside another region too")
