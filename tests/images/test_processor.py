"""Image processor files: tensors that onnxruntime-genai made of the same picture, and files that can't be followed."""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime.adapters.image.processor import read_processor

from tests.data import needs_data
from tests.real_packages import PACKAGES, cases

pytest.importorskip("PIL", reason="Pillow is absent: no picture can be decoded")
DECODE = {"type": "DecodeImage", "name": "decode", "attrs": {"color_space": "RGB"}}


def processor_file(folder: Path, *operations: dict[str, Any]) -> Path:
    file = folder / "processor.json"
    transforms = [{"operation": {"name": "one", **each}} for each in operations]
    file.write_text(json.dumps({"processor": {"name": "p", "transforms": transforms}}))
    return file


def picture(height: int, width: int) -> tuple[np.ndarray[Any, Any], bytes]:
    levels = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    return levels, genai_runtime.pictures.png_bytes(levels)


@needs_data
@pytest.mark.parametrize("name", ["mobius-gemma3_vl-og", "mobius-mistral3-og"])
def test_pixels_are_those_of_the_other_runtime(name: str) -> None:
    """Within half-precision rounding where the data keeps them so."""
    made = read_processor(PACKAGES / name / "processor_config.json")([PACKAGES / name / "image.png"])
    with np.load(PACKAGES / name / "image_case.npz") as held:
        wanted = held["pixel_values"]
    assert made["pixel_values"].shape == wanted.shape
    rounding = 1e-3 if wanted.dtype == np.float16 else 1e-6
    assert np.abs(made["pixel_values"] - wanted.astype(np.float32)).max() <= rounding * max(1, np.abs(wanted).max())


@needs_data
def test_a_picture_file_gives_the_expected_tokens(tmp_path: Path) -> None:
    package = PACKAGES / "mobius-mistral3-og"
    compile_package(package, out=tmp_path / "out")
    (case,) = cases(package.name, "image")
    tensors = read_processor(package / "processor_config.json")([(package / "image.png").read_bytes()])
    assert tensors["image_sizes"].tolist() == [[56, 84]]
    inputs = {"request.input_ids": [case["prompt"]], "pixel_values": tensors["pixel_values"]}
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        rows = model.run({**inputs, "request.max_iterations": [16]}, stop_on_eos=False).rows("tokens")
    assert [int(token) for each in rows if each is not None for token in each.reshape(-1)] == case["greedy"]


def test_operations_do_what_their_names_say_on_numbers(tmp_path: Path) -> None:
    levels, data = picture(8, 6)
    file = processor_file(
        tmp_path,
        DECODE,
        {"type": "ConvertRGB"},
        {"type": "CenterCrop", "attrs": {"height": 4, "width": 2}},
        {"type": "Rescale", "attrs": {"rescale_factor": 0.5}},
        {"type": "Normalize", "attrs": {"mean": [1.0, 2.0, 3.0], "std": [2.0, 4.0, 8.0]}},
        {"type": "Permute3D", "attrs": {"dims": [2, 0, 1]}},
    )
    wanted = (levels[2:6, 2:4, ::-1] * 0.5 - [1, 2, 3]) / [2, 4, 8]
    np.testing.assert_allclose(read_processor(file)([data])["pixel_values"][0], wanted.transpose(2, 0, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((42, 70), (56, 84)), ((20, 20), (28, 28)), ((300, 300), (112, 112)), ((28, 84), (28, 84)), ((14, 14), (28, 28))],
)
def test_smart_sizes_round_halves_up_within_bounds(
    tmp_path: Path, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    """42 / 28 and 70 / 28 are halves: up, where Python's round would take the even neighbour. 300: at most 12600."""
    smart = {"smart_resize": 1, "min_pixels": 784, "max_pixels": 12600, "patch_size": 14, "merge_size": 2}
    file = processor_file(tmp_path, DECODE, {"type": "Resize", "attrs": smart})
    assert read_processor(file)([picture(*size)[1]])["pixel_values"].shape[1:3] == wanted


def test_smaller_pictures_are_filled_up_with_zeros(tmp_path: Path) -> None:
    file = processor_file(tmp_path, DECODE)
    (small, first), (large, second) = picture(2, 5), picture(4, 3)
    made = read_processor(file)([first, second])["pixel_values"]
    assert made.shape == (2, 4, 5, 3)
    assert np.array_equal(made[0, :2, :5], small)
    assert np.array_equal(made[1, :4, :3], large)
    assert not made[0, 2:].any()
    assert not made[1, :, 3:].any()


@pytest.mark.parametrize(
    "operations",
    [
        [DECODE, {"type": "PatchImage"}],
        [{"type": "Rescale"}],
        [DECODE, DECODE],
        [DECODE, {"type": "Resize", "attrs": {"height": "tall"}}],
        [DECODE, {"type": "Resize", "attrs": {"interpolation": "MAGIC"}}],
        [DECODE, {"type": "Normalize", "attrs": {"mean": [1.0, 2.0]}}],
        [DECODE, {"type": "Normalize", "attrs": {"turned": 1}}],
        [DECODE, {"type": "Permute3D", "attrs": {"dims": [0, 1]}}],
        [DECODE, {"type": "Rescale", "inputs": ["decode:0"]}],
        [DECODE, {"type": "Rescale", "attrs": []}],
    ],
)
def test_what_cant_be_followed_is_refused(tmp_path: Path, operations: list[dict[str, Any]]) -> None:
    with pytest.raises(genai_runtime.LoadError, match="bad-processor"):
        read_processor(processor_file(tmp_path, *operations))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"processor": 3}', '{"image_processor_type": "x"}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    for file in ("file.json", "absent.json"):
        with pytest.raises(genai_runtime.LoadError, match="bad-processor"):
            read_processor(tmp_path / file)
