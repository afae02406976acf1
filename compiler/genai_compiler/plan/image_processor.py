"""What an image processor file makes of a picture -> the image program that does it."""

from collections.abc import Mapping, Sequence

from genai_compiler.lower.followed_picture import (
    ASPECT,
    COORDINATES,
    ENTRIES,
    GRID,
    MASK,
    PIXELS,
    SIZES,
    TILE_COUNT,
    TILES,
    followed,
)
from genai_compiler.plan.image_program import ImageOutput, ImagePatches, ImageProgram, ImageResize, ImageViews
from genai_compiler.read.image_processor import ImageProcessor

CONTENTS: Mapping[str, str] = {
    PIXELS: "pixels",
    GRID: "grid_dimensions",
    SIZES: "transformed_size",
    COORDINATES: "patch_coordinates",
    MASK: "validity_mask",
    ENTRIES: "entries",
    ASPECT: "aspect",
    TILES: "part_mask",
    TILE_COUNT: "parts",
}
"""Port of the processor's adapter -> what it gives."""


def processor_program(
    file: ImageProcessor, outputs: Sequence[tuple[str, str]], cut: ImagePatches | None = None, filled: bool = False
) -> ImageProgram:
    """The program of a file. outputs: (port of PIXELS and so on, dtype). cut: patches that the file leaves to others.
    filled: pictures have as many tiles as there may be, those that lack are zeros.

    Raises CompileError `bad-processor`.
    """
    picture = followed(file)
    patches = ImagePatches(**picture.patches) if picture.patches else cut
    return ImageProgram(
        outputs=tuple(
            ImageOutput(
                port,
                CONTENTS[port],
                dtype,
                levels=picture.levels if port == PIXELS else (),
                pad=-1 if port == COORDINATES else 0,
                channels_last=port == PIXELS and patches is None and not picture.first,
                reverse=port == PIXELS and picture.swapped,
            )
            for port, dtype in outputs
        ),
        resize=ImageResize(**picture.resize) if picture.resize else None,
        patches=patches,
        length=picture.length,
        crop=picture.crop,
        stacks=patches is None,
        views=ImageViews(**picture.views, filled=filled) if picture.views else None,
    )
