"""Image processor files: each operation against numpy and Pillow, and files that can't be followed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler import CompileError
from genai_compiler.lower.followed_picture import followed
from genai_compiler.read.image_processor import read_image_processor

from tests.images.processors import DECODE, RESCALE, made, opened, picture, processor_file

Image = pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
HALF = {"mean": [0.5, 0.25, 0.125], "std": [0.5, 0.25, 1.0]}


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
    np.testing.assert_allclose(made(file, [data])["pixel_values"][0], wanted.transpose(2, 0, 1), rtol=1e-6)


@pytest.mark.parametrize("flag", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize(("space", "swaps"), [("RGB", True), ("RGB", False), ("BGR", True), ("BGR", False)])
def test_channels_are_exchanged_by_everything_that_says_so(tmp_path: Path, flag: str, space: str, swaps: bool) -> None:
    """Decoded as BGR, ConvertRGB, the flag of Normalize: each exchanges the first and third, one after the other."""
    levels, data = picture(5, 4)
    swap = [{"type": "ConvertRGB"}] if swaps else []
    normalize = {"type": "Normalize", "attrs": {**HALF, flag: 1}}
    file = processor_file(tmp_path, {**DECODE, "attrs": {"color_space": space}}, *swap, RESCALE, normalize)
    pixels = levels[..., ::-1] if space == "BGR" else levels
    pixels = pixels[..., ::-1] if swaps else pixels
    wanted = (pixels[..., ::-1] / 255 - HALF["mean"]) / HALF["std"]
    np.testing.assert_allclose(made(file, [data])["pixel_values"][0], wanted, atol=1e-5)


@pytest.mark.parametrize(("name", "ours"), [("NEAREST", 0), ("LANCZOS", 1), ("LINEAR", 2), ("CUBIC", 3)])
def test_resampling_is_pillows(tmp_path: Path, name: str, ours: int) -> None:
    levels, data = picture(21, 34)
    resize = {"type": "Resize", "attrs": {"height": 13, "width": 40, "interpolation": name}}
    wanted = np.asarray(opened(levels).resize((40, 13), Image.Resampling(ours))) / 255
    file = processor_file(tmp_path, DECODE, resize, RESCALE)
    np.testing.assert_allclose(made(file, [data])["pixel_values"][0], wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((42, 70), (56, 84)), ((20, 20), (28, 28)), ((300, 300), (112, 112)), ((28, 84), (28, 84)), ((14, 14), (28, 28))],
)
def test_smart_sizes_round_halves_up_within_bounds(
    tmp_path: Path, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    """42 / 28 and 70 / 28 are halves: up, where Python's round would take the even neighbour. 300: at most 12600."""
    smart = {"smart_resize": 1, "min_pixels": 784, "max_pixels": 12600, "patch_size": 14, "merge_size": 2}
    file = processor_file(tmp_path, DECODE, {"type": "Resize", "attrs": smart}, RESCALE, {"type": "PixtralImageSizes"})
    tensors = made(file, [picture(*size)[1]], "pixel_values", "image_sizes")
    assert tensors["pixel_values"].shape[1:3] == wanted
    assert tensors["image_sizes"].tolist() == [list(wanted)]


def test_smaller_pictures_are_filled_up_with_zeros(tmp_path: Path) -> None:
    file = processor_file(tmp_path, DECODE, {"type": "Rescale", "attrs": {"rescale_factor": 2.0}})
    (small, first), (large, second) = picture(2, 5), picture(4, 3)
    whole = made(file, [first, second])["pixel_values"]
    assert whole.shape == (2, 4, 5, 3)
    assert np.array_equal(whole[0, :2, :5], small * 2.0)
    assert np.array_equal(whole[1, :4, :3], large * 2.0)
    assert not whole[0, 2:].any()
    assert not whole[1, :, 3:].any()


def test_patches_lie_as_the_reference_says(tmp_path: Path) -> None:
    """Rows (t, gh/m, gw/m, m, m), columns (C, tp, p, p); written as loops over the numbers."""
    levels, data = picture(8, 12)
    patch = {"type": "PatchImage", "attrs": {"patch_size": 2, "temporal_patch_size": 2, "merge_size": 2}}
    tensors = made(processor_file(tmp_path, DECODE, RESCALE, patch), [data, data], "pixel_values", "image_grid_thw")
    rows = [
        [levels[y * 2 + i, x * 2 + j, channel] for channel in range(3) for _ in (0, 1) for i in (0, 1) for j in (0, 1)]
        for top in range(0, 4, 2)
        for left in range(0, 6, 2)
        for y in (top, top + 1)
        for x in (left, left + 1)
    ]
    np.testing.assert_allclose(tensors["pixel_values"] * 255, np.array(rows + rows), atol=1e-4)
    assert tensors["image_grid_thw"].tolist() == [[1, 4, 6]] * 2


def test_patches_under_a_budget_are_filled_up(tmp_path: Path) -> None:
    """At most 4 entries of 3x3 patches of 4 pixels: a picture of 20x30 becomes 1x2 of them, 6 patches a row."""
    levels, data = picture(20, 30)
    budget = {"patch_size": 4, "max_soft_tokens": 4, "pooling_kernel_size": 3}
    file = processor_file(tmp_path, DECODE, {"type": "Gemma4ImageTransform", "attrs": budget})
    tensors = made(file, [data], "pixel_values", "pixel_position_ids")
    small = np.asarray(opened(levels).resize((24, 12), Image.Resampling.BICUBIC)) / 255
    rows = [small[y : y + 4, x : x + 4].reshape(-1) for y in range(0, 12, 4) for x in range(0, 24, 4)]
    assert tensors["pixel_values"].shape == (1, 36, 48)
    np.testing.assert_allclose(tensors["pixel_values"][0, :18], rows, atol=1e-6)
    assert not tensors["pixel_values"][0, 18:].any()
    places = [[x, y] for y in range(3) for x in range(6)] + [[-1, -1]] * 18
    assert tensors["pixel_position_ids"][0].tolist() == places


# ---- the other dialect -----------------------------------------------------------------------------------------------


def flat_file(folder: Path, **keys: Any) -> Path:
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps({"image_processor_type": "Some", "resample": 3, **keys}))
    return file


def test_flat_keys_of_fixed_pictures(tmp_path: Path) -> None:
    levels, data = picture(20, 30)
    keys = {"size": {"height": 8, "width": 8}, "image_mean": HALF["mean"], "image_std": HALF["std"]}
    wanted = np.asarray(opened(levels).resize((8, 8), Image.Resampling.BICUBIC)) / 255
    wanted = (wanted - HALF["mean"]) / HALF["std"]
    found = made(flat_file(tmp_path, **keys), [data])["pixel_values"][0]
    np.testing.assert_allclose(found, wanted.transpose(2, 0, 1), atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "path", "way"),
    [
        ({"image_std": HALF["std"]}, "image_mean", "do_normalize as false"),
        ({"image_mean": HALF["mean"]}, "image_std", "do_normalize as false"),
        ({"do_normalize": False, "crop_size": 6}, "crop_size", "state do_center_crop"),
    ],
)
def test_what_the_class_would_decide_is_not_assumed(tmp_path: Path, keys: dict[str, Any], path: str, way: str) -> None:
    """Classes differ: the mean of one is that of another's pictures, and cut out is what another shows whole."""
    flat_file(tmp_path, size={"height": 8, "width": 8}, **keys)
    with pytest.raises(CompileError) as refused:
        read_image_processor(tmp_path, "preprocessor_config.json")
    (told,) = refused.value.problems
    assert (told.code, told.path) == ("bad-processor", path)
    assert "a matter of the class" in told.what
    assert way in told.help


def test_flat_keys_of_a_shortest_edge_and_a_crop(tmp_path: Path) -> None:
    levels, data = picture(20, 30)
    keys = {"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": 6, "do_normalize": False}
    wide = np.asarray(opened(levels).resize((12, 8), Image.Resampling.BICUBIC)) / 255
    found = made(flat_file(tmp_path, **keys), [data])["pixel_values"][0]
    np.testing.assert_allclose(found, wide[1:7, 3:9].transpose(2, 0, 1), atol=1e-6)


@pytest.mark.parametrize(("size", "wanted"), [((42, 70), (56, 56)), ((14, 14), (28, 28)), ((300, 300), (112, 112))])
def test_flat_keys_round_halves_to_even(tmp_path: Path, size: tuple[int, int], wanted: tuple[int, int]) -> None:
    """1.5 and 2.5 are 2, as Python rounds them and the processor does, which is written in it."""
    keys = {"size": {"shortest_edge": 784, "longest_edge": 12600}, "patch_size": 14, "merge_size": 2}
    keys |= {"do_normalize": False}
    tensors = made(flat_file(tmp_path, temporal_patch_size=1, **keys), [picture(*size)[1]], "image_grid_thw")
    assert tensors["image_grid_thw"].tolist() == [[1, wanted[0] // 14, wanted[1] // 14]]


# ---- what can't be followed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([DECODE, {"type": "PatchImages"}], "did you mean PatchImage"),
        ([{"type": "Rescale"}], "takes a picture's levels, not a file"),
        ([DECODE, DECODE], "takes a file"),
        ([DECODE], "end before there are numbers"),
        ([DECODE, {"type": "Resize", "attrs": {"height": "tall"}}], "'height' of Resize is 'tall'"),
        ([DECODE, {"type": "Resize", "attrs": {"height": 0}}], "from 1"),
        ([DECODE, {"type": "Resize", "attrs": {"smart_resize": True}}], "not a boolean"),
        ([DECODE, {"type": "Resize", "attrs": {"smart_resize": 2}}], "0 or 1"),
        ([DECODE, {"type": "Resize", "attrs": {"interpolation": "MAGIC"}}], "one of NEAREST"),
        ([DECODE, RESCALE, {"type": "Normalize", "attrs": {"mean": [1.0, 2.0]}}], "three numbers"),
        ([DECODE, RESCALE, {"type": "Normalize", "attrs": {"std": [1.0, 2.0, 0.0]}}], "above 0"),
        ([DECODE, RESCALE, {"type": "Normalize", "attrs": {"turned": 1}}], "no attribute 'turned'"),
        ([DECODE, RESCALE, {"type": "Permute3D", "attrs": {"dims": [0, 1]}}], "three numbers"),
        ([DECODE, RESCALE, {"type": "Permute3D"}], "neither channels first nor channels last"),
        ([DECODE, RESCALE, {"type": "Permute3D", "attrs": {"dims": [2, 0, 1]}}, {"type": "PatchImage"}], "last"),
        ([DECODE, {"type": "Rescale", "attrs": []}], "no object"),
        ([DECODE, {"type": "Rescale", "inputs": 3}], "inputs are a list"),
        ([DECODE, RESCALE, {"type": "Llama3ImageTransform"}], "takes a picture's levels"),
        ([DECODE, {"type": "Llama3ImageTransform", "attrs": {"size": [28, 14]}}], "twice one whole number"),
        ([DECODE, {"type": "Llama3ImageTransform", "attrs": {"size": 28}}], "twice one whole number"),
        ([DECODE, {"type": "Llama3ImageTransform", "attrs": {"max_image_tiles": 65}}], "from 1 to 64"),
        ([DECODE, {"type": "Llama3ImageTransform", "attrs": {"normalize/std": [0, 1, 1]}}], "above 0"),
        ([DECODE, {"type": "Resize"}, {"type": "Llama3ImageTransform"}], "makes the size by itself"),
        ([DECODE, {"type": "CenterCrop"}, {"type": "Resize"}, RESCALE], "before it is cropped"),
    ],
)
def test_what_cant_be_followed_is_said_with_its_place(
    tmp_path: Path, operations: list[dict[str, Any]], words: str
) -> None:
    file = processor_file(tmp_path, *operations)
    with pytest.raises(CompileError) as refused:
        followed(read_image_processor(tmp_path, file.name))
    found = [each for each in refused.value.problems if words in f"{each.what} {each.help}"]
    assert found, str(refused.value)
    assert {each.code for each in refused.value.problems} == {"bad-processor"}
    assert found[0].where.file == "processor.json"


def test_all_faults_of_a_file_come_at_once(tmp_path: Path) -> None:
    bad = {"type": "Resize", "attrs": {"height": 0, "width": 0, "colour": 1}}
    with pytest.raises(CompileError) as refused:
        read_image_processor(tmp_path, processor_file(tmp_path, DECODE, bad, {"type": "Sharpen"}).name)
    assert len(refused.value.problems) == 4


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"processor": 3}', '{"image_processor_type": "x"}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    for file in ("file.json", "absent.json"):
        with pytest.raises(CompileError):
            read_image_processor(tmp_path, file)
