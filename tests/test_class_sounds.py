"""Packages whose extractor is known by its class, a sound given as a file: results are those of bare sessions.

What goes into the graphs is made by sums written out (tests/reference/features.py).
"""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import compile_package
from onnx import TensorProto, helper, save

from tests.conftest import FIXTURES
from tests.read.test_sound_extractors import CENTERED, FRAMED
from tests.reference import features
from tests.runtime.audio.test_class_features import centered
from tests.runtime.audio.test_stated_features import noise, wav
from tests.test_processor_fixtures import COMPRESSION, FIELDS, GREEDY, HEARD, NONE, WORD, entries, loop

BANDS = 20


def test_a_prompt_hears_by_the_keys_of_an_extractor(tmp_path: Path) -> None:
    """Keys in the place of operations, in a file that says things of pictures as well; two frames fewer an entry."""
    package, samples = shutil.copytree(FIXTURES / FIELDS, tmp_path / "package"), noise(2000)
    keys = {"feature_extractor_type": FRAMED, "audio_compression_rate": COMPRESSION, "image_processor_type": "Other"}
    (package / "audio_processor.json").write_text(json.dumps(keys))
    compile_package(package, out=tmp_path / "out")
    made = features.natural(samples, 16000, 80, (0, 7690), False).astype(np.float32)[None]
    count = -(-made.shape[1] // COMPRESSION)
    told = {"audio_sizes": np.array([count]), "audio_projection_mode": np.array([2])}
    given = {"audio_embeds": made, "audio_attention_mask": np.ones(made.shape[:2], bool), **told}
    prompt = [*WORD, *[HEARD] * count]
    wanted = loop(FIELDS, prompt, {"image_features": NONE, "audio_features": entries(FIELDS, "speech", given)})
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.count_tokens("hi<|audio_1|>", audio=[wav(samples)]) == len(prompt)
        assert model.generate("hi<|audio_1|>", audio=[wav(samples)], **GREEDY).tokens[: len(wanted)] == wanted


def encoder(folder: Path, bands_first: bool = False) -> Path:
    """A folder of a graph over features and their mask, whole numbers, and the keys of an extractor as a part.

    bands_first: the graph takes them as [bands, frames].
    """
    folder.mkdir()
    weights = np.random.default_rng(4).standard_normal((BANDS, 6)).astype(np.float32)
    ones = helper.make_tensor("axis", TensorProto.INT64, [1], [2])
    axes: list[str | int] = [BANDS, "frames"] if bands_first else ["frames", BANDS]
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["attention_mask"], ["there"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["there", "axis"], ["column"]),
            helper.make_node("Transpose", ["input_features"], ["rows"], perm=[0, 2, 1] if bands_first else [0, 1, 2]),
            helper.make_node("MatMul", ["rows", "weights"], ["mixed"]),
            helper.make_node("Add", ["mixed", "column"], ["counted"]),
            helper.make_node("Tanh", ["counted"], ["logits"]),
        ],
        "encoder",
        [
            helper.make_tensor_value_info("input_features", TensorProto.FLOAT, ["batch", *axes]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "frames"]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "frames", 6])],
        [helper.make_tensor("weights", TensorProto.FLOAT, weights.shape, weights.reshape(-1).tolist()), ones],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps({"model_type": "any", "vocab_size": 6}))
    keys: dict[str, Any] = {"feature_extractor_type": CENTERED, "feature_size": BANDS}
    (folder / "processor_config.json").write_text(json.dumps({"feature_extractor": keys, "blank_token": "_"}))
    return folder


@pytest.mark.parametrize("bands_first", [False, True])
def test_an_encoder_alone_takes_features_and_their_mask(bands_first: bool, tmp_path: Path) -> None:
    """The frame at the end that does not count is there, its mask is 0; keys leave the order of axes to the graph."""
    package, samples = encoder(tmp_path / "encoder", bands_first), noise(1000)
    compile_package(package, out=tmp_path / "out")
    made = centered(samples, BANDS, True).astype(np.float32)[None]
    made = np.ascontiguousarray(made.transpose(0, 2, 1)) if bands_first else made
    mask = np.array([[1] * 6 + [0]], np.int64)
    session = ort.InferenceSession(package / "model.onnx", providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"input_features": made, "attention_mask": mask})
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        found = model.run({"request.audio": wav(samples)})["logits"]
    np.testing.assert_allclose(found, wanted, atol=2e-4)
