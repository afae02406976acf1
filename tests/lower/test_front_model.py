"""Embedding models before a decoder, made on the spot: two images in one prompt, media of several rows, refusals."""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from tests.lower.packages import VOCABULARY, Recipe, decoder, laid_over

SIZE, MARK = 8, 23
"""Width of an embedding, and the token that stands for an entry of media."""
KV = ["past_key_values.0.key", "past_key_values.0.value"]
DOCUMENT: dict[str, Any] = {
    "model": {"max_sequence_length": 64},
    "pipeline": {
        "models": {
            "look": {"filename": "look.onnx"},
            "embed": {"filename": "embed.onnx", "io": {"token_input": "ids"}},
            "write": {
                "filename": "write.onnx",
                "io": {
                    "inputs_embeds_input": "embeds",
                    "attention_mask_input": "attention_mask",
                    "logits_output": "logits",
                    "kv_inputs": KV,
                    "kv_outputs": ["present.0.key", "present.0.value"],
                },
            },
        },
        "dataflow": [
            {"from": "look.seen", "to": "embed.entries"},
            {"from": "embed.embeds", "to": "write.embeds"},
        ],
        "strategy": {"kind": "composite", "stages": [
            {"name": "a", "strategy": {"kind": "single_pass", "model": "look"}, "run_on": "prompt_only"},
            {"name": "b", "strategy": {"kind": "single_pass", "model": "embed"}, "run_on": "every_step"},
            {"name": "c", "strategy": {"kind": "autoregressive", "decoder": "write"}, "run_on": "every_step"},
        ]},
    },
}  # fmt: skip


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any]) -> ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    ports = [
        [helper.make_tensor_value_info(name, dtype, shape) for name, dtype, shape in side] for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *ports, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def look(rank: int = 2) -> ModelProto:
    """images float32 [batch, 2, 8] -> seen [batch * 2, 8] (rank 2), or as they are, moved (rank 3)."""
    nodes = [helper.make_node("Add", ["images", "one"], ["moved"])]
    weights = {"one": np.ones(1, np.float32), "flat": np.array([-1, SIZE], np.int64)}
    last = helper.make_node("Reshape", ["moved", "flat"], ["seen"])
    shape: list[Any] = ["entries", SIZE]
    if rank == 3:
        last, shape = helper.make_node("Identity", ["moved"], ["seen"]), ["batch", 2, SIZE]
    inputs = [("images", TensorProto.FLOAT, ["batch", 2, SIZE])]
    return model_of([*nodes, last], inputs, [("seen", TensorProto.FLOAT, shape)], weights)


def embed() -> ModelProto:
    """ids int64 [b, s], entries float32 [n, 8] -> embeds [b, s, 8]: each mark becomes the next entry."""
    table = np.random.default_rng(7).normal(size=(VOCABULARY, SIZE)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["own"]),
        helper.make_node("Equal", ["ids", "mark"], ["marked"]),
        helper.make_node("NonZero", ["marked"], ["where"]),
        helper.make_node("Transpose", ["where"], ["places"], perm=[1, 0]),
        helper.make_node("Shape", ["entries"], ["size"]),
        helper.make_node("Slice", ["size", "zero", "oneth", "zero"], ["count"]),
        helper.make_node("Slice", ["places", "zero", "count", "zero"], ["filled"]),
        helper.make_node("ScatterND", ["own", "filled", "entries"], ["embeds"]),
    ]
    weights = {"table": table, "mark": np.array(MARK), "zero": np.array([0]), "oneth": np.array([1])}
    inputs = [("ids", TensorProto.INT64, ["b", "s"]), ("entries", TensorProto.FLOAT, ["n", SIZE])]
    return model_of(nodes, inputs, [("embeds", TensorProto.FLOAT, ["b", "s", SIZE])], weights)


def write() -> ModelProto:
    """The tiny decoder without its embedding: embeds float32 [batch, sequence, 8]."""
    model = decoder(Recipe())
    graph = model.graph
    for node in list(graph.node):
        if node.op_type == "Gather" and node.input[0] == "embedding":
            graph.node.remove(node)
        for at, name in enumerate(node.input):
            if name in ("x.0", "input_ids"):
                node.input[at] = "embeds"
    graph.input.remove(next(each for each in graph.input if each.name == "input_ids"))
    graph.input.insert(0, helper.make_tensor_value_info("embeds", TensorProto.FLOAT, ["batch", "sequence", SIZE]))
    return model


def package(folder: Path, over: dict[str, Any] | None = None, rank: int = 2) -> Path:
    folder.mkdir(parents=True)
    for name, model in (("look", look(rank)), ("embed", embed()), ("write", write())):
        save(model, folder / f"{name}.onnx")
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(laid_over(DOCUMENT, over or {})))
    return folder


def by_hand(folder: Path, prompt: list[int], images: Any, count: int) -> list[int]:
    """Greedy tokens by a loop over the three graphs."""
    see, take, say = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("look", "embed", "write"))
    none = np.zeros((0, SIZE), np.float32)
    entries = none if images is None else see.run(None, {"images": images})[0].reshape(-1, SIZE)
    past, fresh, length, made = [np.zeros((1, 1, 0, 8), np.float32)] * 2, prompt, 0, list[int]()
    for _ in range(count):
        length += len(fresh)
        embeds = take.run(None, {"ids": np.array([fresh]), "entries": entries})[0]
        feeds = {"embeds": embeds, "attention_mask": np.ones((1, length), np.int64)} | dict(zip(KV, past, strict=True))
        logits, *past = say.run(["logits", "present.0.key", "present.0.value"], feeds)
        fresh, entries = [int(logits[0, -1].argmax())], none
        made += fresh
    return made


def images(count: int) -> Any:
    return np.random.default_rng(9).normal(size=(count, 2, SIZE)).astype(np.float32)


def ran(model: genai_runtime.Model, **inputs: Any) -> list[list[int]]:
    rows = model.run({**inputs, "request.max_iterations": [6]}, stop_on_eos=False).rows("tokens")
    return [[int(token) for token in each.reshape(-1)] for each in rows if each is not None]


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_media_come_with_the_prompt_and_not_with_later_tokens(count: int, rank: int, tmp_path: Path) -> None:
    """Two images' batch is not the request's; of rank 3, their entries go in one behind the other."""
    folder = package(tmp_path / "p", rank=rank)
    compile_package(folder, out=tmp_path / "out")
    prompt = [3, *[MARK] * (2 * count), 5]
    given = {"images": images(count)} if count else {}
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = ran(model, **{"request.input_ids": [prompt]}, **given)
        assert made == [by_hand(folder, prompt, given.get("images"), 6)]


def test_rows_take_their_media_in_order(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    compile_package(folder, out=tmp_path / "out")
    prompts, seen = [[3, MARK, MARK, 5], [MARK, 9, MARK, 1]], images(2)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = ran(model, **{"request.input_ids": prompts}, images=seen)
        assert made == [by_hand(folder, each, seen[at : at + 1], 6) for at, each in enumerate(prompts)]


def test_text_alone_needs_nothing_of_the_media(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        rows = model.generate(batch=[[3, 1, 7], [4]], max_new_tokens=6, stop_on_eos=False).rows
        assert [each.tokens for each in rows] == [by_hand(folder, each, None, 6) for each in ([3, 1, 7], [4])]


@pytest.mark.parametrize(
    ("over", "code"),
    [
        ({"pipeline": {"models": {"embed": {"io": ...}}}}, "no-embedding-stage"),
        ({"pipeline": {"dataflow": [{"from": "embed.embeds", "to": "write.embeds"}]}}, "unclaimed-input"),
        ({"pipeline": {"dataflow": [{"from": "look.seen", "to": "embed.entries"}]}}, "no-embedding-stage"),
        ({"pipeline": {"dataflow": [*DOCUMENT["pipeline"]["dataflow"], {"from": "embed.embeds", "to": "look.images"}]}},
         "cyclic-dataflow"),
    ],
)  # fmt: skip
def test_a_decoder_whose_embeddings_nobody_makes_is_refused(over: dict[str, Any], code: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(package(tmp_path / "p", over), out=tmp_path / "out")
    assert code in {each.code for each in refused.value.problems}
