"""An image program as generated code states it: every decision taken, nothing left to look up in the document."""

from dataclasses import dataclass
from typing import Literal

Fit = Literal["stretch", "crop", "pad"]
Interpolation = Literal["nearest", "bicubic", "bilinear", "lanczos3"]
Content = Literal[
    "pixels",
    "patch_coordinates",
    "grid_dimensions",
    "original_size",
    "transformed_size",
    "validity_mask",
    "entries",
    "aspect",
    "part_mask",
    "parts",
]
Levels = tuple[tuple[float, ...], ...]
"""What is done to every level of a channel, in order: (scale,) multiplies, (mean x 3, std x 3) normalises."""


@dataclass(frozen=True)
class ImageResize:
    """To a fixed size (stretch, crop, pad), or to one that follows from the picture (pixel_area, patch_budget, and
    shortest: the shorter edge becomes `height`).

    half_up: halves are rounded up where edges are rounded to a multiple, else to the even neighbour. pillow: Pillow
    resamples, which rounds between the two directions; the standard does not.
    """

    mode: Literal["stretch", "crop", "pad", "pixel_area", "patch_budget", "shortest"]
    interpolation: Interpolation
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
    """Square tiles of `size` cut from a canvas that the picture is fitted to, and where the whole picture goes.

    most: of tiles, without the thumbnail. mask_patch, background, thumbnail_interpolation: of dynamic_hd only.
    """

    mode: Literal["dynamic_anyres", "fixed_grid", "dynamic_hd"]
    size: int
    most: int
    fit: Fit
    interpolation: Interpolation
    thumbnail: Literal["none", "prepend", "append"] = "none"
    mask_patch: int = 0
    background: int = 0
    thumbnail_interpolation: Interpolation = "bicubic"


@dataclass(frozen=True)
class ImagePatches:
    """Square patches of `size`, written `frames` times each, in groups of merge x merge unless `raster`.

    A patch is (channel, frame, y, x); temporal_major: (frame, channel, y, x); channels_last: (frame, y, x, channel).
    xy: coordinates are (column, row).
    """

    size: int
    frames: int = 1
    merge: int = 1
    raster: bool = False
    channels_last: bool = False
    temporal_major: bool = False
    xy: bool = False


@dataclass(frozen=True)
class ImageViews:
    """Square views of a picture, `size` pixels each: the whole (not of tiles), then its parts, at most `most`.

    mode: see `views`; cell: pixels of an entry of the mask. Of squares there are always 1 + most, the last ones zeros;
    filled: of tiles always `most`.
    """

    mode: Literal["squares", "fields", "tiles"]
    size: int
    most: int
    cell: int = 14
    filled: bool = False


@dataclass(frozen=True)
class ImageOutput:
    """One output port. pad: what fills up a picture's patches; channels_last: of whole pictures, [N, H, W, 3].

    reverse: channels are blue, green, red, and levels are in this order.
    """

    port: str
    content: Content
    dtype: str
    levels: Levels = ()
    pad: float = 0
    channels_last: bool = False
    reverse: bool = False


@dataclass(frozen=True)
class ImageProgram:
    """At most one of `resize` and `tiles`; `length`: patches that each picture is padded to, None: not padded.

    crop: (height, width) of the middle that is kept after resizing. stacks: pictures of several sizes lie in one
    tensor, zeros below and to the right of the smaller ones. views: instead of all that, whose outputs are pixels,
    transformed_size (the canvas'), validity_mask, entries: how many of a prompt each picture takes; and of tiles aspect
    (which of all grids, from 1), part_mask (1 for each tile that there is), parts (how many).
    """

    outputs: tuple[ImageOutput, ...]
    resize: ImageResize | None = None
    tiles: ImageTiles | None = None
    patches: ImagePatches | None = None
    length: int | None = None
    crop: tuple[int, int] | None = None
    stacks: bool = False
    views: ImageViews | None = None
