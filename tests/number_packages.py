"""Loops whose runs compute of single numbers only: any operators on any cells, and a row that gets a number a turn."""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from tests.held_packages import CAPABILITIES, FLAGS, ONE
from tests.settled_packages import SLOT
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

ROW = tensor("int64", "batch", "width", rows=True)
SHORT = tensor("int32", "batch", 1, rows=True)
CELLS = ("a", "b", "s")
BINARY = ("Add", "Sub", "Mul", "Min", "Max", "BitwiseAnd", "BitwiseXor")
COMPARED = ("Equal", "Less", "GreaterOrEqual")


def counting(folder: Path, seed: int) -> Path:
    """Cells a, b int64 and s int32 [batch, 1] become what some operators make of them and of the iteration's number.

    `row` gets the first of them at a place, which is masked to 0 .. 7 in two of three packages; it is published, the
    row never. The loop ends where a number says so.
    """
    folder.mkdir(parents=True)
    draw = np.random.default_rng(seed)
    sketch = Sketch("play")
    op = sketch.op
    longs = [sketch.input(name, "int64", "batch", 1) for name in "ab"]
    shorts = [sketch.input("s", "int32", "batch", 1)]
    row = sketch.input("row", "int64", "batch", "width")
    longs.append(op.Add(sketch.input("at", "int64", 1), longs[0]))
    flags = [op.Less(longs[0], longs[1])]

    def pick(values: list[object]) -> object:
        return values[int(draw.integers(0, len(values)))]

    for _ in range(int(draw.integers(3, 10))):
        kind, values = draw.integers(0, 6), (longs if draw.random() < 0.7 else shorts)
        if kind < 3:
            values.append(getattr(op, str(draw.choice(BINARY)))(pick(values), pick(values)))
        elif kind == 3:
            flags.append(getattr(op, str(draw.choice(COMPARED)))(pick(values), pick(values)))
        elif kind == 4:
            values.append(op.Where(pick(flags), pick(values), pick(values)))
        else:
            longs.append(op.Cast(pick(shorts), to=TensorProto.INT64))
            flags.append(op.Not(op.And(pick(flags), pick(flags))))
    place = longs[-1] if draw.random() < 0.33 else op.BitwiseAnd(longs[-1], 7)
    made = op.BitwiseAnd(pick(longs), 0xFFFF)
    sketch.output(op.ScatterElements(row, place, made, axis=1), "row.next", "int64", "batch", "width")
    for name, value in (("a", made), ("b", pick(longs))):
        sketch.output(op.Identity(value), f"{name}.next", "int64", "batch", 1)
    narrow = op.BitwiseAnd(op.Cast(pick(longs), to=TensorProto.INT32), op.Cast(255, to=TensorProto.INT32))
    sketch.output(narrow, "s.next", "int32", "batch", 1)
    goes = op.Or(op.Squeeze(pick(flags), [1]), op.Greater(op.Squeeze(op.BitwiseAnd(made, 15), [1]), 0))
    sketch.output(goes, "goes", "bool", "batch")
    sketch.save(folder / "play.onnx")
    kinds = {"a": SLOT, "b": SLOT, "s": SHORT, "row": ROW}
    takes, makes = {"at": ONE, **kinds}, {**{f"{name}.next": kind for name, kind in kinds.items()}, "goes": FLAGS}
    inputs = {name: application(kind, f"{name}.given") for name, kind in kinds.items()}
    inputs = {f"given.{name}": each for name, each in inputs.items()} | {"turns": application(ONE, "turns")}
    state = {name: cell(kind, f"given.{name}") for name, kind in kinds.items()} | {"live": cell(FLAGS, "package.yes")}
    body = [
        invoke("play", {name: name for name in takes}, {name: name for name in makes}),
        emit("a.next", "longs", "append", axis=1, when="live"),
        emit("s.next", "shorts", "append", axis=1, when="live"),
    ]
    carried = {**{name: f"{name}.next" for name in kinds}, "live": "goes"}
    main = loop(body, "live", "turns", carried, iteration={"value": "at", "contract": ONE})
    outputs = {
        "longs": output(tensor("int64", "batch", "longs", rows=True)),
        "shorts": output(tensor("int32", "batch", "shorts", rows=True)),
    }
    inputs["package.yes"] = literal(FLAGS, True)
    capabilities = [*CAPABILITIES[:4], "loop_induction_values"]
    components = {"play": onnx("play.onnx", takes, makes)}
    write_document(folder, package(capabilities, inputs, outputs, components, [main], state=state))
    return folder
