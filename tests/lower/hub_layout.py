"""Folders as hubs hold models of pictures and text: a vision encoder, an embedding of tokens, a decoder; no metadata.

onnx/vision_encoder.onnx  onnx/embed_tokens.onnx  onnx/decoder_model_merged.onnx
config.json  preprocessor_config.json  tokenizer.json  tokenizer_config.json
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.reference.plain_loop import HEAD, KV_HEADS
from tests.test_pipelines import CACHES
from tools.fixtures.genai_v2 import ENTRIES, SEEN, embedded_decoder, embedding
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.network import CONTEXT, HIDDEN, VOCABULARY
from tools.fixtures.tokenizer import BOS, EOS, PAD, write_tokenizer

Array = np.ndarray[Any, Any]
EDGE, PATCH = 8, 4
CELLS = (EDGE // PATCH) ** 2
"""Entries of a picture."""
MEAN, STD = [0.5, 0.25, 0.125], [0.5, 0.25, 1.0]
PROCESSOR: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": EDGE, "width": EDGE},
    "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": MEAN,
    "image_std": STD,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "model_type": "any", "image_token_id": SEEN, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
    "eos_token_id": EOS, "bos_token_id": BOS, "pad_token_id": PAD,
}  # fmt: skip
MARK = "<image>"


def look(pictures: int | str = "batch", edges: int | str = EDGE, flat: bool = False) -> Sketch:
    """pixel_values float32 [batch, 3, 8, 8] -> image_features float32 [batch, 4, 16], one entry a patch.

    edges: another extent than 8, or two symbols of it. flat: the result is [entries, 16].
    """
    sketch = Sketch("look")
    sides = (edges, edges) if isinstance(edges, int) else (f"{edges}_high", f"{edges}_wide")
    op, pixels = sketch.op, sketch.input("pixel_values", "float32", pictures, 3, *sides)
    cut = op.Conv(pixels, sketch.weight("cut", weights(81, HIDDEN, 3, PATCH, PATCH)), strides=[PATCH, PATCH])
    rows = op.Tanh(op.Transpose(op.Reshape(cut, [0, HIDDEN, -1]), perm=[0, 2, 1]))
    if flat:
        sketch.output(op.Reshape(rows, [-1, HIDDEN]), "image_features", "float32", "entries", HIDDEN)
    else:
        cells = CELLS if edges == EDGE else "cells"
        sketch.output(op.Identity(rows), "image_features", "float32", pictures, cells, HIDDEN)
    return sketch


def words_alone() -> Sketch:
    """input_ids int64 [batch, sequence] -> inputs_embeds float32 [batch, sequence, 16]."""
    sketch = Sketch("embed_tokens")
    ids = sketch.input("input_ids", "int64", "batch", "sequence")
    made = sketch.op.Gather(sketch.weight("embedding", weights(8, VOCABULARY, HIDDEN)), ids)
    sketch.output(made, "inputs_embeds", "float32", "batch", "sequence", HIDDEN)
    return sketch


def behind_flag(model: ModelProto) -> ModelProto:
    """A decoder as two networks behind the flag use_cache_branch bool [1]: with its caches, and with empty ones."""
    outputs, branches = list(model.graph.output), []
    pasts = [each.name for each in model.graph.input if each.name.startswith("past")]
    for side in ("with_past", "without_past"):
        new = {name: f"{side}.{name}" for node in model.graph.node for name in node.output if name}
        new |= dict.fromkeys(pasts, "empty") if side == "without_past" else {}
        nodes = [type(node).FromString(node.SerializeToString()) for node in model.graph.node]
        values = [type(each).FromString(each.SerializeToString()) for each in outputs]
        for node in nodes:
            node.name = f"{side}.{node.name}"
            node.input[:] = [new.get(each, each) for each in node.input]
            node.output[:] = [new.get(each, each) for each in node.output]
        for each in values:
            each.name = new[each.name]
        branches.append(helper.make_graph(nodes, side, [], values))
    names = [each.name for each in outputs]
    node = helper.make_node("If", ["use_cache_branch"], names, then_branch=branches[0], else_branch=branches[1])
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    empty = numpy_helper.from_array(np.zeros((1, KV_HEADS, 0, HEAD), np.float32), "empty")
    inputs, weights = [*model.graph.input, flag], [*model.graph.initializer, empty]
    graph = helper.make_graph([node], "merged", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=10)


def hub_folder(folder: Path, alone: bool, vision: Sketch | None = None, processor: dict[str, Any] = PROCESSOR) -> Path:
    """The folder. alone: its embedding takes token ids and nothing else."""
    (folder / "onnx").mkdir(parents=True)
    (vision or look()).save(folder / "onnx" / "vision_encoder.onnx")
    (words_alone() if alone else embedding(ENTRIES[:1])).save(folder / "onnx" / "embed_tokens.onnx")
    embedded_decoder().save(folder / "onnx" / "decoder_model_merged.onnx")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    write_tokenizer(folder, (MARK, "<unused>"))
    return folder


def words_and_decoder(folder: Path) -> Path:
    """The folder without its pictures: an embedding of token ids alone, and the decoder that takes its rows."""
    hub_folder(folder, True)
    (folder / "onnx" / "vision_encoder.onnx").unlink()
    (folder / "preprocessor_config.json").unlink()
    return folder


def run(folder: Path, name: str, feeds: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(folder / "onnx" / f"{name}.onnx", providers=["CPUExecutionProvider"])
    made: list[Array] = session.run(None, feeds)
    return made


def seen(folder: Path, pixels: list[Array]) -> Array:
    """The entries of pictures [3, height, width], each run alone: [entries, 16]."""
    made = [run(folder, "vision_encoder", {"pixel_values": each[None]})[0].reshape(-1, HIDDEN) for each in pixels]
    return np.concatenate([np.zeros((0, HIDDEN), np.float32), *made])


def by_hand(folder: Path, prompt: list[int], entries: Array, count: int, alone: bool) -> list[int]:
    """Greedy tokens by a loop over the graphs; where the embedding takes ids alone, numpy writes entries over rows."""
    past = [np.zeros((1, KV_HEADS, 0, HEAD), np.float32) for _ in CACHES]
    fresh, length, tokens = prompt, 0, list[int]()
    while len(tokens) < count:
        feeds: dict[str, Array] = {"input_ids": np.array([fresh])}
        given = entries if not length else entries[:0]
        rows = run(folder, "embed_tokens", feeds if alone else {**feeds, "image_features": given})[0]
        if alone and len(given):
            rows = rows.copy()
            rows[feeds["input_ids"] == SEEN] = given
        feeds = {f"past_key_values.{each}": value for each, value in zip(CACHES, past, strict=True)}
        feeds |= {"inputs_embeds": rows, "attention_mask": np.ones((1, length + len(fresh)), np.int64)}
        logits, *past = run(
            folder, "decoder_model_merged", {**feeds, "position_ids": np.arange(length, length + len(fresh))[None]}
        )
        length += len(fresh)
        fresh = [int(logits[0, -1].argmax())]
        tokens += fresh
    return tokens
