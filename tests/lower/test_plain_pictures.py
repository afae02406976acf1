"""Plain folders with an encoder of pictures: files go in as the folder's preprocessor_config.json says.

Expected values: Pillow and numpy make the tensor, ONNX Runtime alone runs the graph on it.
"""

import io
import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import Severity
from genai_runtime.cli import main

from tools.fixtures.graph import Sketch, weights
from tools.fixtures.tokenizer import write_tokenizer

Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
Array = np.ndarray[Any, Any]
MEAN, STD = [0.5, 0.25, 0.125], [0.5, 0.25, 1.0]
VIT: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 8, "width": 8}, "resample": 2,
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": MEAN, "image_std": STD,
}  # fmt: skip
CLIP = {
    **VIT,
    "size": {"shortest_edge": 8},
    "do_center_crop": True,
    "crop_size": {"height": 8, "width": 8},
    "resample": 3,
}


def classifier(edges: tuple[int | str, int | str] = (8, 8)) -> Sketch:
    """pixel_values float32 [batch, 3, 8, 8] -> logits float32 [batch, 5], of the means of each colour."""
    sketch = Sketch("classifier")
    op, pixels = sketch.op, sketch.input("pixel_values", "float32", "batch", 3, *edges)
    means = op.ReduceMean(op.Relu(pixels), op.Constant(value_ints=[2, 3]), keepdims=0)
    sketch.output(op.MatMul(means, sketch.weight("head", weights(61, 3, 5))), "logits", "float32", "batch", 5)
    return sketch


def dual() -> Sketch:
    """Texts input_ids [texts, words], attention_mask, and pictures -> logits_per_image [pictures, texts]."""
    sketch = Sketch("dual")
    op = sketch.op
    ids = sketch.input("input_ids", "int64", "texts", "words")
    pixels = sketch.input("pixel_values", "float32", "pictures", 3, 8, 8)
    mask = sketch.input("attention_mask", "int64", "texts", "words")
    words = op.Mul(op.Gather(sketch.weight("words", weights(62, 64, 4)), ids), op.Unsqueeze(op.Cast(mask, to=1), [2]))
    seen = op.MatMul(
        op.ReduceMean(pixels, op.Constant(value_ints=[2, 3]), keepdims=0), sketch.weight("look", weights(63, 3, 4))
    )
    said = op.ReduceSum(words, op.Constant(value_ints=[1]), keepdims=0)
    sketch.output(op.Identity(said), "text_embeds", "float32", "texts", 4)
    sketch.output(op.MatMul(seen, op.Transpose(said, perm=[1, 0])), "logits_per_image", "float32", "pictures", "texts")
    sketch.output(op.Identity(seen), "image_embeds", "float32", "pictures", 4)
    return sketch


def folder(root: Path, sketch: Sketch, processor: Any, name: str = "preprocessor_config.json") -> Path:
    package = root / "package"
    package.mkdir(parents=True)
    sketch.save(package / "model.onnx")
    (package / "config.json").write_text(json.dumps({"model_type": "any", "vocab_size": 64}))
    if processor is not None:
        (package / name).write_text(json.dumps(processor))
    return package


def picture(height: int, width: int) -> tuple[Array, bytes]:
    levels = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "PNG")
    return levels, file.getvalue()


def tensor(levels: Array, how: int, size: tuple[int, int] = (8, 8)) -> Array:
    """Resized to (height, width), the middle 8x8 of that, normalised: [3, 8, 8]."""
    whole = np.asarray(Image.fromarray(levels).resize(size[::-1], how))
    top, left = (size[0] - 8) // 2, (size[1] - 8) // 2
    numbers = (whole[top : top + 8, left : left + 8] / 255 - MEAN) / STD
    made: Array = numbers.transpose(2, 0, 1).astype(np.float32)
    return made


def by_hand(package: Path, **inputs: Array) -> list[Array]:
    session = onnxruntime.InferenceSession(package / "model.onnx", providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def compiled(package: Path) -> genai_runtime.Model:
    told = compile_package(package, out=package.parent / "out").problems
    assert not [each for each in told if each.severity is Severity.ERROR]
    return genai_runtime.load(package.parent / "out", threads=1)


def test_a_classifier_takes_picture_files(tmp_path: Path) -> None:
    """One or several, by run and by the command; the tensor goes in as before."""
    (first, one), (second, two) = picture(20, 30), picture(7, 9)
    package = folder(tmp_path, classifier(), VIT)
    pixels = np.stack([tensor(each, Image.Resampling.BILINEAR) for each in (first, second)])
    (wanted,) = by_hand(package, pixel_values=pixels)
    with compiled(package) as model:
        np.testing.assert_allclose(model.run({"request.image": [one, two]})["logits"], wanted, atol=1e-5)
        np.testing.assert_allclose(model.run({"request.image": one})["logits"], wanted[:1], atol=1e-5)
        np.testing.assert_allclose(model.run({"pixel_values": pixels})["logits"], wanted, atol=1e-6)
        with pytest.raises(genai_runtime.RequestError, match="the package takes a picture"):
            model.run({})
        with pytest.raises(genai_runtime.RequestError, match="as files and as tensors"):
            model.run({"request.image": one, "pixel_values": pixels})


def test_the_command_shows_what_a_task_makes_of_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    levels, data = picture(20, 30)
    package = folder(tmp_path, classifier(), CLIP)
    (tmp_path / "seen.png").write_bytes(data)
    compile_package(package, out=tmp_path / "out")
    (wanted,) = by_hand(package, pixel_values=tensor(levels, Image.Resampling.BICUBIC, (8, 12))[None])
    task = [str(tmp_path / "out"), "--task", "features"]
    assert main([*task, "--image", str(tmp_path / "seen.png")]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out), wanted, atol=1e-5)
    assert main([*task, "--audio", str(tmp_path / "seen.png")]) == 2
    assert "no-audio-input" in capsys.readouterr().err


def test_a_dual_encoder_takes_texts_and_pictures(tmp_path: Path) -> None:
    (first, one), (second, two) = picture(16, 8), picture(8, 24)
    package = folder(tmp_path, dual(), CLIP)
    write_tokenizer(package)
    sizes = ((16, 8), (8, 24))
    pixels = np.stack(
        [tensor(each, Image.Resampling.BICUBIC, size) for each, size in zip((first, second), sizes, strict=True)]
    )
    ids = np.array([[9, 10, 11], [20, 21, 22]])
    wanted = by_hand(package, input_ids=ids, pixel_values=pixels, attention_mask=np.ones_like(ids))
    with compiled(package) as model:
        made = model.run({"input_ids": ids, "attention_mask": np.ones_like(ids), "request.image": [one, two]})
        for name, each in zip(("text_embeds", "logits_per_image", "image_embeds"), wanted, strict=True):
            np.testing.assert_allclose(made[name], each, atol=1e-5)


def test_pictures_of_several_sizes_are_refused_where_the_graph_takes_any(tmp_path: Path) -> None:
    """A shortest edge leaves the other one open: alone each picture goes in, together they fit no tensor."""
    package = folder(tmp_path, classifier(("high", "wide")), {**VIT, "size": {"shortest_edge": 8}})
    (levels, one), (_, two) = picture(16, 32), picture(16, 16)
    whole = np.asarray(Image.fromarray(levels).resize((16, 8), Image.Resampling.BILINEAR))
    pixels = ((whole / 255 - MEAN) / STD).transpose(2, 0, 1).astype(np.float32)[None]
    with compiled(package) as model:
        np.testing.assert_allclose(
            model.run({"request.image": one})["logits"], by_hand(package, pixel_values=pixels)[0], atol=1e-5
        )
        with pytest.raises(genai_runtime.RequestError, match="image-sizes"):
            model.run({"request.image": [one, two]})


@pytest.mark.parametrize(
    ("processor", "code", "words"),
    [
        ({**VIT, "size": {"height": 9, "width": 8}}, "processor-mismatch", "9 pixels high"),
        ({**VIT, "do_pad": True}, "bad-processor", "do_pad is not offered"),
        ({**VIT, "size": 8, "do_center_crop": True, "crop_size": 8}, "bad-processor", "a matter of the class"),
        ({**VIT, "resample": 5}, "bad-processor", "resample is 5"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error_and_without_it_tensors_go_in(
    tmp_path: Path, processor: Any, code: str, words: str
) -> None:
    package = folder(tmp_path, classifier(), processor)
    with pytest.raises(CompileError) as caught:
        compile_package(package, out=tmp_path / "out")
    (found,) = caught.value.problems
    assert found.code == code
    assert words in found.what
    assert found.where.file == "preprocessor_config.json"
    assert "take the file away" in found.help
    (package / "preprocessor_config.json").unlink()
    compile_package(package, out=tmp_path / "out")
    pixels = np.ones((1, 3, 8, 8), np.float32)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.describe()["media"] == []
        (wanted,) = by_hand(package, pixel_values=pixels)
        np.testing.assert_allclose(model.run({"pixel_values": pixels})["logits"], wanted, atol=1e-6)


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    told = compile_package(folder(tmp_path, classifier(), None), out=tmp_path / "out").problems
    assert not [each for each in told if each.code in ("missing-file", "bad-processor")]


def test_a_part_of_a_processor_file_and_channels_turned_around(tmp_path: Path) -> None:
    """`image_processor` inside a processor_config.json; blue first."""
    own = {**VIT, "do_flip_channel_order": True}
    package = folder(tmp_path, classifier(), {"image_processor": own}, "processor_config.json")
    levels, data = picture(8, 8)
    pixels = tensor(levels[..., ::-1], Image.Resampling.BILINEAR)[None]
    with compiled(package) as model:
        (wanted,) = by_hand(package, pixel_values=pixels)
        np.testing.assert_allclose(model.run({"request.image": data})["logits"], wanted, atol=1e-5)
