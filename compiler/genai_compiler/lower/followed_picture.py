"""An image processor file's operations, followed one after the other -> what becomes of a picture in the end.

Before: DecodeImage, ConvertRGB, Resize, Rescale, Normalize, PatchImage.
After:  one resize, one cut into patches, and what happens to a level of each channel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.image_operations import CLIP_MEAN, CLIP_STD, FILTERS, Attributes
from genai_compiler.read.image_processor import ImageProcessor, Operation

PIXELS, GRID, SIZES, COORDINATES = "pixel_values", "image_grid_thw", "image_sizes", "pixel_position_ids"
MASK, ENTRIES = "image_attention_mask", "num_img_tokens"
ASPECT, TILES, TILE_COUNT = "aspect_ratio_ids", "aspect_ratio_mask", "num_tiles"
"""Ports of the processor's adapter."""
_ONE_LEVEL = 1 / 255
MOST_NUMBERS = 64 << 20
"""What the runtime makes at most of all pictures of a request."""
VIEW_CELLS = 28
"""Pixels of an edge that two cells of a mask of views stand for."""
Levels = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Picture:
    """What has become of a picture: bytes, then levels, numbers, patches. swapped: channels are blue first.

    first: the axis of channels comes first. patch, merge: pixels of a patch's edge, and patches of the edge of what one
    token of a prompt stands for; 0: not said. resize, patches, views: fields of the program's own
    classes, {} for none.
    """

    form: str = "file"
    swapped: bool = False
    first: bool = False
    resize: Mapping[str, Any] = field(default_factory=dict[str, Any])
    crop: tuple[int, int] | None = None
    levels: Levels = ()
    patches: Mapping[str, Any] = field(default_factory=dict[str, Any])
    length: int | None = None
    views: Mapping[str, Any] = field(default_factory=dict[str, Any])
    patch: int = 0
    merge: int = 0


def followed(file: ImageProcessor) -> Picture:
    """What the operations of a file make of a picture.

    Raises CompileError `bad-processor` with every operation that stands where it can't.
    """
    problems: list[Problem] = []
    picture = Picture()
    for each in file.operations:
        wanted, made = _FORMS[each.does]
        fault = "" if wanted == picture.form else f"{each.name} takes {_SPELLED[wanted]}, not {_SPELLED[picture.form]}"
        fault = fault or _impossible(each, picture)
        if fault:
            problems.append(file.problem(each.path, fault, _HELP))
            continue
        picture = replace(_DONE[each.does](picture, each.attributes), form=made)
    if not problems and picture.views and picture.form != "views":
        what = "pictures are laid out on fields, and no operation takes views of them"
        problems.append(file.problem((), what, "add the operation that makes views"))
    if not problems and picture.form in ("file", "levels"):
        what = "the operations end before there are numbers: Rescale makes them of levels"
        problems.append(file.problem((), what, "add Rescale"))
    if problems:
        raise CompileError(problems)
    return picture


_HELP = "make the tensors with the model's own processor and give them to run(inputs), or correct the file"
_SPELLED = {
    "file": "a file",
    "levels": "a picture's levels",
    "numbers": "a picture's numbers",
    "patches": "patches",
    "views": "views",
}
_FORMS = {
    "decode": ("file", "levels"),
    "swap": ("levels", "levels"),
    "resize": ("levels", "levels"),
    "crop": ("levels", "levels"),
    "rescale": ("levels", "numbers"),
    "normalize": ("numbers", "numbers"),
    "permute": ("numbers", "numbers"),
    "patches": ("numbers", "patches"),
    "sizes": ("numbers", "numbers"),
    "budget": ("levels", "patches"),
    "squares": ("levels", "views"),
    "fields": ("levels", "levels"),
    "views": ("numbers", "views"),
    "tiles": ("levels", "views"),
}
"""What each operation takes and gives."""


def _impossible(operation: Operation, picture: Picture) -> str:
    """Why an operation can't be followed here, "" where it can."""
    name, attributes = operation.name, operation.attributes
    match operation.does:
        case "resize" if picture.resize or picture.crop is not None:
            return "a picture is resized once, and before it is cropped"
        case "crop" if picture.crop is not None:
            return "a picture is cropped once"
        case "permute" if picture.first or attributes["dims"] not in ((2, 0, 1), (0, 1, 2)):
            return f"{name} by {list(attributes['dims'])} gives neither channels first nor channels last"
        case "patches" if picture.first:
            return f"{name} takes channels last"
        case "budget" if _budget_numbers(attributes) > MOST_NUMBERS:
            return f"{name} makes {_budget_numbers(attributes)} numbers of a picture, more than {MOST_NUMBERS}"
        case "fields" if attributes["dyhd_base_resolution"] % VIEW_CELLS:
            return f"{name} makes fields of {attributes['dyhd_base_resolution']} pixels, no multiple of {VIEW_CELLS}"
        case "squares" | "fields" | "tiles" if picture.resize or picture.crop is not None or picture.views:
            return f"{name} makes the size by itself: neither a resize nor a crop stands before it"
        case "views" if picture.views.get("size") != attributes["dyhd_base_resolution"] or picture.first:
            return f"{name} goes with the operation that lays pictures out on fields of its size, channels last"
        case _:
            return ""


def _budget_numbers(attributes: Attributes) -> int:
    """Numbers of a picture whose patches are filled up to the most there can be."""
    return int(attributes["max_soft_tokens"] * (attributes["pooling_kernel_size"] * attributes["patch_size"]) ** 2 * 3)


def _decode(picture: Picture, attributes: Attributes) -> Picture:
    return replace(picture, swapped=attributes["color_space"] == "BGR")


def _swap(picture: Picture, attributes: Attributes) -> Picture:
    """ConvertRGB exchanges the first and third channel, whatever they are; numbers go with their channel."""
    turned = tuple((*each[2::-1], *each[5:2:-1]) if len(each) == 6 else each for each in picture.levels)
    return replace(picture, swapped=not picture.swapped, levels=turned)


def _resize(picture: Picture, attributes: Attributes) -> Picture:
    interpolation = FILTERS[attributes["interpolation"]]
    if attributes.get("shortest"):
        shortest = {"mode": "shortest", "height": attributes["shortest"]}
        return replace(picture, resize={**shortest, "interpolation": interpolation, "pillow": True})
    if not attributes["smart_resize"]:
        size = {"mode": "stretch", "height": attributes["height"], "width": attributes["width"]}
        return replace(picture, resize={**size, "interpolation": interpolation, "pillow": True})
    cell = attributes["patch_size"] * attributes["merge_size"]
    resize = {
        "mode": "pixel_area",
        "interpolation": interpolation,
        "min_pixels": attributes["min_pixels"],
        "max_pixels": attributes["max_pixels"],
        "multiple": cell,
        "half_up": not attributes.get("half_even", 0),
        "pillow": True,
    }
    return replace(picture, resize=resize, patch=attributes["patch_size"], merge=attributes["merge_size"])


def _crop(picture: Picture, attributes: Attributes) -> Picture:
    return replace(picture, crop=(attributes["height"], attributes["width"]))


def _rescale(picture: Picture, attributes: Attributes) -> Picture:
    return replace(picture, levels=(*picture.levels, (attributes["rescale_factor"],)))


def _normalize(picture: Picture, attributes: Attributes) -> Picture:
    """Either flag exchanges channels first."""
    held = _swap(picture, attributes) if attributes["swaps"] else picture
    return replace(held, levels=(*held.levels, (*map(float, attributes["mean"]), *map(float, attributes["std"]))))


def _permute(picture: Picture, attributes: Attributes) -> Picture:
    return replace(picture, first=attributes["dims"] == (2, 0, 1))


def _patch(picture: Picture, attributes: Attributes) -> Picture:
    size, merge = attributes["patch_size"], attributes["merge_size"]
    patches = {"size": size, "frames": attributes["temporal_patch_size"], "merge": merge}
    return replace(picture, patches=patches, patch=size, merge=merge)


def _patches_under_a_budget(picture: Picture, attributes: Attributes) -> Picture:
    """Numbers from 0 to 1, patches row by row, filled up to the most there can be."""
    size, pooling = attributes["patch_size"], attributes["pooling_kernel_size"]
    most = attributes["max_soft_tokens"] * pooling**2
    budget = {"mode": "patch_budget", "patch": size, "max_patches": most, "pooling": pooling}
    return replace(
        picture,
        resize={**budget, "interpolation": "bicubic", "pillow": True},
        levels=(*picture.levels, (_ONE_LEVEL,)),
        patches={"size": size, "raster": True, "channels_last": True, "xy": True},
        length=most,
        patch=size,
        merge=pooling,
    )


def _squares(picture: Picture, attributes: Attributes) -> Picture:
    """All numbers are the operation's own."""
    levels = ((_ONE_LEVEL,), (*CLIP_MEAN, *CLIP_STD))
    return replace(picture, levels=levels, views={"mode": "squares", "size": 336, "most": 16})


def _tiles(picture: Picture, attributes: Attributes) -> Picture:
    """Numbers of tiles; what a picture does not fill is black before they are normalised."""
    scaled = _rescale(picture, {"rescale_factor": attributes["rescale/rescale_factor"]})
    given = {each: attributes[f"normalize/{each}"] for each in ("mean", "std")}
    normal = _normalize(scaled, {**given, "swaps": attributes["swaps"]})
    views = {"mode": "tiles", "size": attributes["size"][0], "most": attributes["max_image_tiles"]}
    return replace(normal, views=views)


def _fields(picture: Picture, attributes: Attributes) -> Picture:
    views = {"mode": "fields", "size": attributes["dyhd_base_resolution"], "most": attributes["dynamic_hd"]}
    return replace(picture, views=views)


def _as_it_is(picture: Picture, attributes: Attributes) -> Picture:
    return picture


_DONE = {
    "decode": _decode,
    "swap": _swap,
    "resize": _resize,
    "crop": _crop,
    "rescale": _rescale,
    "normalize": _normalize,
    "permute": _permute,
    "patches": _patch,
    "sizes": _as_it_is,
    "budget": _patches_under_a_budget,
    "squares": _squares,
    "fields": _fields,
    "views": _as_it_is,
    "tiles": _tiles,
}
