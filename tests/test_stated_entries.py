"""`vision.num_visual_tokens`: how many entries a picture has, where the file says it and the graph does not.

The tokens are those of a plain loop over the graphs.
"""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import RequestError
from genai_runtime.pictures import png_bytes

from tests.images.processors import picture
from tests.lower.hub_layout import (
    CELLS,
    CONTEXT,
    EDGE,
    HIDDEN,
    MARK,
    MEAN,
    PATCH,
    SEEN,
    STD,
    VOCABULARY,
    Array,
    by_hand,
    hub_folder,
    seen,
)
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.tokenizer import EOS

STATED, NEW = 3, 6
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": NEW, "stop_on_eos": False, "add_special_tokens": False}


def pooled() -> Sketch:
    """pixel_values float32 [batch, 3, 8, 8] -> image_features float32 [entries, 16]: 3 of a picture's 4 patches."""
    sketch = Sketch("pooled")
    op, pixels = sketch.op, sketch.input("pixel_values", "float32", "batch", 3, EDGE, EDGE)
    cut = op.Conv(pixels, sketch.weight("cut", weights(81, HIDDEN, 3, PATCH, PATCH)), strides=[PATCH, PATCH])
    rows = op.Tanh(op.Transpose(op.Reshape(cut, [0, HIDDEN, -1]), perm=[0, 2, 1]))
    kept = op.Gather(rows, op.Constant(value_ints=[0, 2, 3]), axis=1)
    sketch.output(op.Reshape(kept, [-1, HIDDEN]), "image_features", "float32", "entries", HIDDEN)
    return sketch


def package(folder: Path, **vision: Any) -> Path:
    hub_folder(folder, False, pooled())
    (folder / "config.json").unlink()
    file = {"filename": "onnx/vision_encoder.onnx", "config_filename": "preprocessor_config.json"}
    model = {
        "type": "videochat_flash_qwen",
        "vocab_size": VOCABULARY,
        "context_length": CONTEXT,
        "eos_token_id": EOS,
        "image_token_id": SEEN,
        "vision": {**file, **vision},
        "embedding": {"filename": "onnx/embed_tokens.onnx"},
        "decoder": {"filename": "onnx/decoder_model_merged.onnx"},
    }
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {}}))
    return folder


def taken(levels: Array) -> Array:
    """What the processor file makes of a picture of the graph's size."""
    return ((levels / 255 - MEAN) / STD).astype(np.float32).transpose(2, 0, 1)


@pytest.fixture
def stated(tmp_path: Path) -> genai_runtime.Model:
    compile_package(package(tmp_path / "p", num_visual_tokens=STATED), out=tmp_path / "out")
    return genai_runtime.load(tmp_path / "out", threads=1)


def test_a_place_becomes_as_many_entries_as_are_stated(stated: genai_runtime.Model, tmp_path: Path) -> None:
    """One picture and two, by text and by ids; each entry in its own place."""
    pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
    first = picture(EDGE, EDGE)
    shown = [first, (first[0][::-1], png_bytes(first[0][::-1]))]
    for count in (1, 2):
        levels, files = zip(*shown[:count], strict=True)
        text = "hi".join([MARK] * count) + "hi"
        word = stated.tokenizer.encode("hi", add_special_tokens=False)
        prompt = [each for _ in range(count) for each in [*[SEEN] * STATED, *word]]
        entries = seen(tmp_path / "p", [taken(each) for each in levels])
        assert len(entries) == STATED * count
        wanted = by_hand(tmp_path / "p", prompt, entries, NEW, False)
        assert wanted != by_hand(tmp_path / "p", prompt, entries[::-1], NEW, False)  # which entry is where counts
        assert stated.generate(text, images=files, **GREEDY).tokens == wanted
        assert stated.generate(prompt, images=files, **GREEDY).tokens == wanted
        assert stated.count_tokens(text, images=files, add_special_tokens=False) == len(prompt)


def test_a_prompt_with_another_number_of_entries_is_refused(stated: genai_runtime.Model) -> None:
    file = picture(EDGE, EDGE)[1]
    with pytest.raises(RequestError, match="image-tokens") as refused:
        stated.generate([*[SEEN] * CELLS, 9], images=[file], **GREEDY)
    assert f"({STATED} tokens)" in str(refused.value)


def test_a_text_without_places_is_refused(stated: genai_runtime.Model) -> None:
    """Nothing is put before a text that does not say where its picture is."""
    for prompt in ("hi", ""):
        with pytest.raises(RequestError) as refused:
            stated.generate(prompt, images=[picture(EDGE, EDGE)[1]], **GREEDY)
        assert refused.value.code == "image-tokens"
        assert "no places for pictures" in refused.value.what
        assert MARK in (refused.value.help or "")


def test_it_is_the_stated_number_that_decides(tmp_path: Path) -> None:
    """Without it nobody says how many entries a picture has: that is told, and a place stays what it is."""
    told = [each.what for each in compile_package(package(tmp_path / "p"), out=tmp_path / "out").problems]
    assert any("how many entries a picture has" in each for each in told)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.count_tokens(MARK, images=[picture(EDGE, EDGE)[1]], add_special_tokens=False) == 1
