"""One row that has settled, whose cells hand their values to each other, and whose outputs are of several types.

What is published is arithmetic on the request, so the expected values are computed here.
"""

from collections.abc import Mapping
from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime.settled import SETTLED

from tests.held_packages import CAPABILITIES, FLAGS, ONE
from tests.settled_packages import SLOT
from tests.two_routes import TwoRoutes, collect
from tools.fixtures.document import (
    application,
    cell,
    emit,
    invoke,
    literal,
    loop,
    onnx,
    output,
    package,
    tensor,
    write_document,
)
from tools.fixtures.graph import Sketch

NARROW = tensor("int32", "batch", 1, rows=True)
CELLS = ("a", "b", "c", "d")
TURNS = SETTLED + 12
ROTATED = {"a": "b", "b": "c", "c": "a", "d": "d"}
SHIFTED = {"a": "b", "b": "c", "c": "d", "d": "outside"}
SWAPPED = {"a": "b", "b": "a", "c": "outside", "d": "d"}


def handing(folder: Path, carried: Mapping[str, str]) -> Path:
    """wide = 100 a + the iteration's number, narrow = it in int32; cells become each other as `carried` says."""
    folder.mkdir(parents=True)
    sketch = Sketch("play")
    op = sketch.op
    at, a = sketch.input("at", "int64", 1), sketch.input("a", "int64", "batch", 1)
    wide = op.Add(op.Mul(a, 100), at)
    narrow, live = op.Cast(wide, to=6), op.Greater(op.Squeeze(wide, [1]), -1)
    sketch.output(wide, "wide", "int64", "batch", 1)
    sketch.output(narrow, "narrow", "int32", "batch", 1)
    sketch.output(live, "goes", "bool", "batch")
    sketch.save(folder / "play.onnx")
    inputs = {each: application(SLOT, each) for each in (*CELLS, "outside")}
    inputs |= {"turns": application(ONE, "turns"), "package.yes": literal(FLAGS, True)}
    names = {each: f"cell.{each}" for each in CELLS}
    state = {names[each]: cell(SLOT, each) for each in CELLS} | {"live": cell(FLAGS, "package.yes")}
    made = {"wide": SLOT, "narrow": NARROW, "goes": FLAGS}
    body = [
        invoke("play", {"at": "at", "a": "cell.a"}, {"wide": "w", "narrow": "n", "goes": "more"}),
        *(emit(value, name, "append", axis=1, when="live") for name, value in (("wide", "w"), ("narrow", "n"))),
    ]
    steps = {names[each]: names.get(following, following) for each, following in carried.items()}
    main = loop(body, "live", "turns", {**steps, "live": "more"}, iteration={"value": "at", "contract": ONE})
    outputs = {
        "wide": output(tensor("int64", "batch", "wide", rows=True)),
        "narrow": output(tensor("int32", "batch", "narrow", rows=True)),
    }
    components = {"play": onnx("play.onnx", {"at": ONE, "a": SLOT}, made)}
    capabilities = [*CAPABILITIES[:4], "loop_induction_values"]
    write_document(folder, package(capabilities, inputs, outputs, components, [main], state=state))
    return folder


def expected(carried: Mapping[str, str]) -> list[int]:
    values = {"a": 1, "b": 2, "c": 3, "d": 4, "outside": 5}
    made: list[int] = []
    for at in range(TURNS):
        made.append(100 * values["a"] + at)
        values |= {each: values[following] for each, following in carried.items()}
    return made


@pytest.mark.parametrize(
    ("carried", "shorter"),
    [(ROTATED, False), (SHIFTED, False), (SWAPPED, True), ({each: each for each in CELLS}, True)],
    ids=["threes", "shifted", "pairs", "kept"],
)
def test_cells_become_each_other(carried: Mapping[str, str], shorter: bool, tmp_path: Path) -> None:
    """Two sets of bindings serve cells that are what they were two iterations before, and no others."""
    made = compile_package(handing(tmp_path / "package", carried), tmp_path / "out")
    assert ("SETTLED" in made.executor) == shorter
    inputs = {each: np.array([[at + 1]]) for at, each in enumerate((*CELLS, "outside"))}
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        request = {**inputs, "turns": np.array([TURNS])}
        result = TwoRoutes(model, tmp_path / "package").agree(request)
        assert result.rows("wide")[0].tolist() == [expected(carried)]
        _, events = collect(model, request)
    for name, dtype in (("wide", "int64"), ("narrow", "int32")):
        values = [each.value for each in events if each.output == name]
        assert {str(each.dtype) for each in (*values, result.rows(name)[0])} == {dtype}
        assert [each.item() for each in values] == expected(carried)
