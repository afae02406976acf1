"""Version 2 decoders with three positions a token: formed by the runtime for text, the caller's beside media."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from onnx import TensorProto, helper, numpy_helper

from tests.lower.pipelines import MARK, SIZE, VISION, Graphs, named, package, pipeline, tokens, vision

DOCUMENT = pipeline(
    VISION,
    state={"position_ids": {"strategy": "mrope_3d", "grid_source": "vision.pixel_values", "input_name": "places"}},
)


def placed() -> Graphs:
    """The vision package whose decoder adds a tenth of each of its three positions, weighed, to its embeddings."""
    graphs = vision()
    graph = named(graphs["decoder.onnx"], {}).graph
    for node in graph.node:
        node.input[:] = ["placed" if each == "inputs_embeds" else each for each in node.input]
    weights = {
        "weigh": np.array([0.1, 0.2, -0.3], np.float32).reshape(3, 1, 1),
        "first": np.array([0]),
        "end": np.array([-1]),
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    for at, node in enumerate(
        (
            helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["numbers", "weigh"], ["weighed"]),
            helper.make_node("ReduceSum", ["weighed", "first"], ["summed"], keepdims=0),
            helper.make_node("Unsqueeze", ["summed", "end"], ["moved"]),
            helper.make_node("Add", ["inputs_embeds", "moved"], ["placed"]),
        )
    ):
        graph.node.insert(at, node)
    graph.input.append(helper.make_tensor_value_info("places", TensorProto.INT64, [3, "batch", "sequence"]))
    return graphs


def by_hand(folder: Path, prompt: list[int], places: Any, images: Any, count: int) -> list[int]:
    """A loop; a later token's three positions are one more than the largest before."""

    def session(name: str) -> Any:
        return onnxruntime.InferenceSession(folder / f"{name}.onnx")

    none = np.zeros((0, SIZE), np.float32)
    take, say = session("embedding"), session("decoder")
    entries = none if images is None else session("vision").run(None, {"pixel_values": images})[0]
    past, fresh, length, made = [np.zeros((1, 1, 0, 8), np.float32)] * 2, prompt, 0, list[int]()
    for _ in range(count):
        length += len(fresh)
        feeds = {
            "inputs_embeds": take.run(None, {"input_ids": np.array([fresh]), "image_features": entries})[0],
            "attention_mask": np.ones((1, length), np.int64),
            "places": places,
            "past_key_values.0.key": past[0],
            "past_key_values.0.value": past[1],
        }
        logits, *past = say.run(["logits", "present.0.key", "present.0.value"], feeds)
        fresh, entries, places = [int(logits[0, -1].argmax())], none, np.full((3, 1, 1), places.max() + 1)
        made += fresh
    return made


def test_positions_of_text_are_three_times_the_same(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", DOCUMENT, placed())
    places = np.broadcast_to(np.arange(4), (3, 1, 4))
    assert tokens(folder, 6, **{"request.input_ids": [[3, 1, 7, 5]]}) == [
        by_hand(folder, [3, 1, 7, 5], places, None, 6)
    ]


def test_positions_beside_media_are_the_callers(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", DOCUMENT, placed())
    images = np.random.default_rng(9).normal(size=(1, 2, SIZE)).astype(np.float32)
    prompt, places = [3, MARK, MARK, 5], np.array([[[0, 1, 1, 3]], [[0, 1, 2, 3]], [[0, 1, 1, 3]]])
    given = {"request.input_ids": [prompt], "pixel_values": images, "places": places}
    assert tokens(folder, 6, **given) == [by_hand(folder, prompt, places, images, 6)]


@pytest.mark.parametrize(("strategy", "doubts"), [("auto", 0), ("mrope_3d", 0), ("default", 1)])
def test_the_graph_says_how_many_positions_a_token_has(strategy: str, doubts: int, tmp_path: Path) -> None:
    state = {"position_ids": {"strategy": strategy, "input_name": "places"}}
    lowered = lower_pipeline_config(package(tmp_path / "p", pipeline(VISION, state=state), placed()))
    said = [each.path for each in lowered.problems if each.code == "config-contradicts-graph"]
    assert said == ["pipeline.state.position_ids.strategy"] * doubts
