"""Toy decoders with attention and states of one size, and the route that knows nothing of state: recomputation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.lower.packages import HIDDEN, VOCABULARY, Recipe, decoder

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CONV_NAMES = ("past_key_values.3.conv_state", "present.3.conv_state")
RECURRENT_NAMES = ("past_key_values.3.recurrent_state", "present.3.recurrent_state")


@dataclass(frozen=True)
class State:
    """A float32 state [batch, 8, width] beside the cache: the sum of all embeddings, in each column.

    width_in, width_out: what the graph declares instead of `width`.
    """

    names: tuple[str, str] = CONV_NAMES
    width: int = 2
    width_in: int | str | None = None
    width_out: int | str | None = None


def hybrid(recipe: Recipe, *states: State) -> ModelProto:
    """The decoder of `recipe` whose logits also depend on the states."""
    model = decoder(recipe)
    graph = model.graph
    _add(model, helper.make_node("Cast", ["x.0"], ["embedded"], to=FLOAT))
    _add(model, helper.make_node("ReduceSum", ["embedded", "axis"], ["added"], keepdims=0))
    _add(model, helper.make_node("Unsqueeze", ["added", "last"], ["column"]))
    _hold(model, last=np.array([2], np.int64))
    for at, state in enumerate(states):
        past, present = state.names
        _hold(model, **{f"mix.{at}": np.random.default_rng(at).normal(size=(HIDDEN, VOCABULARY)).astype(np.float32)})
        _add(model, helper.make_node("Add", [past, "column"], [present]))
        _add(model, helper.make_node("ReduceSum", [present, "last"], [f"summed.{at}"], keepdims=0))
        _add(model, helper.make_node("MatMul", [f"summed.{at}", f"mix.{at}"], [f"mixed.{at}"]))
        _add(model, helper.make_node("Unsqueeze", [f"mixed.{at}", "axis"], [f"more.{at}"]))
        move_logits(model, f"more.{at}", recipe.dtype)
        for side, name, width in ((graph.input, past, state.width_in), (graph.output, present, state.width_out)):
            shape = ["batch", HIDDEN, state.width if width is None else width]
            side.append(helper.make_tensor_value_info(name, FLOAT, shape))
    return model


def with_three_axes(model: ModelProto, copies: Any = 3) -> ModelProto:
    """The decoder with rank-3 positions: the logit of token (temporal + 10 height + 100 width) mod 24 gains 100."""
    model.graph.input.append(helper.make_tensor_value_info("position_ids", INT64, [copies, "batch", "sequence"]))
    _hold(model, weigh=np.array([1, 10, 100], np.int64).reshape(3, 1, 1), ids=np.array(VOCABULARY, np.int64))
    _hold(model, zero=np.array([0], np.int64), off_on=np.array([0, 100], np.float32))
    _add(model, helper.make_node("Mul", ["position_ids", "weigh"], ["weighed"]))
    _add(model, helper.make_node("ReduceSum", ["weighed", "zero"], ["place"], keepdims=0))
    _add(model, helper.make_node("Mod", ["place", "ids"], ["favourite"]))
    _add(model, helper.make_node("OneHot", ["favourite", "ids", "off_on"], ["favoured"]))
    move_logits(model, "favoured", FLOAT)
    return model


def one_token(model: ModelProto, squeezed: bool) -> ModelProto:
    """The decoder for one token a call: by its declared length, or by a Squeeze of the axis of the tokens."""
    if squeezed:
        _add(model, helper.make_node("Squeeze", ["x.0", "axis"], ["single"]))
        _add(model, helper.make_node("Unsqueeze", ["single", "axis"], ["x.single"]))
        first = next(each for each in model.graph.node if each.op_type == "Cast" and "embedded" in each.output)
        first.input[0] = "x.single"
        model.graph.value_info.append(helper.make_tensor_value_info("x.0", FLOAT, ["batch", "sequence", HIDDEN]))
    else:
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    return _sorted(model)


def move_logits(model: ModelProto, more: str, kind: int) -> None:
    """Add a value to the logits. kind: the element type that they have."""
    head = next(each for each in model.graph.node if "logits" in each.output)
    _add(model, helper.make_node("Cast", [more], [f"{more}.cast"], to=kind))
    _add(model, helper.make_node("Add", [head.input[0], f"{more}.cast"], [f"{more}.moved"]))
    head.input[0] = f"{more}.moved"
    model.graph.node.remove(head)
    model.graph.node.append(head)


def recomputed(path: Path, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy tokens of a plain session that sees the whole sequence anew for each: empty caches, states of zeros."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
    ids = list(prompt)
    for _ in range(count):
        feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        for port in session.get_inputs()[2:]:
            if port.name == "position_ids":
                feeds[port.name] = np.array([[range(len(ids))]] * 3)
            else:
                shape = [1, *(extent if isinstance(extent, int) else 0 for extent in port.shape[1:])]
                feeds[port.name] = np.zeros(shape, types[port.type])
        logits = np.asarray(session.run(["logits"], feeds)[0])
        ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt) :]


def _add(model: ModelProto, node: NodeProto) -> None:
    model.graph.node.append(node)


def _hold(model: ModelProto, **values: Any) -> None:
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())


def _sorted(model: ModelProto) -> ModelProto:
    """The model with each node behind those that it reads from."""
    made = {name for node in model.graph.node for name in node.output}
    pending, placed, known = list(model.graph.node), list[NodeProto](), set[str]()
    while pending:
        ready = next(each for each in pending if all(name in known or name not in made for name in each.input))
        pending.remove(ready)
        placed.append(ready)
        known.update(ready.output)
    del model.graph.node[:]
    model.graph.node.extend(placed)
    return model
