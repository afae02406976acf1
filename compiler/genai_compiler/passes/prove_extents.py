"""Drop checks of extents that hold in every run: between inputs and cells of one symbol, and what operators imply.

Before:  %t = invoke sample(logits=%logits, seed=%seed)
           check batch: %logits[0] = %seed[0] = %done[0]
           check batch: %t[0] = %next[0]
After:   %t = invoke sample(logits=%logits, seed=%seed)

Binding holds inputs of one symbol together, a loop's entry holds its cells to the same symbols, and every iteration
keeps the shape of an invariant cell. Extents of results follow from the component's own operators (ONNX shape
inference, without the file's claims about its outputs). A check that stays is a fact for what comes after it. An
invariant cell whose next value provably has its shape is not compared either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from genai_compiler.passes.profile import Inferred, Profile
from genai_compiler.plan.ir import (
    Branch,
    CapacityCheck,
    Carry,
    Cell,
    Check,
    Copy,
    ExtentCheck,
    FormCheck,
    Invoke,
    Loop,
    Op,
    Plan,
    SymbolCheck,
    Type,
)
from genai_compiler.plan.uses import defines, walk
from genai_compiler.read.extents import Extent, Extents, output_extents


def prove_extents(plan: Plan, profile: Profile) -> Plan:
    """The plan without checks that can't fail."""
    known = _Known(plan, profile)
    body = _whole(known)
    if any(isinstance(op, Loop) for op in walk(body)):
        body = _all_as_steady(body, proved(irreplaceable(plan), profile)[0])
    if body == plan.body:
        return plan
    note = f"prove_extents: {known.dropped} comparisons of extents hold in every run and are not made"
    return replace(plan, body=body, decisions=(*plan.decisions, note))


def irreplaceable(plan: Plan) -> Plan:
    """The plan as it runs for a request that replaces no component."""
    return replace(plan, components=tuple(replace(each, overridable=False) for each in plan.components))


def _all_as_steady(ops: tuple[Op, ...], others: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(_as_steady(*pair) for pair in zip(ops, others, strict=True))


def _as_steady(op: Op, other: Op) -> Op:
    """An op whose loops say what the same loops of the other say to be steady."""
    match op, other:
        case Loop(), Loop():
            return replace(op, body=_all_as_steady(op.body, other.body), steady=other.steady)
        case Branch(), Branch():
            cases = tuple(
                (key, _all_as_steady(ops, others))
                for (key, ops), (_, others) in zip(op.cases, other.cases, strict=True)
            )
            default = _all_as_steady(op.default, other.default or ()) if op.default is not None else None
            return replace(op, cases=cases, default=default)
        case _:
            return op


def proved(plan: Plan, profile: Profile) -> tuple[tuple[Op, ...], Mapping[str, Extents]]:
    """(the plan's body without such checks, extents of values whose rank is certain, as numbers and symbols).

    Each unknown extent has a name of its own.
    """
    known = _Known(plan, profile)
    body = _whole(known)
    return body, {value: extents for value, extents in known.extents.items() if value not in known.unsure}


def _whole(known: "_Known") -> tuple[Op, ...]:
    for each in known.plan.inputs:
        known.extents[each.name] = known.named(each.name, each.type)
        if each.present_as:
            known.extents[each.present_as] = ()
    return _region(known.plan.body, known)


@dataclass
class _Known:
    """What is known at one place of the plan.

    same: an extent -> the one that a check has found equal to it. unsure: values whose rank is only what a file claims.
    """

    plan: Plan
    profile: Profile
    extents: dict[str, Extents] = field(default_factory=dict)
    same: dict[Extent, Extent] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    dropped: int = 0

    def of(self, value: str, axis: int) -> Extent:
        """The extent of a value on an axis, in its simplest form."""
        extents = self.extents.get(value, ())
        extent: Extent = extents[axis] if axis < len(extents) else _own(value, axis)
        while extent in self.same:
            extent = self.same[extent]
        return extent

    def whole(self, value: str) -> Extents:
        """All extents of a value in their simplest form."""
        return tuple(self.of(value, axis) for axis in range(self.plan.types[value].rank))

    def ranked(self, value: str, held: bool) -> bool:
        """Whether the value's rank is certain. held: a port states one, which the session compares."""
        return self.plan.types[value].ranked and (held or value not in self.unsure)

    def named(self, value: str, type: Type) -> Extents:
        """The extents of a value whose symbols are the package's own."""
        return tuple(_declared(type, axis, _own(value, axis)) for axis in range(type.rank))

    def equate(self, extents: list[Extent]) -> None:
        """From here on these are one extent."""
        first, *others = sorted(set(extents), key=lambda each: (isinstance(each, str), str(each)))
        self.same.update((each, first) for each in others if isinstance(each, str))


def _own(value: str, axis: int) -> str:
    """The name of an extent that nothing is known of. Names are any texts: each kind begins with a sign of its own."""
    return f"@{axis} {value}"


def _named(symbol: str, factor: int = 1) -> str:
    """The name of the extent that a symbol stands for, a number of times."""
    return f"*{factor} {symbol}" if factor != 1 else f"${symbol}"


def _declared(type: Type, axis: int, other: str) -> Extent:
    """The extent that a type states, else `other`."""
    dim = type.dims[axis]
    if isinstance(dim, str):
        return _named(dim, type.row_factor if axis == type.row_axis else 1)
    return other if dim is None else dim


def _region(ops: tuple[Op, ...], known: _Known) -> tuple[Op, ...]:
    return tuple(_proved(op, known) for op in ops)


def _proved(op: Op, known: _Known) -> Op:
    match op:
        case Invoke():
            return _invoke(op, known)
        case Copy() if not op.merges:
            known.unsure.update(target for source, target in op.pairs if source in known.unsure)
            for source, target in op.pairs:
                known.extents[target] = known.whole(source)
            return op
        case Loop() if all(carry.declared for carry in op.carried):
            return _loop(op, known)
        case Branch():
            return _branch(op, known)
        case _:
            known.unsure.update(defines(op))
            for value in defines(op):
                known.extents[value] = tuple(_own(value, axis) for axis in range(known.plan.types[value].rank))
            return op


def _invoke(op: Invoke, known: _Known) -> Invoke:
    before = _kept(op.before, known)
    made = _results(op, known)
    for port, value in op.outputs:
        rank = known.plan.types[value].rank
        extents = made.get(port, ())
        if port not in made or len(extents) != rank:
            known.unsure.add(value)
            extents = (None,) * rank
        known.extents[value] = tuple(
            _own(value, axis) if extent is None else extent for axis, extent in enumerate(extents)
        )
    return replace(op, before=before, after=_kept(op.after, known))


def _results(op: Invoke, known: _Known) -> Inferred:
    """Extents of the results by port, from the graph alone; what may be replaced promises nothing."""
    component, graph = known.plan.component(op.component), known.profile.graphs.get(op.component)
    if graph is None or component.overridable or component.adapter is not None:
        return {}
    stated = {each.name for each in (*graph.signature.inputs, *graph.signature.defaulted) if each.shape is not None}
    given = tuple(
        (port, known.whole(value) if known.ranked(value, port in stated) else None) for port, value in op.inputs
    )
    key, answers = (op.component, given), known.profile.inferred
    if key not in answers:
        answers[key] = output_extents(graph.model, dict(given))
    return answers[key]


def _kept(checks: tuple[Check, ...], known: _Known) -> tuple[Check, ...]:
    """The checks that are not proved; each is a fact from then on."""
    kept: list[Check] = []
    for check in checks:
        match check:
            case ExtentCheck():
                extent = known.of(check.value, check.axis)
                if extent == check.extent:
                    known.dropped += 1
                    continue
                known.equate([extent, check.extent])
                kept.append(check)
            case SymbolCheck():
                kept.extend(_symbol_check(check, known))
            case FormCheck() | CapacityCheck():
                kept.append(check)
    return tuple(kept)


def _symbol_check(check: SymbolCheck, known: _Known) -> tuple[SymbolCheck, ...]:
    """The check with one place for each extent that is not known to be another's."""
    units = {place: _unit(known.of(place[0], place[1]), place[2]) for place in check.places}
    first = {unit: place for place, unit in reversed(units.items())}
    places = tuple(place for place in check.places if first[units[place]] == place)
    known.dropped += len(check.places) - len(places)
    if len(places) == 1:
        return () if places[0][2] == 1 or not _is_divided(units[places[0]]) else (check,)
    if all(factor == 1 for _, _, factor in places):
        known.equate(list(first))
    return (replace(check, places=places),)


def _unit(extent: Extent, factor: int) -> Extent:
    """An extent divided by a factor; a name of its own where that is not known to be whole."""
    if factor == 1:
        return extent
    if isinstance(extent, int):
        return extent // factor if extent % factor == 0 else f"/{factor} {extent}"
    times, _, symbol = extent.partition(" ")
    return _named(symbol) if times == f"*{factor}" else f"/{factor} {extent}"


def _is_divided(unit: Extent) -> bool:
    return isinstance(unit, str) and unit.startswith("/")


def _loop(op: Loop, known: _Known) -> Loop:
    cells = {carry.cell: known.plan.cell(carry.declared) for carry in op.carried}
    for value, cell in cells.items():
        type = cell.type if cell.recurrence == "invariant" else cell.type.with_dim(cell.axis, None)
        known.extents[value] = known.named(value, type)
    if op.iteration:
        known.extents[op.iteration] = known.named(op.iteration, known.plan.types[op.iteration])
    before = dict(known.same)
    body = _region(op.body, known)
    carried = tuple(replace(carry, proved=_keeps_shape(carry, cells[carry.cell], known)) for carry in op.carried)
    known.dropped += sum(carry.proved for carry in carried)
    steady = _steady(op, cells, known)
    known.same = before
    return replace(op, body=body, carried=carried, steady=steady)


def _steady(op: Loop, cells: Mapping[str, Cell], known: _Known) -> tuple[str, ...]:
    """Values of a body that have the same extents in every iteration, or that an invariant cell holds to its own."""
    made = {value for each in walk(op.body) for value in defines(each)}
    varying = {*made, *cells, op.iteration}
    held = {carry.next for carry in op.carried if cells[carry.cell].recurrence == "invariant"}
    sure = (value for value in made if known.plan.types[value].ranked and value not in known.unsure)
    same = {value for value in sure if not _depends(known.whole(value), varying)}
    return tuple(sorted(same | (held & made)))


def _depends(extents: Extents, values: set[str]) -> bool:
    """Whether an extent is one of which only a name is known, and the name is of one of these values."""
    names = (each.partition(" ") for each in extents if isinstance(each, str))
    return any(not sign.startswith(("$", "*")) and name in values for sign, _, name in names)


def _keeps_shape(carry: Carry, cell: Cell, known: _Known) -> bool:
    following = known.plan.types[carry.next]
    if cell.recurrence != "invariant" or not following.ranked or following.rank != cell.type.rank:
        return False
    return known.whole(carry.next) == known.whole(carry.cell)


def _branch(op: Branch, known: _Known) -> Branch:
    before, cases, default = dict(known.same), [], op.default
    for key, ops in op.cases:
        cases.append((key, _region(ops, known)))
        known.same = dict(before)
    if default is not None:
        default = _region(default, known)
        known.same = dict(before)
    for join in op.joins:
        sources = [*(value for _, value in join.cases), *((join.default,) if join.default else ())]
        known.unsure.update([join.name] if known.unsure.intersection(sources) else [])
        columns = zip(*(known.whole(value) for value in sources), strict=False)
        known.extents[join.name] = tuple(
            extents[0] if len(set(extents)) == 1 else _own(join.name, axis) for axis, extents in enumerate(columns)
        )
    return replace(op, cases=tuple(cases), default=default)
