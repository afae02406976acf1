"""A checked image program -> what its adapter is to do, with every word, default and branch resolved (standard, 5.6).

Because the steps have one order and all pictures go one way, a program comes down to at most one change of size, one
cut into patches, one padding, and for each output what is done to the levels of its pixels. Classes and fields are
those of the runtime's `adapters.image.program`: generated code states them as they are here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from genai_compiler.check.image_shapes import fixed_size
from genai_compiler.check.image_values import ImageValue, is_named, levels_of, trace
from genai_compiler.check.image_words import DEFAULT_MAX_TILES, INTERPOLATIONS, ORDERS, RESIZE
from genai_compiler.plan.dtypes import canonical
from genai_compiler.read.document import ImageOutput as DeclaredOutput
from genai_compiler.read.document import ImageProgram as Document
from genai_compiler.read.document import ImageTransform


@dataclass(frozen=True)
class ImageResize:
    """To a fixed size (stretch, crop, pad), or to one that follows from the picture (pixel_area, patch_budget)."""

    mode: str
    interpolation: str
    height: int = 0
    width: int = 0
    min_pixels: int = 0
    max_pixels: int = 0
    multiple: int = 0
    patch: int = 0
    max_patches: int = 0
    pooling: int = 0
    half_up: bool = False
    pillow: bool = False


@dataclass(frozen=True)
class ImageTiles:
    """Square tiles of a canvas to which the picture is fitted as the program's resize says."""

    mode: str
    size: int
    most: int
    fit: str
    interpolation: str
    thumbnail: str = "none"
    mask_patch: int = 0
    background: int = 0
    thumbnail_interpolation: str = "bicubic"


@dataclass(frozen=True)
class ImagePatches:
    """Square patches, and the orders of their entries and of the patches themselves."""

    size: int
    frames: int = 1
    merge: int = 1
    raster: bool = False
    channels_last: bool = False
    temporal_major: bool = False
    xy: bool = False


@dataclass(frozen=True)
class ImageViews:
    """Square views of a picture, `size` pixels each: the whole, then its parts, at most `most`.

    mode: see `views`; cell: pixels of an entry of the mask. Of squares there are always 1 + most, the last ones zeros;
    filled: of tiles always `most`.
    """

    mode: str
    size: int
    most: int
    cell: int = 14
    filled: bool = False


@dataclass(frozen=True)
class ImageOutput:
    """One output port."""

    port: str
    content: str
    dtype: str
    levels: tuple[tuple[float, ...], ...] = ()
    pad: float = 0
    channels_last: bool = False
    reverse: bool = False


@dataclass(frozen=True)
class ImageProgram:
    """At most one of `resize` and `tiles`; `length`: patches that each picture is padded to."""

    outputs: tuple[ImageOutput, ...]
    resize: ImageResize | None = None
    tiles: ImageTiles | None = None
    patches: ImagePatches | None = None
    length: int | None = None
    crop: tuple[int, int] | None = None
    stacks: bool = False
    views: ImageViews | None = None


def image_program(document: Document, ports: Mapping[str, str]) -> ImageProgram:
    """The program of a document that was checked. ports: workflow value -> the adapter's output port."""
    of = {each.op: each for each in document.transforms}
    resize, tile, patchify, pad = (of.get(op) for op in ("resize", "tile", "patchify", "pad"))
    values: dict[str, ImageValue] = {}
    if is_named(document):
        assert not list(trace(document, frozenset(), values))
    fill = pad.pad_value or 0 if pad is not None else 0
    return ImageProgram(
        outputs=tuple(
            _output(each, ports[each.name], _levels(document, values, each), fill)
            for each in document.outputs
            if each.name in ports
        ),
        resize=_resize(resize) if resize is not None and tile is None else None,
        tiles=_tiles(tile, resize) if tile is not None else None,
        patches=_patches(patchify) if patchify is not None else None,
        length=pad.target_length if pad is not None else None,
    )


def _levels(
    document: Document, values: Mapping[str, ImageValue], output: DeclaredOutput
) -> tuple[tuple[float, ...], ...]:
    if output.content != "pixels":
        return ()
    return values[output.source].levels if values else levels_of(document.transforms)


def _output(declared: DeclaredOutput, port: str, levels: tuple[tuple[float, ...], ...], fill: float) -> ImageOutput:
    default = {"pixels": fill, "patch_coordinates": -1}.get(declared.content, 0)
    pad = declared.pad_value if declared.pad_value is not None else default
    shape = (declared.contract.shape if declared.contract is not None else None) or ()
    last = declared.content == "pixels" and len(shape) == 4 and shape[3] == 3 and shape[1] != 3
    return ImageOutput(port, declared.content, canonical(declared.dtype), levels, pad, last)


def _resize(declared: ImageTransform) -> ImageResize:
    mode, interpolation = RESIZE[declared.mode or "stretch"], INTERPOLATIONS[declared.interpolation or "bicubic"]
    if mode == "pixel_area":
        least, most, multiple = declared.min_pixels or 0, declared.max_pixels or 0, declared.size_multiple or 0
        return ImageResize(mode, interpolation, min_pixels=least, max_pixels=most, multiple=multiple)
    if mode == "patch_budget":
        patch, most, pooling = declared.patch_size or 0, declared.max_patches or 0, declared.pooling_kernel_size or 0
        return ImageResize(mode, interpolation, patch=patch, max_patches=most, pooling=pooling)
    height, width = fixed_size(declared) or (0, 0)
    return ImageResize(mode, interpolation, height=height, width=width)


def _tiles(declared: ImageTransform, resize: ImageTransform | None) -> ImageTiles:
    """The canvas is made from the picture itself: of a resize before it only how it fits and interpolates is kept."""
    fit = RESIZE[(resize.mode if resize is not None else None) or "stretch"]
    interpolation = INTERPOLATIONS[(resize.interpolation if resize is not None else None) or "bicubic"]
    mode, hd = declared.mode or "dynamic_anyres", declared.mode == "dynamic_hd"
    return ImageTiles(
        mode=mode,
        size=declared.tile_size or 0,
        most=declared.max_tiles or DEFAULT_MAX_TILES,
        fit=fit if fit in ("crop", "pad") else "stretch",
        interpolation=interpolation,
        thumbnail=declared.thumbnail_order or "none",
        mask_patch=(declared.mask_patch_size or 0) if hd else 0,
        background=int(declared.canvas_pad_value or 0) if hd else 0,
        thumbnail_interpolation=INTERPOLATIONS[declared.thumbnail_interpolation or "bicubic"] if hd else "bicubic",
    )


def _patches(declared: ImageTransform) -> ImagePatches:
    def second(order: str) -> bool:
        word: str | None = getattr(declared, order)
        return word is not None and ORDERS[order][word]

    last = second("channel_order")
    return ImagePatches(
        size=declared.patch_size or 0,
        frames=declared.temporal_patch_size or 1,
        merge=declared.merge_size or 1,
        raster=second("patch_order"),
        channels_last=last,
        temporal_major=second("temporal_order") and not last,
        xy=second("coordinate_order"),
    )
