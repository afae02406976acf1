"""Link the light invokes that follow a heavy one wherever it runs into its graph: one session run instead of several.

Before:  %l = invoke model(ids=%p); %x = invoke last(logits=%l, lengths=%n)
         loop { %m = invoke model(ids=%t); %y = invoke last(logits=%m, lengths=%c) }
After:   component model_linked = model + last
         %x = invoke model_linked(ids=%p, last.lengths=%n)
         loop { %y = invoke model_linked(ids=%t, last.lengths=%c) }

fuse_islands leaves a heavy graph alone, because each weight belongs to one session; so does an invoke that updates
cells in place. Here all of its invokes become invokes of one linked graph, whose session has the weights. A reader
joins when at every one of these places the same component takes the same results, all else that it reads is there
already, and what must hold of the results is proved. The ports of the heavy graph keep their names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from genai_compiler.costs import Costs
from genai_compiler.passes.joinable import LIGHT, Joinable, Shape
from genai_compiler.passes.profile import Profile
from genai_compiler.passes.prove_extents import proved
from genai_compiler.plan.boundary import Boundary
from genai_compiler.plan.edits import Linked, Member, free_name
from genai_compiler.plan.ir import Branch, Check, Component, Decode, Hold, Invoke, Loop, Op, Plan, SymbolCheck, Type
from genai_compiler.plan.uses import checked_values, defines, own_reads, walk
from genai_compiler.read.extents import Extents
from genai_compiler.read.weights import weight_bytes

Pairs = tuple[tuple[str, str], ...]


def link_readers(plan: Plan, profile: Profile) -> Plan:
    """The plan in which every such graph has its readers with it."""
    _, extents = proved(plan, profile)
    joinable = Joinable(plan, profile, extents)
    found = _sites(plan)
    for component in plan.components:
        sites = found.get(component.name, [])
        if sites and _heads(sites, component, joinable):
            group = _grown(sites, joinable)
            for site in sites:
                site.after_checks = tuple(_from_outside(check, site, extents) for check in site.checks())
            plan = _linked(plan, component, group, profile.costs) if group.results else plan
            joinable.plan = plan = replace(plan, boundaries=tuple(_told(plan, component.name, group)))
            found = _sites(plan) if group.results else found
    return plan


def _from_outside(check: Check, site: "_Site", extents: Mapping[str, Extents]) -> Check:
    """The same check, of values from outside in the place of results that provably have their extents."""
    if not isinstance(check, SymbolCheck):
        return check
    known = {
        extent: (value, axis)
        for _, value in (*site.head.inputs, *site.outside)
        for axis, extent in enumerate(extents.get(value, ()))
    }
    places = []
    for value, axis, factor in check.places:
        own = extents.get(value, ()) if value in site.names else ()
        places.append((*known.get(own[axis], (value, axis)), factor) if axis < len(own) else (value, axis, factor))
    return replace(check, places=tuple(places))


def _heads(sites: "list[_Site]", component: Component, joinable: Joinable) -> bool:
    """Whether readers may be linked to it: a graph of its own session that no request replaces."""
    heads = [site.head for site in sites]
    if any(map(joinable.fixed, heads)) or component.overridable or component.edit is not None:
        return False
    graph = joinable.profile.graphs[component.name]
    heavy = any(op.held for op in heads) or weight_bytes(graph.model) > LIGHT
    return heavy and not graph.absent and not joinable.unlinkable(heads[0])


@dataclass
class _Site:
    """One place where the heavy graph runs: an op of a region. names: values from inside -> what the graph calls them.

    outside: what ports from outside are bound to, by the linked graph's names. readers: the invokes that joined.
    taken: what ports say of the shape of values from outside. after_checks: those that the linked graph's run needs.
    """

    region: tuple[Op, ...]
    at: int
    names: dict[str, str] = field(default_factory=dict)
    outside: list[tuple[str, str]] = field(default_factory=list)
    readers: list[Invoke] = field(default_factory=list)
    taken: dict[str, Shape] = field(default_factory=dict)
    after_checks: tuple[Check, ...] = ()

    @property
    def head(self) -> Invoke:
        op = self.region[self.at]
        assert isinstance(op, Invoke)
        return op

    def checks(self) -> Iterator[Check]:
        """What is checked when all of it has run."""
        for each in (self.head, *self.readers):
            yield from each.after

    def after(self) -> Iterator[Invoke]:
        """The invokes behind it, up to the next nested region."""
        for op in self.region[self.at + 1 :]:
            if isinstance(op, Loop | Branch):
                return
            if isinstance(op, Invoke) and not any(op is each for each in self.readers):
                yield op

    def known(self, value: str) -> bool:
        """Whether a value is there before the graph runs."""
        return value not in {each for op in self.region[self.at :] for each in defines(op)}

    def wiring(self, op: Invoke) -> tuple[str, Pairs, tuple[str, ...]]:
        """What is alike at all places: the component, its ports ("" for what comes from outside), its results."""
        return op.component, tuple((p, self.names.get(v, "")) for p, v in op.inputs), tuple(p for p, _ in op.outputs)


def _sites(plan: Plan) -> dict[str, list[_Site]]:
    """All places where a component runs, by its name; none where it runs in another way too."""
    found = dict[str, list[_Site]]()
    for region in _regions(plan.body):
        for at, op in enumerate(region):
            if isinstance(op, Invoke):
                found.setdefault(op.component, []).append(_Site(region, at))
    uses = Counter(op.component for op in walk(plan.body) if isinstance(op, Invoke))
    decoded = {op.component for op in walk(plan.body) if isinstance(op, Decode)}
    return {name: sites for name, sites in found.items() if len(sites) == uses[name] and name not in decoded}


def _regions(ops: tuple[Op, ...]) -> Iterator[tuple[Op, ...]]:
    yield ops
    for op in ops:
        match op:
            case Loop():
                yield from _regions(op.body)
            case Branch():
                for _, inner in op.cases:
                    yield from _regions(inner)
                yield from _regions(op.default or ())
            case _:
                pass


@dataclass
class _Group:
    """The heavy graph and its readers as one graph: its members, and what the readers add to inputs and results.

    refused: why readers at the first place did not join, by component and origin.
    """

    sites: list[_Site]
    members: list[Member]
    inputs: list[tuple[str, Type]] = field(default_factory=list)
    results: list[tuple[str, Type]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)

    def free(self, name: str) -> str:
        """A name that nothing inside has; it has one from now on."""
        name = free_name(name, self.taken)
        self.taken.add(name)
        return name


def _grown(sites: list[_Site], joinable: Joinable) -> _Group:
    """All readers that can join, in the order of the first place."""
    component = joinable.plan.component(sites[0].head.component)
    ports = tuple((name, name) for name, _ in component.inputs), tuple((name, name) for name, _ in component.outputs)
    head = Member(component.name, *ports, tuple(site.head.origin for site in sites))
    group = _Group(sites, [head], taken={name for pairs in ports for name, _ in pairs})
    for site in sites:
        site.names = {value: port for port, value in site.head.outputs}
        joinable.take(site.head, set(), site.taken)
    versions = joinable.opsets(component.name)
    for op in sites[0].after():
        alike = [_alike(sites[0].wiring(op), site, joinable) for site in sites]
        against = next((each for each in alike if isinstance(each, str)), "")
        against = against or versions.joined(joinable.opsets(op.component)).conflict()
        if against:
            group.refused[op.component, op.origin] = against
            continue
        versions = versions.joined(joinable.opsets(op.component))
        _join([each for each in alike if isinstance(each, Invoke)], group, joinable)
    return group


def _alike(wiring: tuple[str, Pairs, tuple[str, ...]], site: _Site, joinable: Joinable) -> Invoke | str:
    """The invoke at a place that is wired so and may join, else what is against it."""
    against = f"nothing reads '{site.head.component}' so at {site.head.origin}"
    for op in site.after():
        if site.wiring(op) == wiring and any(name for _, name in wiring[1]):
            against = _against(op, site, joinable)
            if not against:
                return op
    return against


def _against(op: Invoke, site: _Site, joinable: Joinable) -> str:
    """Why a reader can't join at a place, "" when it can."""
    late = next((value for _, value in op.inputs if value not in site.names and not site.known(value)), "")
    if late:
        return f"'{op.component}' also reads %{late}, which is made later"
    looked = {value for check in op.before for value in checked_values(check)} & set(site.names)
    if looked:
        return f"nothing proves the extents of %{min(looked)}, which are compared before '{op.component}' runs"
    if joinable.plan.component(op.component).overridable:
        return f"a request may replace '{op.component}'"
    if reason := joinable.reason(op):
        return f"'{op.component}' runs alone: {reason}"
    return joinable.misfit(op, set(site.names), site.taken)


def _told(plan: Plan, head: str, group: _Group) -> Iterator[Boundary]:
    """The boundaries behind the heavy graph, without those that are gone, for the reasons that readers did not join."""
    joined = {(op.component, op.origin) for site in group.sites for op in site.readers}
    refused = {
        (name, origin): why if name == component else f"'{name}' is linked with others already"
        for (component, origin), why in group.refused.items()
        for name in _names(plan, component)
    }
    inside = {head, *(name for name, _ in joined)}
    for each in plan.boundaries:
        at = each.second, each.origin
        if each.first not in inside or at not in joined:
            yield replace(each, why=refused.get(at, each.why)) if each.first == head else each


def _names(plan: Plan, component: str) -> tuple[str, ...]:
    """The components whose graphs are in one."""
    edit = plan.component(component).edit
    return tuple(each.component for each in edit.members) if isinstance(edit, Linked) else (component,)


def _join(ops: list[Invoke], group: _Group, joinable: Joinable) -> None:
    """Make one reader a member: `ops` are its invokes, one a place."""
    component = joinable.plan.component(ops[0].component)
    types = dict((*component.inputs, *component.outputs))
    bound = {port: group.sites[0].names.get(value, "") for port, value in ops[0].inputs}
    named = {port: name or group.free(f"{component.name}.{port}") for port, name in bound.items()}
    made = {port: group.free(f"{component.name}.{port}") for port, _ in ops[0].outputs}
    group.inputs += [(named[port], types[port]) for port in named if not bound[port]]
    group.results += [(made[port], types[port]) for port in made]
    origins = tuple(op.origin for op in ops)
    group.members.append(Member(component.name, tuple(named.items()), tuple(made.items()), origins))
    for op, site in zip(ops, group.sites, strict=True):
        joinable.take(op, set(site.names), site.taken)
        site.outside += [(named[port], value) for port, value in op.inputs if not bound[port]]
        site.names |= {value: made[port] for port, value in op.outputs}
        site.readers.append(op)


def _linked(plan: Plan, component: Component, group: _Group, costs: Costs) -> Plan:
    """Every place runs the linked graph; the readers' own places are empty."""
    shown = _shown(plan, component.name, group)
    outputs = tuple(each for each in (*component.outputs, *group.results) if each[0] in shown)
    name = free_name(f"{component.name}_linked", [each.name for each in plan.components])
    made = replace(
        component,
        name=name,
        artifact="",
        inputs=(*component.inputs, *group.inputs),
        outputs=outputs,
        edit=Linked(tuple(group.members), tuple(port for port, _ in outputs)),
    )
    placed: dict[int, Invoke | None] = {id(op): None for site in group.sites for op in site.readers}
    placed.update((id(site.head), _run(site, name, shown)) for site in group.sites)
    groups = tuple(replace(each, component=name) if each.component == component.name else each for each in plan.groups)
    note = f"link_readers: {name} is {' + '.join(each.component for each in group.members)}: one run instead of "
    saved = _saved(group.sites[0], placed, costs)
    return replace(
        plan,
        body=tuple(_rewritten(plan.body, placed)),
        components=(*plan.components, made),
        groups=groups,
        decisions=(*plan.decisions, f"{note}{len(group.members)}, {saved:.1f} us less"),
    )


def _saved(site: _Site, placed: Mapping[int, Invoke | None], costs: Costs) -> float:
    """Microseconds that the linked run takes less at a place than its members did."""
    apart, run = (site.head, *site.readers), placed[id(site.head)] or site.head
    return costs.saved(((len(each.inputs), len(each.outputs)) for each in apart), len(run.inputs), len(run.outputs))


def _shown(plan: Plan, component: str, group: _Group) -> set[str]:
    """What leaves the linked graph, by its names: what anything else reads at some place, and cells in place."""
    inside = {id(op) for site in group.sites for op in (site.head, *site.readers)}
    read = {value for site in group.sites for _, value in (*site.head.inputs, *site.outside)}
    read |= {value for site in group.sites for check in site.after_checks for value in checked_values(check)}
    shown = set[str]()
    for op in walk(plan.body):
        read.update(own_reads(op) if id(op) not in inside else ())
        if isinstance(op, Invoke):
            checks = (*op.before, *op.after) if id(op) not in inside else op.before
            read.update(value for check in checks for value in checked_values(check))
        if isinstance(op, Hold) and op.run.component == component:
            shown.update(port for _, port in op.pairs)
    return shown | {name for site in group.sites for value, name in site.names.items() if value in read}


def _run(site: _Site, name: str, shown: set[str]) -> Invoke:
    members = (site.head, *site.readers)
    return replace(
        site.head,
        component=name,
        inputs=(*site.head.inputs, *site.outside),
        outputs=tuple((port, value) for value, port in site.names.items() if port in shown),
        before=tuple(check for each in members for check in each.before),
        after=site.after_checks,
    )


def _rewritten(ops: tuple[Op, ...], placed: Mapping[int, Invoke | None]) -> Iterator[Op]:
    """The ops with others in their place, or none. A group is held with the run that uses its buffers."""
    held = {run.held: run for run in placed.values() if run is not None and run.held}
    for op in ops:
        match op:
            case Invoke():
                run = placed.get(id(op), op)
                yield from () if run is None else (run,)
            case Hold() if op.group in held:
                yield replace(op, run=held[op.group])
            case Loop():
                yield replace(op, body=tuple(_rewritten(op.body, placed)))
            case Branch():
                cases = tuple((key, tuple(_rewritten(inner, placed))) for key, inner in op.cases)
                default = tuple(_rewritten(op.default, placed)) if op.default is not None else None
                yield replace(op, cases=cases, default=default)
            case _:
                yield op
