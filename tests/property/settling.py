"""Loops of one token an iteration, long enough to settle; and how often one row has settled in such a loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from genai_runtime import abi

from tests.property.components import BY_NAME
from tests.property.kinds import FREE, Document, Kind, contract, mat, one, row
from tests.property.packages import Maker
from tests.property.scopes import Scope, Value

TAKEN = [0]
"""How often executors that were imported within `count_settled` have taken the shorter way."""
SHORTEST, LONGEST = 12, 40


@contextmanager
def count_settled() -> Iterator[None]:
    """Executors that are imported meanwhile tell when they take the shorter way."""
    real = abi.settled

    def counted(*runs: Any) -> bool:
        taken = real(*runs)
        TAKEN[0] += taken
        return taken

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(abi, "settled", counted)
        yield


def settling(maker: Maker, scope: Scope) -> tuple[list[Document], None]:
    """Cells of one number a row become what some operations make of them; one is published, now and then guarded."""
    limit = maker.input(one("int64"), scope, literal=True, default=maker.dice.randrange(SHORTEST, LONGEST + 1))
    body = Scope(nested=1)
    kinds = [mat(maker.dice.choice(("int64", "int64", "int32")), 1)]
    kinds += [maker.dice.choice((mat("int64", 1), mat("int32", 1), row("int64"), row("bool"), mat("float32", 1)))
              for _ in range(maker.dice.randrange(3))]  # fmt: skip
    cells = [_cell(maker, scope, body, kind) for kind in kinds]
    live = _cell(maker, scope, body, row("bool"), True)
    steps: list[Document] = []
    loop: Document = {"kind": "loop"}
    if maker.chance(50):
        counter = Value(maker.name("i"), one("int64"))
        loop["iteration"] = {"value": counter.name, "contract": contract(counter.kind)}
        steps += maker.apply(BY_NAME["less"], [counter], body)[0]
    made: list[tuple[Value, str]] = []
    picked = None
    if maker.chance(40):
        cells.append(_cell(maker, scope, body, mat("float32", 3)))
        more, (picked,) = maker.apply(BY_NAME["pick"], cells[-1:], body)
        steps += more
        maker.used("search in a loop that may settle")
    for cell in cells:
        more, following = maker.made_as(cell.kind, body, cell)
        steps += more
        made.append((cell, following.name))
    more, going = _goes(maker, body, made[0][1], kinds[0])
    steps += more
    made.append((live, going))
    if picked is not None and kinds[0].dtype == "int64":
        more, (value,) = maker.apply(BY_NAME["add"], [Value(made[0][1], kinds[0]), picked], body)
        steps += more
        made[0] = (made[0][0], value.name)
    emit = {"kind": "emit", "value": maker.dice.choice((cells[0].name, made[0][1])), "mode": "append", "axis": 1}
    emit |= {"output": _output(maker, kinds[0]), "when": live.name}
    steps.insert(0 if emit["value"] == cells[0].name else len(steps), emit)
    carried = [{"cell": cell.name, "next": name} for cell, name in made]
    loop |= {"steps": steps, "continue_when": live.name, "max_iterations": limit.name, "carried": carried}
    if maker.chance(50):
        loop["termination"] = "generation_eos"
    maker.used("loop that may settle")
    return [loop], None


def _cell(maker: Maker, scope: Scope, body: Scope, kind: Kind, literal: object = None) -> Value:
    start = maker.input(kind, scope, literal=literal is not None, default=literal)
    name = maker.name("settling")
    maker.state[name] = {"contract": contract(kind), "scope": "invocation", "initializer": start.name,
                         "recurrence": {"kind": "invariant"}}  # fmt: skip
    cell = Value(name, kind, cell=True)
    body.values.append(cell)
    return cell


def _goes(maker: Maker, body: Scope, token: str, kind: Kind) -> tuple[list[Document], str]:
    """Whether a row goes on: always, or while its number is not in the way."""
    value = Value(token, kind)
    if maker.chance(60):
        steps, (same,) = maker.apply(BY_NAME["equal"], [value, value], body)
    else:
        steps, (few,) = maker.apply(BY_NAME["less"], [value], body)
        more, (same,) = maker.apply(BY_NAME["not"], [few], body)
        steps += more
    more, (flag,) = maker.apply(BY_NAME["entries"], [same], body)
    return [*steps, *more], flag.name


def _output(maker: Maker, kind: Kind) -> str:
    name = maker.name("out")
    made = contract(mat(kind.dtype, FREE), f"{name}.many")
    maker.outputs[name] = {"contract": made, "role": "tensor", "stage": "pre_adapter", ".": None}
    return name
