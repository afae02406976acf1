"""A tiny encoder-decoder as an explicit workflow: masked encoder, then a loop of cross-attention steps."""

from pathlib import Path

import onnx_ir as ir

from tests.flow_packages import CAPABILITIES
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
from tools.fixtures.graph import Sketch, weights

VOCABULARY, HIDDEN = 40, 12
IDS, HIDDEN_STATES = ("int64", "batch", "source"), ("float32", "batch", "source", HIDDEN)
TOKEN, MEMORY = ("int64", "batch", 1), ("float32", "batch", HIDDEN)


def encoder() -> Sketch:
    """source int64 [b, s], mask int64 [b, s] -> hidden float32 [b, s, 12]: one layer of masked self-attention."""
    sketch = Sketch("encoder")
    op = sketch.op
    source, mask = sketch.input("source", *IDS), sketch.input("mask", *IDS)
    x = op.Gather(sketch.weight("embedding", weights(1, VOCABULARY, HIDDEN)), source)
    scores = op.MatMul(
        op.MatMul(x, sketch.weight("query", weights(2, HIDDEN, HIDDEN))), op.Transpose(x, perm=[0, 2, 1])
    )
    seen = op.Softmax(op.Add(scores, _bias(sketch, mask)), axis=-1)
    sketch.output(op.Add(x, op.MatMul(seen, x)), "hidden", *HIDDEN_STATES)
    return sketch


def decoder() -> Sketch:
    """token [b, 1], memory [b, 12], hidden [b, s, 12], mask [b, s] -> the most likely next token, the next memory."""
    sketch = Sketch("decoder")
    op = sketch.op
    token, memory = sketch.input("token", *TOKEN), sketch.input("memory", *MEMORY)
    hidden, mask = sketch.input("hidden", *HIDDEN_STATES), sketch.input("mask", *IDS)
    said = op.Squeeze(op.Gather(sketch.weight("embedding", weights(3, VOCABULARY, HIDDEN)), token), [1])
    state = op.Tanh(op.Add(op.MatMul(memory, sketch.weight("keep", weights(4, HIDDEN, HIDDEN, scale=0.5))), said))
    scores = op.MatMul(op.Unsqueeze(state, [1]), op.Transpose(hidden, perm=[0, 2, 1]))
    seen = op.Softmax(op.Add(scores, _bias(sketch, mask)), axis=-1)
    crossed = op.Add(op.Squeeze(op.MatMul(seen, hidden), [1]), state)
    logits = op.MatMul(crossed, sketch.weight("head", weights(6, HIDDEN, VOCABULARY)))
    sketch.output(op.ArgMax(logits, axis=1, keepdims=1), "next", *TOKEN)
    sketch.output(op.Identity(op.Tanh(crossed)), "next_memory", *MEMORY)
    return sketch


def _bias(sketch: Sketch, mask: ir.Value) -> ir.Value:
    """float32 [b, 1, s]: 0 where the mask is 1, a large negative number where it is 0."""
    op = sketch.op
    return op.Where(op.Unsqueeze(op.Cast(mask, to=ir.DataType.BOOL), [1]), 0.0, -1e9)


def encoder_decoder_package(folder: Path) -> Path:
    """Inputs source, mask int64 [b, s], start int64 [b, 1], steps int64 [1]; output tokens int64 [b, steps]."""
    encoder().save(folder / "encoder.onnx")
    decoder().save(folder / "decoder.onnx")

    def rows(*contract: int | str) -> dict[str, object]:
        dtype, *shape = contract
        return tensor(str(dtype), *shape, rows=True)

    inputs = {
        "source": application(rows(*IDS), "source"),
        "mask": application(rows(*IDS), "mask"),
        "start": application(rows(*TOKEN), "start"),
        "steps": application(tensor("int64", 1), "steps"),
        "package.true": literal(tensor("bool", 1), True),
        "package.memory": literal(rows(*MEMORY), 0.0),
    }
    components = {
        "encoder": onnx("encoder.onnx", {"source": rows(*IDS), "mask": rows(*IDS)}, {"hidden": rows(*HIDDEN_STATES)}),
        "decoder": onnx(
            "decoder.onnx",
            {"token": rows(*TOKEN), "memory": rows(*MEMORY), "hidden": rows(*HIDDEN_STATES), "mask": rows(*IDS)},
            {"next": rows(*TOKEN), "next_memory": rows(*MEMORY)},
        ),
    }
    fed = {"token": "token", "memory": "memory", "hidden": "encoder.hidden", "mask": "mask"}
    body = [
        invoke("decoder", fed, {"next": "token.next", "next_memory": "memory.next"}),
        emit("token.next", "tokens", "append", axis=1),
    ]
    carried = {"token": "token.next", "memory": "memory.next"}
    steps = [
        invoke("encoder", {"source": "source", "mask": "mask"}, {"hidden": "encoder.hidden"}),
        loop(body, "package.true", "steps", carried),
    ]
    cells = {"token": cell(rows(*TOKEN), "start"), "memory": cell(rows(*MEMORY), "package.memory")}
    outputs = {"tokens": output(rows("int64", "batch", "new"), "tokens")}
    write_document(folder, package(CAPABILITIES, inputs, outputs, components, steps, state=cells))
    return folder
