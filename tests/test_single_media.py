"""A processor file of pictures or sounds beside a graph that stands alone is used; one that nothing uses is said.

Expected values: Pillow and numpy make the tensor by themselves, a bare ONNX Runtime session runs the graph.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime import RequestError

from tests.data import needs_data
from tests.lower.packages import Recipe, write_package
from tests.lower.plain_folders import plain_folder
from tests.real_packages import PACKAGES
from tests.reference.sounds import log_mel
from tests.test_real_sounds import FLAT as SOUND
from tests.test_real_sounds import tune, wav

pytestmark = needs_data
Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
FLAT = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 28, "width": 28},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.25, 0.5, 0.2],
}
PICTURES = [PACKAGES / name / "image.png" for name in ("mobius-mistral3-og", "mobius-gemma3_vl-og")]


def package(folder: Path, name: str = "preprocessor_config.json", **over: Any) -> Path:
    made = shutil.copytree(PACKAGES / "mobius-vit-og", folder)
    (made / name).write_text(json.dumps({**FLAT, **over}))
    return made


def by_hand(file: Path) -> np.ndarray[Any, Any]:
    picture = Image.open(file).convert("RGB").resize((28, 28), Image.BILINEAR)
    levels = np.asarray(picture, np.float32) / 255
    scaled = (levels - np.array(FLAT["image_mean"], np.float32)) / np.array(FLAT["image_std"], np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None].astype(np.float32))


def wanted(tensor: np.ndarray[Any, Any]) -> Any:
    session = onnxruntime.InferenceSession(PACKAGES / "mobius-vit-og" / "model.onnx")
    return session.run(None, {"pixel_values": tensor})[0]


@pytest.mark.parametrize("plain", [False, True])
def test_pictures_go_into_an_encoder_alone(plain: bool, tmp_path: Path) -> None:
    """As files, one or several; as the tensor, as before; also where nothing at all is declared."""
    folder = package(tmp_path / "package")
    if plain:
        (folder / "genai_config.json").unlink()
        (folder / "config.json").write_text(json.dumps({"model_type": "some", "hidden_size": 32}))
    made = compile_package(folder, out=tmp_path / "out")
    assert "image files become tensors as preprocessor_config.json says" in made.notes
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        alone = [model.run({"request.image": each})["last_hidden_state"] for each in PICTURES]
        for found, file in zip(alone, PICTURES, strict=True):
            np.testing.assert_allclose(found, wanted(by_hand(file)), atol=1e-4)
        both = model.run({"request.image": PICTURES})["last_hidden_state"]
        np.testing.assert_allclose(both, np.concatenate(alone), atol=1e-5)
        tensor = by_hand(PICTURES[0])
        np.testing.assert_array_equal(model.run({"pixel_values": tensor})["last_hidden_state"], wanted(tensor))
        with pytest.raises(RequestError, match="missing-input"):
            model.run({})
        with pytest.raises(RequestError, match="image"):
            model.run({"request.image": b"no picture"})


def test_another_size_than_the_graphs_is_an_error(tmp_path: Path) -> None:
    folder = package(tmp_path / "package", size={"height": 56, "width": 28})
    with pytest.raises(CompileError, match="processor-mismatch") as caught:
        compile_package(folder, out=tmp_path / "out")
    assert "56 pixels high" in str(caught.value)


def opened(folder: Path, **over: Any) -> Path:
    """The package with height and width left open in its graph, as exporters write it."""
    made = package(folder, **over)
    model = onnx.load(made / "model.onnx", load_external_data=False)
    for axis, name in ((2, "height"), (3, "width")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    onnx.save(model, made / "model.onnx")
    return made


@pytest.mark.parametrize(
    ("height", "width", "fits"), [(28, 28, True), (42, 28, False), (14, 56, True), (56, 28, False)]
)
def test_pictures_have_as_many_patches_as_the_graphs_table(height: int, width: int, fits: bool, tmp_path: Path) -> None:
    """A table of five rows, one of them no patch: four patches of 14 pixels. ONNX Runtime says the same."""
    folder = opened(tmp_path / "package")
    notes = compile_package(folder, out=tmp_path / "out").notes
    assert "pixel_values: pictures of 4 patches of 14 x 14 pixels" in notes
    tensor = np.random.default_rng(0).normal(size=(1, 3, height, width)).astype(np.float32)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        if fits:
            (expected,) = session.run(None, {"pixel_values": tensor})
            np.testing.assert_allclose(model.run({"pixel_values": tensor})["last_hidden_state"], expected, atol=1e-5)
            return
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            session.run(None, {"pixel_values": tensor})
        with pytest.raises(RequestError, match="wrong-shape") as refused:
            model.run({"pixel_values": tensor})
        assert f"{height} x {width} pixels" in str(refused.value)
        assert "takes 4" in str(refused.value)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"size": {"height": 56, "width": 28}}, "of 56 x 28 pixels"),
        ({"size": {"shortest_edge": 28}}, "of their own size"),
    ],
)
def test_a_file_of_other_patches_than_the_graphs_table(over: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="processor-mismatch") as caught:
        compile_package(opened(tmp_path / "package", **over), out=tmp_path / "out")
    assert words in str(caught.value)
    assert "4 patches of 14 x 14" in str(caught.value)


def test_a_file_that_cant_be_followed_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    folder = package(tmp_path / "package", resample=7)
    with pytest.raises(CompileError, match="bad-processor"):
        compile_package(folder, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"do_resize": True, "size": {"height": 32, "width": 28}}, "resample is not stated"),
        ({"do_resize": True, "size": {"height": 28, "width": 28}, "resample": 2}, "image_mean is not stated"),
        (
            {"do_resize": True, "size": {"height": 32, "width": 28}, "resample": 2, "do_normalize": False},
            "32 pixels high",
        ),
        ({"do_pad": True}, "do_pad is not offered"),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_a_file_that_states_no_class_is_of_pictures_too(
    plain: bool, stated: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """What is done to pictures tells it: it is followed as far as it says all, or refused, never passed over."""
    folder = package(tmp_path / "package")
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    if plain:
        (folder / "genai_config.json").unlink()
        (folder / "config.json").write_text(json.dumps({"model_type": "some", "hidden_size": 32}))
    with pytest.raises(CompileError) as caught:
        compile_package(folder, out=tmp_path / "out")
    assert words in str(caught.value)
    assert "take the file away" in str(caught.value)


def test_a_file_without_class_that_says_all_is_followed(tmp_path: Path) -> None:
    stated = {"do_resize": True, "size": {"height": 28, "width": 28}, "resample": 2, "do_normalize": False}
    folder = package(tmp_path / "package")
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    compile_package(folder, out=tmp_path / "out")
    picture = Image.open(PICTURES[0]).convert("RGB").resize((28, 28), Image.BILINEAR)
    tensor = np.ascontiguousarray((np.asarray(picture, np.float32) / 255).transpose(2, 0, 1)[None])
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        found = model.run({"request.image": PICTURES[0]})["last_hidden_state"]
    np.testing.assert_allclose(found, wanted(tensor), atol=1e-4)


@pytest.mark.parametrize(("stated", "noted"), [({"size": 28}, True), ({"sampling_rate": 16000}, False)])
def test_a_file_of_no_known_form_is_a_note(stated: dict[str, Any], noted: bool, tmp_path: Path) -> None:
    """Samples of sound are told of elsewhere."""
    folder = package(tmp_path / "package")
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    notes = compile_package(folder, out=tmp_path / "out").notes
    assert any(each.startswith("preprocessor_config.json is not used") for each in notes) is noted


def test_a_file_that_is_named_and_absent_is_an_error(tmp_path: Path) -> None:
    folder = shutil.copytree(PACKAGES / "mobius-vit-og", tmp_path / "package")
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["vision"] = {"config_filename": "sees.json"}
    (folder / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(CompileError, match="missing-file") as caught:
        compile_package(folder, out=tmp_path / "out")
    (told,) = caught.value.problems
    assert (told.path, "sees.json" in told.what) == ("model.vision.config_filename", True)
    (folder / "sees.json").write_text(json.dumps(FLAT))
    made = compile_package(folder, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        found = model.run({"request.image": PICTURES[0]})["last_hidden_state"]
    np.testing.assert_allclose(found, wanted(by_hand(PICTURES[0])), atol=1e-4)
    assert not any("not used" in each for each in made.notes)


def test_without_a_file_tensors_go_in_and_nothing_is_said(tmp_path: Path) -> None:
    made = compile_package(PACKAGES / "mobius-vit-og", out=tmp_path / "out")
    assert made.problems == ()
    assert not any("files become tensors" in each for each in made.notes)


@pytest.mark.parametrize("dialect", ["configuration", "stages", "plain folder"])
def test_a_file_beside_a_decoder_of_text_is_said_not_to_be_used(dialect: str, tmp_path: Path) -> None:
    if dialect == "plain folder":
        from tests.lower.packages import decoder

        folder = plain_folder(tmp_path / "package", {"model.onnx": decoder(Recipe())})
    else:
        stage = {"filename": "model.onnx", "inputs": ["input_ids", "attention_mask"], "outputs": ["logits"]}
        for half in ("key", "value"):
            stage["inputs"].append(f"past_key_values.0.{half}")
            stage["outputs"].append(f"present.0.{half}")
        staged = {"decoder": {"filename": ..., "pipeline": [{"all": stage}]}} if dialect == "stages" else {}
        folder = write_package(tmp_path / "package", Recipe(), {"model": staged})
    (folder / "preprocessor_config.json").write_text(json.dumps(FLAT))
    made = compile_package(folder, out=tmp_path / "out")
    (said,) = [each for each in made.notes if "preprocessor_config.json" in each]
    assert "it is not used" in said


# ---- sounds ----------------------------------------------------------------------------------------------------------


def test_a_sound_goes_into_an_encoder_alone(tmp_path: Path) -> None:
    """Features are written out by numpy (tests/reference/sounds.py), the graph runs in a bare session."""
    source, folder = PACKAGES / "mobius-whisper-meta" / "encoder", tmp_path / "package"
    folder.mkdir()
    for name in ("model.onnx", "model.onnx.data"):
        shutil.copy(source / name, folder / name)
    (folder / "config.json").write_text(json.dumps({"model_type": "some", "vocab_size": 320}))
    (folder / "preprocessor_config.json").write_text(json.dumps(SOUND))
    made = compile_package(folder, out=tmp_path / "out")
    assert "audio files become tensors as preprocessor_config.json says" in made.notes
    samples = tune(1.0)
    heard = log_mel(np.concatenate([samples, np.zeros(800)]), 80)  # its last column is silence, as all behind it are
    features = np.concatenate([heard, np.repeat(heard[:, -1:], 3000 - heard.shape[1], axis=1)], axis=1)[None]
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"input_features": features.astype(np.float32)})
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        found = model.run({"request.audio": wav(samples)})["encoder_hidden_states"]
        np.testing.assert_allclose(found, expected, atol=2e-3)
        with pytest.raises(RequestError, match="missing-input"):
            model.run({})
