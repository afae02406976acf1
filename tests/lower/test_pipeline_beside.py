"""Version 2 decoders of several sessions beside other models: an encoder, an embedding with media before it.

Expected tokens are those of bare sessions over the uncut decoder.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.lower.pipelines import (
    ENCODER_DECODER,
    VISION,
    Document,
    Graphs,
    cross_by_hand,
    encoder_decoder,
    masked,
    media_by_hand,
    package,
    pipeline,
    tokens,
    vision,
)
from tests.lower.test_front_model import MARK
from tests.test_stages_beside import cut_head

NEW = 8


def cut(folder: Path, graphs: Graphs) -> Graphs:
    """The graphs with the decoder's as its layers and its head."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(graphs["decoder.onnx"], folder / "whole.onnx")
    parts = cut_head(folder / "whole.onnx")
    others = {name: each for name, each in graphs.items() if name != "decoder.onnx"}
    return {**others, **{f"{name}.onnx": each for name, each in parts.items()}}


def flowing(stated: Document, *before: str, dataflow: list[dict[str, str]] | None = None, **step: Any) -> Document:
    """The document with a flow of these sessions and of the decoder's two."""
    sessions = {each: {"file": f"{each}.onnx"} for each in (*before, "layers", "lm_head")}
    flow = [{"run": each, "when": "init"} for each in before]
    flow += [{"run": "layers", "when": "step", **step}, {"run": "lm_head", "when": "step"}]
    pipeline: Document = {"sessions": sessions, "flow": flow, **({"dataflow": dataflow} if dataflow else {})}
    return {**stated, "pipeline": pipeline}


@pytest.mark.parametrize("names", ["encoder_hidden_states", "seen"])
def test_a_decoder_of_two_sessions_reads_an_encoder(names: str, tmp_path: Path) -> None:
    """Joined by its name, or as the only output that fits what the layers lack."""
    graphs = encoder_decoder(names)
    step = {"cross_attention_from": "encoder"}
    folder = package(tmp_path / "p", flowing(ENCODER_DECODER, "encoder", **step), cut(tmp_path / "whole", graphs))
    whole = package(tmp_path / "uncut", ENCODER_DECODER, graphs)
    for source in ([5, 9, 3], [7]):
        wanted = cross_by_hand(whole, {"input_ids": np.array([source])}, 2, NEW)
        assert tokens(folder, NEW, **{"request.input_ids": [source]}) == [wanted]


@pytest.mark.parametrize("apart", [False, True])
def test_a_mask_of_the_source_goes_to_stages_too(apart: bool, tmp_path: Path) -> None:
    """Of two sessions, and of one whose output goes in by windows: the encoder's mask is the decoder's."""
    graphs, rows, mask = masked(), [[3, 1, 7], [9, 2, 0]], [[1, 1, 1], [1, 1, 0]]
    whole = package(tmp_path / "uncut", ENCODER_DECODER, graphs)
    if apart:
        stated = flowing(ENCODER_DECODER, "encoder", cross_attention_from="encoder")
        folder = package(tmp_path / "p", stated, cut(tmp_path / "whole", graphs))
    else:
        kept = {"kv_cache": {"sliding_window": {"window_size": 2}}, "position_ids": {"strategy": "windowed"}}
        folder = package(tmp_path / "p", pipeline(ENCODER_DECODER, state=kept), graphs)
    for row, own in zip(rows, mask, strict=True):
        source, over = {"input_ids": np.array([row]), "attention_mask": np.array([own])}, np.array([own])
        wanted = cross_by_hand(whole, source, 2, NEW, encoder_attention_mask=over)
        assert tokens(folder, NEW, **{"request.input_ids": [row]}, attention_mask=[own]) == [wanted]


def test_an_embedding_that_takes_media_stays_before_the_sessions(tmp_path: Path) -> None:
    graphs = vision()
    wires = [
        {"from": "vision.image_features", "to": "embedding.image_features"},
        {"from": "embedding.inputs_embeds", "to": "layers.inputs_embeds"},
    ]
    folder = package(
        tmp_path / "p", flowing(VISION, "vision", "embedding", dataflow=wires), cut(tmp_path / "whole", graphs)
    )
    whole = package(tmp_path / "uncut", VISION, graphs)
    images = np.random.default_rng(1).normal(size=(2, 2, 8)).astype(np.float32)
    prompt = [3, MARK, MARK, 5, MARK, MARK, 7]
    fed: dict[str, Any] = {"request.input_ids": [prompt]}
    assert tokens(folder, NEW, **fed, pixel_values=images) == [media_by_hand(whole, prompt, NEW, images)]
    assert tokens(folder, NEW, **{"request.input_ids": [[3, 5, 7]]}) == [media_by_hand(whole, [3, 5, 7], NEW)]
