"""Workflows whose iterations follow a script: what is published, how much of it, under which guard, and who goes on.

`played`: one small graph. `attended`: an attention component over cells of fixed extent, its masks from the script.
"""

from pathlib import Path

from onnx import NodeProto, TensorProto, helper

from tests.held_packages import CAPABILITIES, FLAGS, HEAD, ONE, ROWS, Attention, scripted_package
from tests.reference.values import Array
from tools.fixtures.document import (
    Document,
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

Inputs = dict[str, Array]
SLOT = tensor("int64", "batch", 1, rows=True)
SCRIPT = ("tokens", "lengths", "shows", "goes")
"""Inputs int64 [rows, steps]; a run at a step that the script lacks fails."""


def played(folder: Path, termination: str = "generation_eos") -> Path:
    """token = tokens[at] + the last token; what `shows` and `goes` say holds for the next iteration."""
    folder.mkdir(parents=True)
    sketch = Sketch("play")
    op = sketch.op
    at, last = sketch.input("at", "int64", 1), sketch.input("last", "int64", "batch", 1)
    now = {name: op.Gather(sketch.input(name, "int64", "batch", "steps"), at, axis=1) for name in SCRIPT}
    sketch.output(op.Add(now["tokens"], last), "token", "int64", "batch", 1)
    sketch.output(op.Squeeze(now["lengths"], [1]), "length", "int64", "batch")
    for name in ("shows", "goes"):
        sketch.output(op.Greater(op.Squeeze(now[name], [1]), 0), name.rstrip("s"), "bool", "batch")
    sketch.save(folder / "play.onnx")
    table = tensor("int64", "batch", "steps", rows=True)
    takes = {"at": ONE, "last": SLOT, **dict.fromkeys(SCRIPT, table)}
    made = {"token": SLOT, "length": ROWS, "show": FLAGS, "goe": FLAGS}
    inputs = {name: application(table, name) for name in SCRIPT} | {"turns": application(ONE, "turns")}
    inputs |= {"package.yes": literal(FLAGS, True), "package.none": literal(SLOT, 0)}
    state = {"last": cell(SLOT, "package.none"), "show": cell(FLAGS, "package.yes"), "live": cell(FLAGS, "package.yes")}
    body = [
        invoke("play", {name: name for name in takes}, {each: f"{each}.next" for each in made}),
        emit("token.next", "trace", "append", when="show", valid_length="length.next", axis=1),
        emit("last", "plain", "append", axis=1, when="live"),
    ]
    carried = {"last": "token.next", "show": "show.next", "live": "goe.next"}
    counted = {"value": "at", "contract": ONE}
    main = loop(body, "live", "turns", carried, termination=termination, iteration=counted)
    outputs = {name: output(tensor("int64", "batch", name, rows=True)) for name in ("trace", "plain")}
    capabilities = [*CAPABILITIES[:4], "loop_induction_values", "emit_valid_length"]
    write_document(
        folder, package(capabilities, inputs, outputs, {"play": onnx("play.onnx", takes, made)}, [main], state=state)
    )
    return folder


def attended(folder: Path, first: bool = False, total: str = "width", wide: bool = False) -> Path:
    """The scripted package of tests/held_packages.py, one new token a step, masks whole, the choice published.

    first: what the last iteration has chosen, before anything else. total: where the operators take the total length
    from. wide: a cell becomes two entries a row that the attention component makes of the only row's id, three of an id
    from EDGE on.
    """
    more = {"after": _widened(), "outputs": {"twice": ("int64", ["batch", "w"])}} if wide else {}
    scripted_package(folder, Attention(total=total, **more), lambda workflow: _publish_choices(workflow, first, wide))
    sketch = Sketch("script")
    op = sketch.op
    at = sketch.input("at", "int64", 1)
    tokens, masks = (sketch.input("tokens", "int64", "s", "b", 1), sketch.input("masks", "int64", "s", "b", "c"))
    sketch.output(op.Squeeze(op.Gather(tokens, at), [0]), "ids", "int64", "b", 1)
    sketch.output(op.Squeeze(op.Gather(masks, at), [0]), "mask", "int64", "b", "c")
    goes = sketch.input("goes", "int64", "s", "b")
    sketch.output(op.Greater(op.Squeeze(op.Gather(goes, at), [0]), 0), "more", "bool", "b")
    sketch.save(folder / "script.onnx")
    choose = Sketch("choose")
    scores = choose.input("logits", "float32", "batch", "sequence", 4 * HEAD)
    choose.output(choose.op.ArgMax(scores, axis=2, keepdims=0), "token", "int64", "batch", 1)
    choose.save(folder / "choose.onnx")
    return folder


EDGE = 31


def _widened() -> list[NodeProto]:
    node = helper.make_node
    return [
        node("Constant", [], ["edge"], value_ints=[EDGE]),
        node("GreaterOrEqual", ["input_ids", "edge"], ["late.1"]),
        node("Cast", ["late.1"], ["late.2"], to=TensorProto.INT64),
        node("Reshape", ["late.2", "one"], ["late"]),
        node("Add", ["late", "two"], ["more.1"]),
        node("Concat", ["one", "more.1"], ["shape"], axis=0),
        node("Expand", ["input_ids", "shape"], ["twice.1"]),
        node("Identity", ["twice.1"], ["twice"]),
    ]


def _widen(workflow: Document) -> None:
    wide = tensor("int64", "batch", "n", rows=True)
    workflow["components"]["model"]["ports"]["outputs"]["twice"] = wide
    workflow["inputs"]["start"] = application(wide, "start")
    workflow["state"]["wide"] = cell(wide, "start")
    workflow["steps"][0]["steps"][1]["outputs"]["twice"] = "wide.next"
    workflow["steps"][0]["carried"].append({"cell": "wide", "next": "wide.next"})


def _publish_choices(workflow: Document, first: bool, wide: bool) -> None:
    if wide:
        _widen(workflow)
    script = {"tokens": tensor("int64", "s", "b", 1), "masks": tensor("int64", "s", "b", "c"),
              "goes": tensor("int64", "s", "b")}  # fmt: skip
    mask, ids = tensor("int64", "batch", "all", rows=True), tensor("int64", "batch", 1, rows=True)
    made = {"ids": ids, "mask": mask, "more": FLAGS}
    logits = tensor("float32", "batch", "sequence", 4 * HEAD, rows=True)
    workflow["components"]["script"] = onnx("script.onnx", {**script, "at": ONE}, made)
    workflow["components"]["choose"] = onnx("choose.onnx", {"logits": logits}, {"token": SLOT})
    for name in ("news", "totals", "tokens", "masks"):
        workflow["inputs"].pop(name)
    workflow["inputs"] |= {name: application(each, name) for name, each in script.items()}
    workflow["inputs"]["package.none"] = literal(SLOT, 0)
    workflow["state"]["chosen"] = cell(SLOT, "package.none")
    workflow["outputs"] = {"chosen": output(tensor("int64", "batch", "all", rows=True))}
    body = workflow["steps"][0]["steps"]
    takes = {name: name for name in (*script, "at")}
    body[0] = invoke("script", takes, {"ids": "ids", "mask": "mask", "more": "live.next"})
    body[2] = invoke("choose", {"logits": "seen"}, {"token": "chosen.next"})
    shown = emit("chosen" if first else "chosen.next", "chosen", "append", axis=1, when="live")
    body.insert(0 if first else len(body), shown)
    workflow["steps"][0]["carried"].append({"cell": "chosen", "next": "chosen.next"})


def widening(folder: Path, agreed: bool) -> Path:
    """token = the last one + the iteration's number; from iteration `when` on a cell's next value is wider by one.

    agreed: its extent has a name that another result shares; else only the cell's law speaks of it.
    """
    folder.mkdir(parents=True)
    sketch = Sketch("play")
    op = sketch.op
    at, when = sketch.input("at", "int64", 1), sketch.input("when", "int64", 1)
    last = sketch.input("last", "int64", "batch", 1)
    token = op.Add(last, at)
    width = op.Add(op.Cast(op.GreaterOrEqual(at, when), to=7), 2)
    sketch.output(token, "token", "int64", "batch", 1)
    sketch.output(op.Greater(op.Squeeze(token, [1]), -1), "goes", "bool", "batch")
    sketch.output(op.Expand(last, op.Concat([1], width, axis=0)), "wide", "int64", "batch", "w")
    sketch.output(op.Concat(last, last, axis=1), "other", "int64", "batch", 2)
    sketch.save(folder / "play.onnx")
    wide, other = (tensor("int64", "batch", name, rows=True) for name in ("n", "n" if agreed else "m"))
    inputs = {"when": application(ONE, "when"), "turns": application(ONE, "turns")}
    inputs |= {
        "package.yes": literal(FLAGS, True),
        "package.none": literal(SLOT, 0),
        "start": application(wide, "start"),
    }
    state = {"last": cell(SLOT, "package.none"), "live": cell(FLAGS, "package.yes"), "wide": cell(wide, "start")}
    takes, made = {"at": ONE, "when": ONE, "last": SLOT}, {"token": SLOT, "goes": FLAGS, "wide": wide, "other": other}
    body = [
        invoke("play", {name: name for name in takes}, {name: f"{name}.next" for name in made}),
        emit("token.next", "trace", "append", axis=1, when="live"),
    ]
    carried = {"last": "token.next", "live": "goes.next", "wide": "wide.next"}
    main = loop(body, "live", "turns", carried, iteration={"value": "at", "contract": ONE})
    outputs = {"trace": output(tensor("int64", "batch", "trace", rows=True))}
    capabilities = [*CAPABILITIES[:4], "loop_induction_values"]
    components = {"play": onnx("play.onnx", takes, made)}
    write_document(folder, package(capabilities, inputs, outputs, components, [main], state=state))
    return folder
