"""One broken document a rule: image programs (V057-V067)."""

from typing import Any

from tests.check.cases_steps import W, case
from tests.read.documents import DELETE

IMAGE = "preprocessing/image"
T, OUT = f"{IMAGE}/transforms", f"{IMAGE}/outputs"
AT, OUTS = "preprocessing.image.transforms", "preprocessing.image.outputs"
DECODE: dict[str, Any] = {"op": "decode_rgb"}
RESIZE: dict[str, Any] = {"op": "resize", "size": 28}
TILE: dict[str, Any] = {"op": "tile", "tile_size": 28}
HD: dict[str, Any] = {**TILE, "mode": "dynamic_hd", "mask_patch_size": 14, "canvas_pad_value": 255}
PATCHIFY: dict[str, Any] = {"op": "patchify", "patch_size": 14}
PAD: dict[str, Any] = {"op": "pad", "target_length": 6}
AREA: dict[str, Any] = {
    "op": "resize", "mode": "pixel_area", "min_pixels": 28, "max_pixels": 784, "size_multiple": 28,
}  # fmt: skip
BUDGET: dict[str, Any] = {
    "op": "resize", "mode": "aspect_ratio_patch_budget", "patch_size": 14, "max_patches": 6, "pooling_kernel_size": 1,
}  # fmt: skip


def plain(*transforms: dict[str, Any]) -> dict[str, object]:
    """The base with these transforms, and no value of them named."""
    return {T: list(transforms)}


def instead(at: int, **fields: object) -> dict[str, object]:
    """The base with fields of a transform replaced."""
    return {f"{T}/{at}/{name}": value for name, value in fields.items()}


PICTURES = [
    case("G003", "pictures", plain(DECODE, RESIZE, {"op": "sharpen"}, PATCHIFY, PAD), f"{AT}[2]"),
    case("G004", "pictures", instead(1, size=30), f"{AT}[4]"),
    case("G004", "pictures", instead(4, merge_size=4), f"{AT}[4]"),
    case("G005", "pictures", plain(DECODE, RESIZE, PATCHIFY), f"{OUTS}[0].contract"),
    case("G005", "pictures", instead(4, temporal_patch_size=2), f"{OUTS}[0].contract"),
    case("G005", "pictures", instead(7, target_length=8), f"{OUTS}[1].contract"),
    case("G006", "pictures", {f"{OUT}/2": DELETE}, OUTS),
    case("V057", "pictures", plain(RESIZE, PATCHIFY, PAD), f"{AT}[0]"),
    case("V057", "pictures", plain(DECODE, RESIZE, DECODE, PATCHIFY, PAD), f"{AT}[2]"),
    case("V057", "pictures", plain({"op": "convert_rgb"}, DECODE, PATCHIFY, PAD), f"{AT}[1]"),
    case("V058", "pictures", plain(DECODE, RESIZE, RESIZE, PATCHIFY, PAD), f"{AT}[2]"),
    case("V058", "pictures", plain(DECODE, TILE, RESIZE, PATCHIFY, PAD), f"{AT}[2]"),
    case("V058", "pictures", plain(DECODE, {"op": "rescale", "scale": 1.0}, RESIZE, PATCHIFY, PAD), f"{AT}[2]"),
    case("V058", "pictures", plain(DECODE, PATCHIFY, TILE, PAD), f"{AT}[2]"),
    case("V058", "pictures", plain(DECODE, PATCHIFY, PATCHIFY, PAD), f"{AT}[2]"),
    case("V058", "pictures", plain(DECODE, PATCHIFY, PAD, PAD), f"{AT}[3]"),
    case("V058", "pictures", plain(DECODE, PATCHIFY, PAD, {"op": "convert_rgb"}), f"{AT}[3]"),
    case("V059", "pictures", instead(1, mode="squash"), f"{AT}[1]"),
    case("V059", "pictures", instead(1, interpolation="nearest"), f"{AT}[1]"),
    case("V059", "pictures", instead(1, size=DELETE), f"{AT}[1]"),
    case("V059", "pictures", instead(1, size={"width": 28, "height": 0}), f"{AT}[1]"),
    case("V059", "pictures", plain(DECODE, {**AREA, "min_pixels": 785}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V059", "pictures", plain(DECODE, {**AREA, "size": 28}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V059", "pictures", plain(DECODE, {**BUDGET, "size": 28}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V059", "pictures", plain(DECODE, {k: v for k, v in BUDGET.items() if k != "max_patches"}, PATCHIFY, PAD),
         f"{AT}[1]"),
    case("V060", "pictures", instead(2, scale=DELETE), f"{AT}[2]"),
    case("V060", "pictures", instead(2, scale=1e39), f"{AT}[2]"),
    case("V060", "pictures", instead(3, mean=[0.5]), f"{AT}[3]"),
    case("V060", "pictures", instead(3, std=DELETE), f"{AT}[3]"),
    case("V060", "pictures", instead(3, std=[0.5, 0.0, 0.5]), f"{AT}[3]"),
    case("V060", "pictures", instead(3, std=[0.5, 1e-50, 0.5]), f"{AT}[3]"),
    case("V061", "pictures", plain(DECODE, PATCHIFY, {"op": "rescale", "scale": 1.0}, PAD), f"{AT}[2]"),
    case("V062", "pictures", plain(DECODE, {"op": "tile"}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V062", "pictures", plain(DECODE, {**TILE, "max_tiles": 4097}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V062", "pictures", plain(DECODE, {**TILE, "include_thumbnail": True}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V062", "pictures", plain(DECODE, {**TILE, "thumbnail_order": "append"}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V062", "pictures", plain(DECODE, {**TILE, "thumbnail_order": "between"}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V062", "pictures", plain(DECODE, {**TILE, "mode": "mosaic"}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V063", "pictures", plain(DECODE, {**HD, "mask_patch_size": 13}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V063", "pictures", plain(DECODE, {k: v for k, v in HD.items() if k != "mask_patch_size"}, PATCHIFY, PAD),
         f"{AT}[1]"),
    case("V063", "pictures", plain(DECODE, {**HD, "canvas_pad_value": 0.5}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V063", "pictures", plain(DECODE, {**HD, "canvas_pad_value": 256}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V063", "pictures", plain(DECODE, {**HD, "thumbnail_interpolation": "area"}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V064", "pictures", instead(4, patch_size=DELETE), f"{AT}[4]"),
    case("V064", "pictures", instead(4, flatten=True), f"{AT}[5]"),
    case("V064", "pictures", instead(4, channel_order="bgr"), f"{AT}[4]"),
    case("V064", "pictures", instead(7, target_length=DELETE), f"{AT}[7]"),
    case("V064", "pictures", plain(DECODE, RESIZE, {**PATCHIFY, "flatten": False}, PAD), f"{AT}[2]"),
    case("V064", "pictures", plain(DECODE, RESIZE, PAD, PATCHIFY), f"{AT}[2]", "V058"),
    case("V065", "pictures", instead(3, outputs=DELETE), f"{AT}[3]", "V065"),
    case("V065", "pictures", instead(6, inputs=["flats"]), f"{AT}[6]"),
    case("V065", "pictures", instead(5, outputs=["levels"]), f"{AT}[5]", "V065"),
    case("V065", "pictures", instead(6, inputs=["raw"]), f"{AT}[6]"),
    case("V065", "pictures", instead(9, outputs=["size", "sizes"]), f"{AT}[9]"),
    case("V065", "pictures", {f"{OUT}/2/source": "size"}, f"{OUTS}[2]"),
    case("V065", "pictures", {f"{OUT}/2/source": "grids"}, f"{OUTS}[2]"),
    case("V065", "pictures", {f"{OUT}/2/content": "grids"}, f"{OUTS}[2]"),
    case("V065", "pictures", {f"{OUT}/3": {"source": "grid", "name": "grid", "content": "grid_dimensions",
         "dtype": "int64", "contract": {"dtype": "int64", "rank": 2, "shape": ["images", 3]}}}, f"{OUTS}[3]"),
    case("V065", "pictures", {T: [DECODE, RESIZE], OUT: [
        {"source": "x", "name": "grid", "content": "grid_dimensions", "dtype": "int64",
         "contract": {"dtype": "int64", "rank": 2, "shape": ["images", 3]}}]}, f"{OUTS}[0]", "G006"),
    case("V065", "pictures", {f"{T}/10": {"op": "emit_transformed_size", "inputs": ["raw"], "outputs": ["before"]},
         f"{OUT}/2": {"source": "before", "name": "grid", "content": "transformed_size", "dtype": "int64",
         "contract": {"dtype": "int64", "rank": 2, "shape": ["images", 3]}}}, f"{OUTS}[2]"),
    case("V066", "pictures", {f"{OUT}/2/dtype": "bool", f"{OUT}/2/contract/dtype": "bool",
         f"{W.replace('.', '/')}/components/eyes/ports/outputs/grid/dtype": "bool"}, f"{OUTS}[2]"),
    case("V066", "pictures", {f"{OUT}/1/pad_value": 0.5}, f"{OUTS}[1]"),
    case("V067", "pictures", plain(DECODE, *[{"op": "convert_rgb"}] * 61, RESIZE, PATCHIFY, PAD), f"{AT}[64]"),
    case("V067", "pictures", instead(1, size=4200), f"{AT}[1]"),
    case("V067", "pictures", plain(DECODE, {**TILE, "tile_size": 4200}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V067", "pictures", plain(DECODE, {**AREA, "min_pixels": 1 << 25, "max_pixels": 1 << 26}, PATCHIFY, PAD),
         f"{AT}[1]"),
    case("V067", "pictures", plain(DECODE, {**BUDGET, "pooling_kernel_size": 3}, PATCHIFY, PAD), f"{AT}[1]"),
    case("V067", "pictures", instead(7, target_length=1 << 24), f"{AT}[7]"),
    case("V067", "pictures", instead(1, size=56), f"{AT}[7]"),
]  # fmt: skip
