"""Emits of a made workflow: outputs, modes, guards, prefixes (standard 3.6)."""

from tests.property.components import BY_NAME
from tests.property.kinds import FREE, Document, Kind, contract, one, row, scalar
from tests.property.packages import Maker
from tests.property.scopes import Scope, Value


def make_emit(maker: Maker, scope: Scope) -> list[Document]:
    """Steps that publish one value; [] when none can be."""
    pool = scope.where(lambda each: each.declared and _emittable(maker, each, scope))
    if not pool:
        return []
    value = maker.dice.choice(pool[-10:])
    steps: list[Document] = []
    made: Document = {"kind": "emit", "value": value.name}
    rows = value.kind.rows == (0, 1)
    if rows and (scope.guards or maker.chance(40)):
        steps += _guarded(maker, scope, made)
    if rows and value.kind.rank > 1 and maker.chance(25):
        steps += _cut(maker, scope, value, made)
    rowwise = "when" in made or "valid_length" in made
    mode = maker.dice.choice(("replace", "append", "event"))
    if mode == "append" and value.kind.rank == 0:
        mode = "event"
    axis = value.kind.rank - 1
    if value.kind.rank > 1 and maker.chance(40):
        made["axis"] = axis = maker.dice.randrange(1 if rowwise else 0, value.kind.rank)
    elif maker.chance(10) and axis >= 0:
        made["axis"] = axis
    grows = mode == "append" or "valid_length" in made
    if rowwise and value.kind.rank == 1 and mode == "append" and not maker.chance(10):
        mode, grows = "event", False
    made |= {"output": _output(maker, value, axis if grows else None, rowwise, mode), "mode": mode}
    maker.used(f"emit {mode}{' by row' if rowwise else ''}")
    return [*steps, made]


def _emittable(maker: Maker, value: Value, scope: Scope) -> bool:
    if maker.serving and value.kind.rows is None and value.kind.rank:
        return False
    if maker.rowwise and value.kind.rows is None:
        return not scope.guards and value.local
    if maker.rowwise and not value.local:
        return False
    return not scope.guards or value.kind.rows == (0, 1)


def _guarded(maker: Maker, scope: Scope, made: Document) -> list[Document]:
    maker.used("emit when")
    if scope.guards:
        guard, steps = scope.guards[0], list[Document]()
        for each in scope.guards[1:]:
            more, (guard,) = maker.apply(BY_NAME["and"], [guard, each], scope)
            steps += more
        if maker.chance(25):
            more, (guard,) = maker.apply(BY_NAME["and"], [guard, maker.find(row("bool"), scope)], scope)
            steps += more
        made["when"] = guard.name
        return steps
    kind = maker.dice.choice((row("bool"), row("bool"), one("bool"), scalar("bool")))
    made["when"] = maker.find(kind, scope).name
    return []


def _cut(maker: Maker, scope: Scope, value: Value, made: Document) -> list[Document]:
    """A prefix of the value: its length a row, or one for all."""
    maker.used("emit valid_length")
    kind = maker.dice.choice((row("int64"), row("int64"), one("int64"), row("int32"), scalar("int64")))
    literal = maker.chance(30)
    most = value.kind.dims[1] if isinstance(value.kind.dims[1], int) else 1
    default = maker.dice.randrange(most + 1) if literal else None
    length = maker.small(maker.input(kind, scope, literal=literal, default=default, defaults=False), most)
    made["valid_length"] = length.name
    return []


def _output(maker: Maker, value: Value, grows: int | None, rowwise: bool, mode: str) -> str:
    """An output that takes the value: one that is declared already, or a new one."""
    free = [axis for axis, dim in enumerate(value.kind.dims) if dim == FREE]
    form = (value.kind, grows, rowwise, bool(free))
    known = [name for name, spec in maker.outputs.items() if spec["."] == form]
    if known and maker.chance(40):
        maker.used("output of several emits")
        return maker.dice.choice(known)
    name = maker.name("out")
    if free or (grows is not None and not maker.chance(8)):
        dims = [f"{name}.{axis}" if axis == grows or dim == FREE else dim for axis, dim in enumerate(value.kind.dims)]
        made: Document = {"dtype": value.kind.dtype, "rank": value.kind.rank, "shape": dims}
        made |= {key: each for key, each in contract(value.kind).items() if key == "batch_layout"}
        if set(free) - {grows}:
            del made["shape"]
    else:
        made = contract(value.kind)
    if rowwise and value.kind.rows is None:
        raise AssertionError("a guarded output has rows")
    maker.outputs[name] = {"contract": made, "role": "tensor", "stage": "pre_adapter", ".": form}
    return name


def finish_outputs(maker: Maker) -> None:
    """Drop what only the making of outputs needed to know."""
    for spec in maker.outputs.values():
        del spec["."]


def kind_of(contract: Document) -> Kind:
    """The kind that a contract of this generator declares."""
    rows = contract.get("batch_layout")
    dims = tuple(contract.get("shape") or [FREE] * contract["rank"])
    return Kind(contract["dtype"], dims, (rows["axis"], rows.get("factor", 1)) if rows else None)
