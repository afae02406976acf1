"""An image program's transforms: their order and their fields (standard, 12.5)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules
from genai_compiler.check.image_shapes import check_shapes, fixed_size
from genai_compiler.check.image_values import check_values
from genai_compiler.check.image_words import (
    DEFAULT_MAX_TILES,
    FLOAT32_LEAST,
    FLOAT32_MAX,
    INTERPOLATIONS,
    MAX_ENTRIES,
    MAX_TILES,
    NEEDS,
    ORDERS,
    RESIZE,
    THUMBNAILS,
    TILES,
)
from genai_compiler.read.document import ImageProgram, ImageTransform
from genai_compiler.read.places import as_written
from genai_compiler.read.suggest import did_you_mean
from genai_compiler.read.vocabularies import IMAGE_OPS

RULES: Rules = {
    "G003": Rule("image-op", "A transform of an image program is one that the standard knows."),
    "V057": Rule("image-decode", "An image program decodes first, and once."),
    "V058": Rule("image-order", "resize, tile, patchify and pad come once each, in this order."),
    "V059": Rule(
        "image-resize", "A resize names a known mode and interpolation and has the fields that the mode needs."
    ),
    "V060": Rule("image-levels", "rescale has a scale; normalize has three means and three positive deviations."),
    "V061": Rule("image-levels", "rescale and normalize come before patchify."),
    "V062": Rule("image-tiles", "A tile step has a size, at most 4096 tiles, and its thumbnail fields agree."),
    "V063": Rule("image-tiles", "dynamic_hd has mask cells that divide a tile, and a background level from 0 to 255."),
    "V064": Rule("image-patches", "patchify has a size, patches end up flat, and pad, after it, has a length."),
}
ROOT: Path = ("preprocessing", "image")


@dataclass
class Order:
    """What the transforms so far have done."""

    done: set[str] = field(default_factory=set[str])
    flat: bool = True


def check_image_program(program: ImageProgram) -> Faults:
    """Every fault that the document shows by itself; what depends on a picture is the run's affair."""
    order, blamed = Order(), set[int]()
    yield from _entries(program)
    for at, transform in enumerate(program.transforms):
        for rule, what, help in _transform(at, transform, order):
            blamed.add(at)
            yield Fault(rule, (*ROOT, "transforms", at), what, help)
        order.done.add("decode" if transform.op == "decode_rgb" else transform.op)
    if not order.flat:
        at = next(at for at, each in enumerate(program.transforms) if each.op == "patchify")
        blamed.add(at)
        what = "the patches are left unflattened: flatten is false, and no flatten follows"
        yield Fault("V064", (*ROOT, "transforms", at), what, "add a flatten, or leave `flatten` out")
    faults = list(check_values(program, frozenset(blamed)))
    yield from faults
    if not blamed:
        yield from check_shapes(program, frozenset(each.path[-1] for each in faults if "outputs" in each.path))


def _entries(program: ImageProgram) -> Faults:
    if not program.transforms:
        yield Fault("V057", (*ROOT, "transforms"), "the program has no transforms", "begin with decode_rgb")
    for name, entries in (("transforms", program.transforms), ("outputs", program.outputs)):
        if len(entries) > MAX_ENTRIES:
            what = f"the program has {len(entries)} {name}, more than {MAX_ENTRIES}"
            yield Fault("V067", (*ROOT, name, MAX_ENTRIES), what)


Found = Iterator[tuple[str, str, str]]
"""(rule, what, help)."""


def _transform(at: int, transform: ImageTransform, order: Order) -> Found:
    op, done = transform.op, order.done
    decodes = op in ("decode", "decode_rgb")
    if at == 0 and not decodes:
        yield "V057", f"the first transform is {op}", "begin with decode_rgb"
    elif at and decodes:
        yield "V057", f"{op} comes again, or late", "decode once, first"
    match op:
        case "resize":
            yield from _placed(op, done, {"tile", "rescale", "normalize", "patchify", "pad"})
            yield from _resize(transform)
        case "tile":
            yield from _placed(op, done, {"patchify", "pad"})
            yield from _tile(transform)
        case "patchify":
            yield from _placed(op, done, {"pad"})
            yield from _patchify(transform, order)
        case "pad":
            yield from _placed(op, done, set())
            yield from _pad(transform, done)
        case "convert_rgb" if done & {"patchify", "pad"}:
            yield "V058", "convert_rgb comes after the pictures were cut up", "write it behind the decode"
        case "rescale" | "normalize":
            if done & {"patchify", "pad"}:
                yield "V061", f"{op} comes after patchify", f"write {op} before patchify"
            yield from _levels(transform)
        case "flatten":
            if order.flat or "pad" in done:
                why = "comes after pad" if "pad" in done else "finds no unflattened patches"
                yield "V064", f"flatten {why}", "write `flatten: false` at patchify, or leave flatten out"
            order.flat = True
        case _ if op not in IMAGE_OPS:
            yield "G003", f"there is no image transform '{op}'", did_you_mean(op, IMAGE_OPS)
        case _:
            pass


def _placed(op: str, done: set[str], later: set[str]) -> Found:
    if op in done:
        yield "V058", f"{op} comes more than once", f"keep one {op}"
    elif late := sorted(done & later):
        yield "V058", f"{op} comes after {' and '.join(late)}", f"write {op} before {late[0]}"


def _resize(transform: ImageTransform) -> Found:
    name = transform.mode or "stretch"
    mode = RESIZE.get(name)
    if mode is None:
        yield "V059", f"there is no resize mode '{name}'", did_you_mean(name, RESIZE)
    else:
        missing = [each for each in NEEDS[mode] if getattr(transform, each) is None]
        if missing:
            yield "V059", f"a resize of mode {name} lacks {', '.join(missing)}", f"add {missing[0]}"
        elif "size" not in NEEDS[mode] and transform.size is not None:
            yield "V059", f"{name} computes a size, and the document gives one", "remove size"
        elif transform.size is not None and 0 in (fixed_size(transform) or ()):
            yield "V059", "the resize is to no pixels at all", "write a size above 0"
        elif mode == "pixel_area" and (transform.min_pixels or 0) > (transform.max_pixels or 0):
            what = f"min_pixels {transform.min_pixels} is above max_pixels {transform.max_pixels}"
            yield "V059", what, "exchange them"
        elif mode == "patch_budget" and (transform.pooling_kernel_size or 0) ** 2 > (transform.max_patches or 0):
            pooling = transform.pooling_kernel_size
            what = f"one group of {pooling}x{pooling} patches is more than max_patches {transform.max_patches}"
            yield "V067", what, "raise max_patches"
    yield from _interpolation("V059", transform.interpolation)


def _interpolation(rule: str, name: str | None) -> Found:
    if name is not None and name not in INTERPOLATIONS:
        yield rule, f"there is no interpolation '{name}'", did_you_mean(name, INTERPOLATIONS)


def _levels(transform: ImageTransform) -> Found:
    if transform.op == "rescale":
        if transform.scale is None:
            yield "V060", "rescale lacks its scale", "add scale"
        elif not _fits(transform.scale):
            yield "V060", f"scale {transform.scale} is no float32 number", "write a finite number"
        return
    for name in ("mean", "std"):
        numbers: tuple[float, ...] | None = getattr(transform, name)
        if numbers is None or len(numbers) != 3:
            count = "no" if numbers is None else str(len(numbers))
            yield "V060", f"normalize has {count} numbers in {name}", "give three, for red, green and blue"
        elif not all(map(_fits, numbers)) or (name == "std" and min(numbers) < FLOAT32_LEAST):
            yield "V060", f"{name} {list(numbers)} holds what no level can be normalised by", "give positive deviations"


def _fits(number: float) -> bool:
    return isfinite(number) and abs(number) <= FLOAT32_MAX


def _tile(transform: ImageTransform) -> Found:
    mode, place = transform.mode or "dynamic_anyres", transform.thumbnail_order or "none"
    most = transform.max_tiles or DEFAULT_MAX_TILES
    if mode not in TILES:
        yield "V062", f"there is no tile mode '{mode}'", did_you_mean(mode, TILES)
    if transform.tile_size is None:
        yield "V062", "the tile step lacks its tile_size", "add tile_size"
    if most > MAX_TILES:
        yield "V062", f"max_tiles {most} is above {MAX_TILES}", "write fewer"
    if place not in THUMBNAILS:
        yield "V062", f"there is no thumbnail_order '{place}'", did_you_mean(place, THUMBNAILS)
    elif bool(transform.include_thumbnail) != (place != "none"):
        what = f"include_thumbnail is {as_written(bool(transform.include_thumbnail))}, and thumbnail_order is {place}"
        yield "V062", what, "write include_thumbnail: true with prepend or append, or neither"
    if mode == "dynamic_hd":
        yield from _high_definition(transform)


def _high_definition(transform: ImageTransform) -> Found:
    cell, level = transform.mask_patch_size, transform.canvas_pad_value
    if cell is None or (transform.tile_size or cell) % cell:
        what = "dynamic_hd lacks mask_patch_size" if cell is None else f"mask_patch_size {cell} does not divide a tile"
        yield "V063", what, "give a mask_patch_size that divides tile_size"
    if level is None or not (isfinite(level) and level == int(level) and 0 <= level <= 255):
        yield "V063", f"canvas_pad_value is {level}", "give a whole number from 0 to 255"
    yield from _interpolation("V063", transform.thumbnail_interpolation)


def _patchify(transform: ImageTransform, order: Order) -> Found:
    order.flat = transform.flatten is not False
    if transform.patch_size is None:
        yield "V064", "patchify lacks its patch_size", "add patch_size"
    for name, words in ORDERS.items():
        word: str | None = getattr(transform, name)
        if word is not None and word not in words:
            yield "V064", f"there is no {name} '{word}'", did_you_mean(word, words)


def _pad(transform: ImageTransform, done: set[str]) -> Found:
    if "patchify" not in done:
        yield "V064", "pad comes before there are patches", "write it behind patchify"
    if transform.target_length is None:
        yield "V064", "pad lacks its target_length", "add target_length"
    if transform.pad_value is not None and not _fits(transform.pad_value):
        yield "V064", f"pad_value {transform.pad_value} is no float32 number", "write a finite number"
