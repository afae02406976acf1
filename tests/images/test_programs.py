"""Image programs, compiled and run, against the reference: one output at a time, by loops and whole matrices."""

from typing import Any

import numpy as np
import pytest
from genai_runtime.adapters.image.patches import patch_coordinates
from genai_runtime.adapters.image.sizes import patch_budget
from genai_runtime.problem import RequestError

from tests.images.pictures import document, made, picture
from tests.reference.images import outputs_of
from tests.reference.values import ReferenceError

DECODE = {"op": "decode_rgb"}
LEVELS = [{"op": "rescale", "scale": 1 / 255}, {"op": "normalize", "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}]
PIXELS = {"content": "pixels", "dtype": "float32"}
SIZES = [
    {"content": "original_size", "dtype": "int64"},
    {"content": "transformed_size", "dtype": "int32"},
    {"content": "validity_mask", "dtype": "bool"},
]
CUT = [
    {"content": "patch_coordinates", "dtype": "int64"},
    {"content": "grid_dimensions", "dtype": "int64"},
]
PICTURES = [picture(21, 40), picture(64, 23, 1), picture(1, 1, 2), picture(33, 33, 3)]


def hold(program: dict[str, Any], *pictures: np.ndarray[Any, Any], levels: float = 0) -> None:
    """The runtime makes what the reference makes.

    levels: how far one number in a thousand, or two, may be off: float32 and float64 fall on two sides of a half.
    """
    wanted, found = outputs_of(list(pictures), program), made(program, *pictures)
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        assert found[name].shape == value.shape, name
        off = np.abs(found[name].astype(np.float64) - value.astype(np.float64))
        assert off.max() <= (levels if name == "pixels" else 0), name
        assert np.count_nonzero(off) <= max(2, off.size / 1000), name


def resize(**fields: object) -> dict[str, object]:
    return {"op": "resize", **fields}


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "lanczos", "lanczos3"])
@pytest.mark.parametrize("mode", ["stretch", "crop", "pad", "fixed_size", "shortest_edge", "longest_edge_pad"])
def test_resizing_to_a_size(mode: str, interpolation: str) -> None:
    program = document(
        [DECODE, resize(mode=mode, size={"height": 30, "width": 18}, interpolation=interpolation)], [PIXELS, *SIZES]
    )
    hold(program, *PICTURES, levels=1)


@pytest.mark.parametrize(("least", "most", "multiple"), [(224, 224, 14), (64, 4096, 8), (1, 300, 7), (5000, 9000, 28)])
def test_resizing_to_an_area(least: int, most: int, multiple: int) -> None:
    area = resize(mode="pixel_area", min_pixels=least, max_pixels=most, size_multiple=multiple)
    for each in PICTURES:
        hold(document([DECODE, area], [PIXELS, *SIZES]), each, levels=1)


@pytest.mark.parametrize(("patch", "most", "pooling"), [(4, 36, 3), (2, 300, 1), (5, 8, 2)])
@pytest.mark.parametrize("size", [(21, 40), (3, 200), (200, 3), (1, 1), (64, 64)])
def test_resizing_to_a_patch_budget(patch: int, most: int, pooling: int, size: tuple[int, int]) -> None:
    budget = resize(mode="aspect_ratio_patch_budget", patch_size=patch, max_patches=most, pooling_kernel_size=pooling)
    program = document(
        [DECODE, budget, *LEVELS[:1], {"op": "patchify", "patch_size": patch, "channel_order": "channels_last"},
         {"op": "pad", "target_length": most}],
        [PIXELS, *SIZES, *CUT],
    )  # fmt: skip
    hold(program, picture(*size), levels=0.004)


def test_no_resize_leaves_the_picture_as_it_is() -> None:
    hold(document([DECODE, {"op": "convert_rgb"}, *LEVELS], [PIXELS, *SIZES]), picture(5, 9), picture(5, 9, 1))


@pytest.mark.parametrize("thumbnail", ["none", "prepend", "append"])
@pytest.mark.parametrize("mode", ["dynamic_anyres", "fixed_grid"])
@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_tiles(mode: str, fit: str, thumbnail: str) -> None:
    tile = {
        "op": "tile", "mode": mode, "tile_size": 12, "thumbnail_order": thumbnail,
        "include_thumbnail": thumbnail != "none",
    }  # fmt: skip
    program = document([DECODE, resize(mode=fit, size=99, interpolation="bilinear"), *LEVELS, tile], [PIXELS, *SIZES])
    hold(program, *PICTURES, picture(12, 50, 9), levels=0.02)


@pytest.mark.parametrize("thumbnail", ["none", "prepend", "append"])
@pytest.mark.parametrize("most", [1, 4, 6, 16])
def test_high_definition_tiles(most: int, thumbnail: str) -> None:
    tile = {
        "op": "tile", "mode": "dynamic_hd", "tile_size": 16, "max_tiles": most, "mask_patch_size": 4,
        "canvas_pad_value": 255, "thumbnail_interpolation": "bilinear", "thumbnail_order": thumbnail,
        "include_thumbnail": thumbnail != "none",
    }  # fmt: skip
    program = document([DECODE, tile], [PIXELS, *SIZES])
    for each in (picture(27, 40), picture(64, 43, 1), picture(16, 16, 2), picture(90, 90, 3)):
        hold(program, each, levels=1)


@pytest.mark.parametrize("patch_order", ["merge_groups", "merge_blocks", "raster", "row_major"])
@pytest.mark.parametrize("channel_order", ["channels_first", "chw", "channels_last", "hwc"])
@pytest.mark.parametrize("temporal_order", ["channel_major", "cthw", "temporal_major", "tchw"])
@pytest.mark.parametrize(("frames", "merge", "coordinates"), [(1, 1, "yx"), (2, 2, "xy"), (3, 3, "yx")])
def test_patches(
    patch_order: str, channel_order: str, temporal_order: str, frames: int, merge: int, coordinates: str
) -> None:
    patchify = {
        "op": "patchify", "patch_size": 3, "temporal_patch_size": frames, "merge_size": merge,
        "patch_order": patch_order, "channel_order": channel_order, "temporal_order": temporal_order,
        "coordinate_order": coordinates,
    }  # fmt: skip
    program = document([DECODE, *LEVELS, patchify], [PIXELS, *SIZES, *CUT])
    hold(program, picture(18, 36), picture(36, 18, 1))


def test_patches_of_tiles_lie_below_each_other_and_are_padded() -> None:
    transforms = [
        DECODE,
        {"op": "tile", "tile_size": 8, "thumbnail_order": "append", "include_thumbnail": True},
        *LEVELS,
        {"op": "patchify", "patch_size": 4, "merge_size": 2, "flatten": False},
        {"op": "flatten"},
        {"op": "pad", "target_length": 21, "pad_value": 7.5},
    ]
    outputs = [PIXELS, *SIZES, {**CUT[0], "pad_value": -3}, CUT[1]]
    hold(document(transforms, outputs), picture(8, 20), picture(30, 10, 1), levels=0.02)


def test_named_values_go_their_own_ways() -> None:
    transforms = [
        {"op": "decode", "outputs": ["raw"]},
        {"op": "resize", "size": 12, "mode": "crop", "outputs": ["small"]},
        {"op": "rescale", "scale": 0.5, "inputs": ["small"], "outputs": ["half"]},
        {"op": "rescale", "scale": 0.25, "inputs": ["small"], "outputs": ["quarter"]},
        {"op": "patchify", "patch_size": 4, "inputs": ["half"], "outputs": ["half patches"]},
        {"op": "emit_patch_coordinates", "outputs": ["places"]},
        {"op": "pad", "target_length": 9, "inputs": ["half patches", "places"], "outputs": ["one", "two"]},
        {"op": "emit_original_size", "inputs": ["raw"], "outputs": ["size"]},
    ]
    outputs = [
        {"source": "one", "name": "pixels", "content": "pixels", "dtype": "float32"},
        {"source": "two", "name": "places", "content": "patch_coordinates", "dtype": "int64"},
        {"source": "size", "name": "size", "content": "original_size", "dtype": "int64"},
    ]
    hold({"transforms": transforms, "outputs": outputs}, picture(20, 31), picture(12, 12, 1), levels=0.5)


def test_two_outputs_with_levels_of_their_own() -> None:
    transforms = [
        {"op": "decode", "outputs": ["raw"]},
        {"op": "rescale", "scale": 0.5, "inputs": ["raw"], "outputs": ["half"]},
        {"op": "normalize", "mean": [1, 2, 3], "std": [4, 5, 6], "inputs": ["raw"], "outputs": ["normal"]},
    ]
    outputs = [
        {"source": name, "name": name, "content": "pixels", "dtype": "float32"} for name in ("raw", "half", "normal")
    ]
    hold({"transforms": transforms, "outputs": outputs}, picture(4, 7))


@pytest.mark.parametrize("dtype", ["float32", "fp32", "float16", "fp16", "bfloat16", "bf16"])
def test_types_of_pixels(dtype: str) -> None:
    program = document(
        [DECODE, *LEVELS, {"op": "patchify", "patch_size": 2}, {"op": "pad", "target_length": 8, "pad_value": 0.1}],
        [{"content": "pixels", "dtype": dtype}],
    )
    hold(program, picture(2, 4), picture(6, 4, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"])
def test_types_of_numbers(dtype: str) -> None:
    contents = ("original_size", "transformed_size", "validity_mask")
    hold(document([DECODE], [{"content": each, "dtype": dtype} for each in contents]), picture(3, 100))


def test_channels_lie_where_the_contract_says() -> None:
    shapes = (["n", 3, "h", "w"], ["n", "h", "w", 3], ["n", 3, "h", 3])
    for shape in shapes:
        contract = {"dtype": "float32", "rank": 4, "shape": shape}
        hold(document([DECODE], [{**PIXELS, "contract": contract}]), picture(4, 3))


# ---- refusals that depend on the pictures ----------------------------------------------------------------------------

AREA = resize(mode="pixel_area", min_pixels=1, max_pixels=4096, size_multiple=4)
HD = {"op": "tile", "mode": "dynamic_hd", "tile_size": 12, "max_tiles": 2, "mask_patch_size": 3, "canvas_pad_value": 0}
REFUSED = [
    ("image-limit", [DECODE, AREA], [PIXELS], [picture(1, 201)]),
    ("image-limit", [DECODE, HD], [PIXELS], [picture(3, 60)]),
    ("image-patches", [DECODE, {"op": "patchify", "patch_size": 4}], [PIXELS], [picture(8, 10)]),
    ("image-patches", [DECODE, {"op": "patchify", "patch_size": 4, "merge_size": 2}], [PIXELS], [picture(12, 8)]),
    ("image-limit", [DECODE, {"op": "patchify", "patch_size": 4}, {"op": "pad", "target_length": 3}], [PIXELS],
     [picture(8, 8)]),
    ("image-sizes", [DECODE], [PIXELS], [picture(4, 5), picture(5, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("code", "transforms", "outputs", "pictures"), REFUSED)
def test_a_picture_that_does_not_fit_is_refused(code: str, transforms: Any, outputs: Any, pictures: Any) -> None:
    program = document(transforms, outputs)
    with pytest.raises(ReferenceError):
        outputs_of(pictures, program)
    with pytest.raises(RequestError) as refused:
        made(program, *pictures)
    assert refused.value.code == code
    assert "\n" not in refused.value.what


def test_numbers_that_a_type_can_not_hold_are_refused() -> None:
    with pytest.raises(RequestError) as refused:
        made(document([DECODE], [{"content": "original_size", "dtype": "int8"}]), picture(1, 128))
    assert refused.value.code == "image-limit"


def test_a_budget_without_room_for_a_group_is_refused() -> None:
    """The rules refuse such a program, so that only a caller of the operation itself meets it."""
    with pytest.raises(RequestError) as refused:
        patch_budget((5, 5), patch=14, most=4, pooling=3)
    assert refused.value.code == "image-limit"


def test_aspect_two_hundred_is_allowed() -> None:
    hold(document([DECODE, AREA], SIZES), picture(1, 200))


def test_coordinates_in_groups() -> None:
    found = patch_coordinates(tiles=1, rows=2, columns=4, group=2)
    assert found.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3]]
