"""Tiny packages of version 2 (pipeline as configuration), made on the spot: documents over graphs of a few weights."""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import Problem
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from tests.lower.packages import Recipe, decoder, laid_over
from tests.lower.test_composite import reader, writer
from tests.lower.test_front_model import MARK, SIZE, embed, look, model_of, write
from tools.fixtures.genai_v2 import MINIMAL as MINIMAL

Graphs = dict[str, ModelProto]
Document = dict[str, Any]


def named(model: ModelProto, names: dict[str, str]) -> ModelProto:
    """The model with other names for its ports."""
    for each in (*model.graph.input, *model.graph.output):
        each.name = names.get(each.name, each.name)
    for node in model.graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(each, each) for each in side]
    return model


def package(folder: Path, document: Document | str, graphs: Graphs) -> Path:
    """A package of these graphs, by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in graphs.items():
        save(model, folder / name)
    text = document if isinstance(document, str) else json.dumps(document, indent=2)
    (folder / "genai_config.json").write_text(text, encoding="utf-8")
    return folder


def pipeline(document: Document, **over: Any) -> Document:
    """The document with another pipeline laid over its own; a value of ... removes a key."""
    return laid_over(document, {"pipeline": over})


def problems(folder: Path) -> list[Problem]:
    """Everything that is said of a package that is refused."""
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=folder.parent / "refused")
    return list(caught.value.problems)


def tokens(folder: Path, count: int, **inputs: Any) -> list[list[int]]:
    """The greedy tokens of each row, by the compiled package."""
    out = folder.with_name(folder.name + ".out")
    compile_package(folder, out=out)
    with genai_runtime.load(out, threads=1) as model:
        made = model.run({**inputs, "request.max_iterations": [count]}, stop_on_eos=False).rows("tokens")
        return [[int(token) for token in each.reshape(-1)] for each in made if each is not None]


# ---- one decoder -----------------------------------------------------------------------------------------------------


def lone() -> Graphs:
    return {"model.onnx": decoder(Recipe())}


def by_hand(folder: Path, file: str, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens by a loop over the one graph."""
    session = onnxruntime.InferenceSession(folder / file)
    past, fresh, length, made = [np.zeros((1, 1, 0, 8), np.float32)] * 2, prompt, 0, list[int]()
    names = [each.name for each in session.get_inputs()]
    for _ in range(count):
        length += len(fresh)
        feeds = dict(zip(names, [np.array([fresh]), np.ones((1, length), np.int64), *past], strict=True))
        logits, *past = session.run(None, feeds)
        fresh = [int(logits[0, -1].argmax())]
        made += fresh
    return made


# ---- an encoder and a decoder ----------------------------------------------------------------------------------------

ENCODER_DECODER: Document = {
    "version": 2,
    "pipeline": {
        "extends": "encoder-decoder",
        "sessions": {"encoder": {"file": "encoder.onnx"}, "decoder": {"file": "decoder.onnx"}},
    },
    "tokens": {"eos": [2], "decoder_start": 2},
    "generation": {"max_length": 64},
}


def encoder_decoder(output: str = "encoder_hidden_states") -> Graphs:
    """Text to text; the encoder's output goes by `output`, the decoder takes `encoder_hidden_states`."""
    return {
        "encoder.onnx": named(reader(), {"ids": "input_ids", "hidden": output}),
        "decoder.onnx": named(writer(), {"seen": "encoder_hidden_states"}),
    }


def masked() -> Graphs:
    """The same with a mask of the source, int64 [rows, source], for both graphs: hidden ones count for nothing."""
    graphs = encoder_decoder()
    for name, axes in (("encoder.onnx", ["rows", "source"]), ("decoder.onnx", ["batch", "source"])):
        graph = graphs[name].graph
        port, value = ("attention_mask", "encoder_hidden_states")
        if name == "decoder.onnx":
            port = "encoder_attention_mask"
        at = next(at for at, each in enumerate(graph.node) if value in (*each.input, *each.output))
        node, ends = graph.node[at], [helper.make_node("Cast", [port], ["real"], to=TensorProto.FLOAT)]
        ends.append(helper.make_node("Unsqueeze", ["real", "last"], ["shown"]))
        if name == "decoder.onnx":
            ends.append(helper.make_node("Mul", [value, "shown"], ["heard"]))
            node.input[0] = "heard"
            for offset, each in enumerate(ends):
                graph.node.insert(at + offset, each)
        else:
            node.output[0] = "all"
            graph.node.extend([*ends, helper.make_node("Mul", ["all", "shown"], [value])])
        graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last"))
        graph.input.append(helper.make_tensor_value_info(port, TensorProto.INT64, axes))
    return graphs


def speaking() -> Graphs:
    """Sound to text: the encoder takes features, the decoder the prompt."""
    heard = model_of(
        [helper.make_node("Mul", ["audio_features", "two"], ["encoder_hidden_states"])],
        [("audio_features", TensorProto.FLOAT, ["batch", "frames", SIZE])],
        [("encoder_hidden_states", TensorProto.FLOAT, ["batch", "frames", SIZE])],
        {"two": np.full(1, 2, np.float32)},
    )
    return encoder_decoder() | {"encoder.onnx": heard}


def cross_by_hand(
    folder: Path, source: dict[str, Any], start: int, count: int, forced: Any = (), **fed: Any
) -> list[int]:
    """Greedy tokens by a loop: the encoder once with `source`, the decoder with what it gave and `fed`.

    forced: the first tokens, whatever the decoder would choose.
    """
    read, say = (onnxruntime.InferenceSession(folder / name) for name in ("encoder.onnx", "decoder.onnx"))
    seen = read.run(None, source)[0]
    past, made = [np.zeros((1, 1, 0, 8), np.float32)] * 2, [start]
    for length in range(1, count + 1):
        feeds = {
            "input_ids": np.array([made[-1:]]),
            "attention_mask": np.ones((1, length), np.int64),
            "encoder_hidden_states": seen,
            **fed,
            "past_key_values.0.key": past[0],
            "past_key_values.0.value": past[1],
        }
        logits, *past = say.run(["logits", "present.0.key", "present.0.value"], feeds)
        made.append(forced[length - 1] if length <= len(forced) else int(logits[0, -1].argmax()))
    return made[1:]


# ---- media before a decoder ------------------------------------------------------------------------------------------

VISION: Document = {
    "version": 2,
    "pipeline": {
        "extends": "vision-language",
        "sessions": {
            "vision": {"file": "vision.onnx"},
            "embedding": {"file": "embedding.onnx"},
            "decoder": {"file": "decoder.onnx"},
        },
    },
    "tokens": {"eos": [2], "image_token": MARK},
    "generation": {"max_length": 64},
}
SOUND_MARK = 22


def vision() -> Graphs:
    """images float32 [batch, 2, 8] -> image_features -> embeddings -> tokens."""
    return {
        "vision.onnx": named(look(), {"images": "pixel_values", "seen": "image_features"}),
        "embedding.onnx": named(embed(), {"ids": "input_ids", "entries": "image_features", "embeds": "inputs_embeds"}),
        "decoder.onnx": named(write(), {"embeds": "inputs_embeds"}),
    }


SPEECH_TOO: Document = pipeline(
    VISION,
    extends=...,
    sessions={"speech": {"file": "speech.onnx"}},
    flow=[
        {"run": "vision", "when": "prompt"},
        {"run": "speech", "when": "prompt"},
        {"run": "embedding", "when": "prompt"},
        {"run": "decoder", "when": "always"},
    ],
    dataflow=[
        {"from": "vision.image_features", "to": "embedding.image_features"},
        {"from": "speech.audio_features", "to": "embedding.audio_features"},
        {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"},
    ],
)


def speech_too() -> Graphs:
    """The same with sound beside images: the embedding takes both."""
    marked = {"marked": "heard", "where": "spots", "places": "rows", "size": "many", "count": "few", "filled": "cut"}
    images, sound = vision(), embed()
    second = [each for each in sound.graph.node if each.op_type != "Gather"]
    names = {**marked, "ids": "input_ids", "entries": "audio_features", "own": "half", "embeds": "inputs_embeds"}
    names["mark"] = "sound_mark"
    for node in second:
        for side in (node.input, node.output):
            side[:] = [names.get(each, each) for each in side]
    both = images["embedding.onnx"]
    both.graph.node[-1].output[0] = "half"
    both.graph.node.extend(second)
    both.graph.initializer.append(numpy_helper.from_array(np.array(SOUND_MARK), "sound_mark"))
    both.graph.input.append(helper.make_tensor_value_info("audio_features", TensorProto.FLOAT, ["m", SIZE]))
    heard = model_of(
        [helper.make_node("Mul", ["sound", "two"], ["audio_features"])],
        [("sound", TensorProto.FLOAT, ["frames", SIZE])],
        [("audio_features", TensorProto.FLOAT, ["frames", SIZE])],
        {"two": np.full(1, 2, np.float32)},
    )
    return images | {"speech.onnx": heard}


def media_by_hand(folder: Path, prompt: list[int], count: int, images: Any = None, sound: Any = None) -> list[int]:
    """Greedy tokens by a loop over the graphs: media once, the embedding at every step."""

    def session(name: str) -> Any:
        return onnxruntime.InferenceSession(folder / f"{name}.onnx")

    none = np.zeros((0, SIZE), np.float32)
    take, say = session("embedding"), session("decoder")
    entries = {"image_features": none if images is None else session("vision").run(None, {"pixel_values": images})[0]}
    if (folder / "speech.onnx").exists():
        entries["audio_features"] = none if sound is None else session("speech").run(None, {"sound": sound})[0]
    past, fresh, length, made = [np.zeros((1, 1, 0, 8), np.float32)] * 2, prompt, 0, list[int]()
    for _ in range(count):
        length += len(fresh)
        embeds = take.run(None, {"input_ids": np.array([fresh]), **entries})[0]
        feeds = {
            "inputs_embeds": embeds,
            "attention_mask": np.ones((1, length), np.int64),
            "past_key_values.0.key": past[0],
            "past_key_values.0.value": past[1],
        }
        logits, *past = say.run(["logits", "present.0.key", "present.0.value"], feeds)
        fresh, entries = [int(logits[0, -1].argmax())], dict.fromkeys(entries, none)
        made += fresh
    return made
