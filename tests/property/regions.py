"""Steps, loops and branches of a made workflow."""

from collections.abc import Sequence

from tests.property.components import BY_NAME, EXACT
from tests.property.emits import finish_outputs, make_emit
from tests.property.kinds import FREE, Document, Kind, contract, mat, one, row, scalar
from tests.property.packages import Maker, Package
from tests.property.patterns import PATTERNS, Pattern
from tests.property.scopes import Scope, Value

NESTING = 3


def make_package(maker: Maker, pattern: Pattern | None = None) -> Package:
    """A whole package. pattern: a part that it has; else one in three packages has one, any of them."""
    root = Scope()
    for _ in range(maker.dice.randrange(1, 4)):
        root.values.append(maker.input(maker.any_kind(), root, literal=False))
    for _ in range(maker.dice.randrange(3)):
        root.values.append(maker.input(maker.any_kind(), root, literal=True))
    for kind in (row("int64"), mat("int64", 1)):
        root.values.append(maker.input(kind, root, literal=False))
    if maker.chance(25):
        role, kind = maker.dice.choice((
            ("seed", one("int64")), ("guidance_scale", one("float32")), ("width", scalar("int64")),
            ("sampling_temperature", one("float32")), ("sampling_top_k", one("int64")),
        ))  # fmt: skip
        root.values.append(maker.role_input(role, kind))
    serving: Document | None = None
    steps: list[Document] = []
    if pattern is not None or maker.chance(35):
        pattern = pattern or maker.dice.choice([each for each in PATTERNS if each.rowwise or not maker.rowwise])
        maker.used(f"pattern {pattern.name}")
        more, serving = pattern.make(maker, root)
        steps += more
    steps += make_steps(maker, root, at_least=2)
    for _ in range(maker.dice.randrange(1, 3)):
        steps += make_emit(maker, root)
    finish_outputs(maker)
    return maker.package(steps, serving)


def make_steps(maker: Maker, scope: Scope, at_least: int = 1) -> list[Document]:
    """Steps of one region, never none."""
    steps: list[Document] = []
    for _ in range(maker.dice.randrange(at_least, at_least + 3)):
        maker.budget -= 1
        throw = maker.dice.randrange(100)
        if throw < 22 and scope.nested < NESTING and maker.budget > 0:
            steps += make_loop(maker, scope)
        elif throw < 34 and maker.budget > 0:
            steps += make_branch(maker, scope)
        elif throw < 55:
            steps += make_emit(maker, scope)
        elif throw < 60 and steps:
            maker.used("sequence")
            steps = [{"kind": "sequence", "steps": steps}]
        elif throw < 65:
            steps += make_copy(maker, scope)
        else:
            steps += maker.invoke(scope)
    return steps or maker.invoke(scope)


def make_copy(maker: Maker, scope: Scope) -> list[Document]:
    """An identity binding of one or two ports."""
    pool = scope.where(lambda each: each.declared)
    if not pool:
        return maker.invoke(scope)
    given = [maker.dice.choice(pool[-8:]) for _ in range(maker.dice.randrange(1, 3))]
    name = maker.name("copy").replace(".", "_")
    ports = {f"p{at}": maker.port(each.kind) for at, each in enumerate(given)}
    maker.components[name] = {"implementation": {"kind": "binding"}, "ports": {"inputs": ports, "outputs": ports}}
    outputs = [Value(maker.name("copied"), each.kind, each.local) for each in given]
    scope.values += outputs
    maker.used("binding")
    bound = [{f"p{at}": each.name for at, each in enumerate(side)} for side in (given, outputs)]
    return [{"kind": "invoke", "component": name, "inputs": bound[0], "outputs": bound[1]}]


# ---- branches --------------------------------------------------------------------------------------------------------


def make_branch(maker: Maker, scope: Scope) -> list[Document]:
    """A branch on a bool, an integer, or the presence of an input."""
    if not scope.in_branch and maker.chance(25):
        return _presence(maker, scope)
    kind = maker.dice.choice((one("bool"), scalar("bool"), one("int64"), scalar("int32"), scalar("int64")))
    predicate = maker.find(kind, scope)
    if kind.dtype != "bool" and predicate.name in maker.inputs:
        maker.limits[predicate.name] = 2
    boolean = kind.dtype == "bool"
    keys = ["true", "false"] if boolean else maker.dice.sample(["0", "1", "2", "-1", "7"], maker.dice.randrange(1, 4))
    if boolean and maker.chance(25):
        keys = [maker.dice.choice(keys)]
    step: Document = {"kind": "branch", "predicate": predicate.name, "cases": {}}
    regions = {key: scope.inner(branch=True) for key in keys}
    step["cases"] = {key: _case(maker, region) for key, region in regions.items()}
    if (boolean and len(keys) == 1) or (not boolean and maker.chance(88)):
        regions["default"] = scope.inner(branch=True)
        step["default"] = _case(maker, regions["default"])
        maker.used("branch default")
    maker.used(f"branch {'bool' if boolean else 'integer'}")
    return [*_with_joins(maker, scope, step, regions)]


def _case(maker: Maker, scope: Scope) -> Document:
    steps = make_steps(maker, scope)
    return steps[0] if len(steps) == 1 else {"kind": "sequence", "steps": steps}


def _with_joins(maker: Maker, scope: Scope, step: Document, regions: dict[str, Scope]) -> list[Document]:
    """The branch with phi outputs; a case that lacks a value of the kind gets a step that makes one."""
    outputs: Document = {}
    for _ in range(maker.dice.randrange(3)):
        first = maker.dice.choice(list(regions))
        pool = regions[first].where(lambda each: each.declared and not each.kind.free)
        if not pool:
            continue
        kind = maker.dice.choice(pool[-6:]).kind
        phi: Document = {"cases": {}}
        local = True
        for key, region in regions.items():
            known = _of_kind(maker, region, kind)
            source = maker.dice.choice(known[-4:]) if known else maker.find(kind, region)
            local = local and source.local
            if key == "default":
                phi["default"] = source.name
            else:
                phi["cases"][key] = source.name
        name = maker.name("joined")
        outputs[name] = phi
        scope.values.append(Value(name, kind, local))
        maker.used("join")
    if outputs:
        step["outputs"] = outputs
    return [step]


def _of_kind(maker: Maker, scope: Scope, kind: Kind) -> list[Value]:
    return scope.where(lambda each: each.kind == kind and each.declared and (each.local or not maker.rowwise))


def _presence(maker: Maker, scope: Scope) -> list[Document]:
    """An optional input, read only where it is known to be there."""
    kind = maker.any_kind()
    name, presence = maker.name("maybe"), maker.name("has")
    maker.inputs[name] = {
        "contract": contract(kind),
        "role": {"kind": "opaque"},
        "source": {"kind": "application", "name": name},
        "required": False,
        "present_as": presence,
    }
    maker.kinds[name] = kind
    inside, outside = scope.inner(branch=True), scope.inner(branch=True)
    inside.values.append(Value(name, kind))
    cases = {"true": _case(maker, inside)}
    regions = {"true": inside}
    step: Document = {"kind": "branch", "predicate": presence, "cases": cases}
    if maker.chance(50):
        cases["false"], regions["false"] = _case(maker, outside), outside
    else:
        step["default"], regions["default"] = _case(maker, outside), outside
    maker.used("present_as")
    return _with_joins(maker, scope, step, regions)


# ---- loops -----------------------------------------------------------------------------------------------------------


def make_loop(maker: Maker, scope: Scope) -> list[Document]:
    """A loop with setup, cells of every recurrence, and a predicate for all rows or for each."""
    step: Document = {"kind": "loop"}
    if maker.chance(40):
        step["setup"] = [each for _ in range(maker.dice.randrange(1, 3)) for each in maker.invoke(scope)]
        maker.used("setup")
    limit = maker.control(scope)
    body = scope.inner(loop=True)
    live, carried, after = _predicate(maker, scope, body)
    step |= {"steps": [], "continue_when": live, "max_iterations": limit.name}
    ends_rows = bool(body.guards)
    cells = [_cell(maker, scope, body, ends_rows) for _ in range(maker.dice.randrange(4))]
    if maker.chance(30):
        step["iteration"] = _induction(maker, body)
    if maker.chance(20):
        step["termination"] = maker.dice.choice(("generation_eos", "generation_eos", "predicate"))
        maker.used(f"termination {step['termination']}")
    steps = make_steps(maker, body)
    made: list[tuple[Value, str]] = []
    for value, law in cells:
        more, following = _next(maker, value, law, body, [each for each, _ in cells])
        steps += more
        made.append((value, following))
    if carried is not None:
        more, following = after(maker, body)
        steps += more
        made.append((carried, following))
    step["steps"] = steps
    if made:
        maker.dice.shuffle(made)
        step["carried"] = [{"cell": value.name, **_initial(maker, scope, value), "next": name} for value, name in made]
    scope.values += [value for value, _ in made]
    maker.used(f"loop nested {scope.nested}")
    return [step]


def _initial(maker: Maker, scope: Scope, value: Value) -> Document:
    """Now and then a carry starts from something else than the cell's initializer."""
    if not maker.chance(12) or value.kind.free:
        return {}
    maker.used("carry initial")
    return {"initial": maker.find(value.kind, scope).name}


def _predicate(maker: Maker, scope: Scope, body: Scope):  # type: ignore[no-untyped-def]
    """What the loop goes on by: (name, the cell that carries it, how its next value is made)."""
    throw = maker.dice.randrange(100)
    if throw < 35:
        start = maker.input(maker.dice.choice((one("bool"), scalar("bool"))), scope, literal=True, default=True)
        return start.name, None, None
    if throw < 45:
        return maker.find(maker.dice.choice((one("bool"), scalar("bool"))), scope).name, None, None
    kind = one("bool") if throw < 55 else row("bool")
    start = maker.find(kind, scope)
    cell = _declare(maker, kind, start, {"kind": "invariant"}, scope)
    body.values.append(cell)
    if kind.rows:
        body.guards = (*body.guards, cell) if maker.rowwise else body.guards
        maker.used("rows end one by one")

    def following(maker: Maker, body: Scope) -> tuple[list[Document], str]:
        if maker.chance(15):
            return [], cell.name
        if kind.rows is None:
            steps, value = maker.made_as(kind, body)
            return steps, value.name
        source = maker.find(maker.dice.choice((row("int64"), row("int32"))), body)
        steps, (value,) = maker.apply(BY_NAME["less"], [source], body)
        return steps, value.name

    return cell.name, cell, following


def _induction(maker: Maker, body: Scope) -> Document:
    kind = maker.dice.choice((scalar("int64"), one("int64"), scalar("int64")))
    name = maker.name("i")
    body.values.append(Value(name, kind))
    maker.used(f"induction rank {kind.rank}")
    return {"value": name, "contract": contract(kind)}


def _declare(maker: Maker, kind: Kind, start: Value, law: Document, scope: Scope, **more: object) -> Value:
    name = maker.name("cell")
    free = None
    if law["kind"] != "invariant":
        free = f"{name}.extent"
    spec: Document = {"contract": contract(kind, free), "scope": "invocation", "initializer": start.name}
    spec |= {"recurrence": law, **more}
    if not scope.in_branch and not maker.rowwise and maker.chance(20):
        spec["scope"] = "session"
        if maker.chance(30):
            spec["session"] = {"policy": "exclusive"}
        maker.used("session cell")
    if maker.chance(6):
        spec["class"] = "advisory"
    maker.state[name] = spec
    maker.used(f"cell {law['kind']}")
    return Value(name, kind, cell=True)


def _cell(maker: Maker, scope: Scope, body: Scope, ends_rows: bool) -> tuple[Value, str]:
    """A cell and its law, visible in the body."""
    pool = scope.where(lambda each: each.declared and (each.local or not maker.rowwise) and _carriable(each.kind))
    start = maker.dice.choice(pool[-8:]) if pool and not maker.chance(30) else maker.input(_cell_kind(maker), scope)
    law, kind, matrix = "invariant", start.kind, start.kind.rank == 2 and start.kind.rows == (0, 1)
    spec: Document = {"kind": "invariant"}
    if matrix and kind.dtype in EXACT and not (ends_rows and maker.rowwise) and maker.chance(65):
        law = maker.dice.choice(("growing", "bounded"))
        kind = mat(kind.dtype, FREE)
        limit = maker.input(maker.dice.choice((one("int64"), scalar("int64"))), scope, literal=maker.chance(70),
                            default=maker.dice.choice((3, 50, 50, 50)))  # fmt: skip
        spec = {"kind": law, "axis": 1, "max": limit.name}
        if law == "growing":
            spec["increment"] = maker.input(one("int64"), scope, literal=True, default=1).name
    value = _declare(maker, kind, start, spec, scope)
    value = Value(value.name, kind, start.local, cell=True)
    body.values.append(value)
    return value, law


def _carriable(kind: Kind) -> bool:
    return not kind.dtype.startswith("float8") and (not kind.free or kind.rows == (0, 1))


def _cell_kind(maker: Maker) -> Kind:
    dtype = maker.dice.choice(EXACT)
    return maker.dice.choice((row(dtype), mat(dtype, 1), mat(dtype, 2), one(dtype), mat(dtype, "length"),
                              Kind(dtype, ("batch",), (0, 2)), Kind(dtype, (2, "batch"), (1, 1))))  # fmt: skip


def _next(maker: Maker, cell: Value, law: str, body: Scope, cells: Sequence[Value]) -> tuple[list[Document], str]:
    """Steps that make a cell's next value, and its name."""
    if law in ("growing", "bounded"):
        column = maker.find(mat(cell.kind.dtype, 1), body)
        steps, (value,) = maker.apply(BY_NAME["concat"], [cell, column], body)
        if law == "bounded" and maker.chance(50):
            more, (value,) = maker.apply(BY_NAME["keep2"], [value], body)
            steps += more
        return steps, value.name
    if maker.chance(12):
        return [], cell.name
    if maker.chance(20):
        swaps = [each.name for each in cells if each.kind == cell.kind and each is not cell and not each.kind.free]
        if swaps:
            maker.used("carry swap")
            return [], maker.dice.choice(swaps)
    known = body.where(lambda each: each.kind == cell.kind and each.declared and not each.kind.free
                       and (each.local or not maker.rowwise))  # fmt: skip
    if known and maker.chance(30):
        return [], maker.dice.choice(known[-5:]).name
    steps, value = maker.made_as(cell.kind, body, cell)
    return steps, value.name
