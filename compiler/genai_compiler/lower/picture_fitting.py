"""What an image processor file makes, beside what the graphs take: ranks, orders of axes, extents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from genai_compiler.lower.followed_picture import ASPECT, GRID, MASK, PIXELS, SIZES, TILE_COUNT, TILES, Picture
from genai_compiler.lower.matching import spell_port
from genai_compiler.lower.stages import Stage, merge_of, patch_of
from genai_compiler.problem import Problem
from genai_compiler.read.image_processor import ImageProcessor
from genai_compiler.read.signature import Port

Roles = Mapping[str, Port]
"""What the stages take of a picture -> their input."""
OF_TILES = {each: each for each in (ASPECT, TILES, TILE_COUNT)}
"""Names of what is told of tiles, which are all [pictures, n]."""


@dataclass
class Fitting:
    """What a file makes, beside what the graphs of `stages` take. cut: patches that the file leaves to its runner."""

    file: ImageProcessor
    picture: Picture
    roles: Roles
    stages: Sequence[Stage]
    cut: Mapping[str, int] = field(default_factory=dict[str, int])
    problems: list[Problem] = field(default_factory=list[Problem])

    def refuse(self, what: str, help: str = "make the file and the graph agree") -> None:
        self.problems.append(Problem("processor-mismatch", self.file.text.place(()), "", what, help))

    def hold(self) -> None:
        """Hold the file's pixels against the graph's: rank, the order of axes, extents."""
        pixels = self.roles[PIXELS]
        shape, made = pixels.shape or (), self.picture
        takes = f"the graph takes {pixels.name!r} as {spell_port(pixels)}"
        if made.views or len(shape) == 5:
            self._views(shape, takes)
        elif len(shape) == 4:
            self._whole(shape, takes)
        elif not made.patches:
            self._cut(shape, takes)
        else:
            width = 3 * made.patches.get("frames", 1) * made.patches["size"] ** 2
            if shape[-1] != width:
                self.refuse(f"{self.file.name} makes patches of {width} numbers, and {takes}")
            if (made.length is not None) != (len(shape) == 3):
                self.refuse(f"{self.file.name} makes patches of rank {3 if made.length else 2}, and {takes}")
        self._squares()
        if GRID in self.roles and not made.patches and not self.cut:
            self.refuse(
                f"the graph takes a grid of patches, {self.roles[GRID].name!r}, and {self.file.name} makes none"
            )

    def _squares(self) -> None:
        """Patches and what of them is an entry, where both sides say it."""
        for what, own, graphs in (
            ("pixels of a patch's edge", self.picture.patch, patch_of(self.stages)),
            ("patches of the edge of what an entry stands for", self.picture.merge, merge_of(self.stages)),
        ):
            if own and graphs > 1 and own != graphs:
                self.refuse(f"{self.file.name} says {own} {what}, and the graph has {graphs}")

    def _views(self, shape: tuple[int | str | None, ...], takes: str) -> None:
        size = self.picture.views.get("size")
        if size is None or len(shape) != 5:
            kind = "views" if self.picture.views else "no views"
            self.refuse(f"{self.file.name} makes {kind} of pictures, and {takes}")
        elif any(
            isinstance(each, int) and each != wanted for each, wanted in zip(shape[2:], (3, size, size), strict=True)
        ):
            self.refuse(f"{self.file.name} makes views of {size}x{size} pixels, and {takes}")
        mode = self.picture.views.get("mode")
        if MASK in self.roles and mode != "fields":
            self.refuse(f"the graph takes a mask of views, {self.roles[MASK].name!r}, and {self.file.name} makes none")
        for role in (SIZES, *OF_TILES):
            if role in self.roles and (mode == "tiles") != (role in OF_TILES):
                self.refuse(f"the graph takes {self.roles[role].name!r}, and {self.file.name} makes no such numbers")
        least = self.picture.views.get("most") if mode == "tiles" else None
        if least is not None and isinstance(shape[1], int) and shape[1] != least:
            self.refuse(f"{self.file.name} makes up to {least} tiles, and {takes}")

    def _whole(self, shape: tuple[int | str | None, ...], takes: str) -> None:
        made = self.picture
        if made.patches:
            self.refuse(f"{self.file.name} cuts pictures into patches, and {takes}")
            return
        channels, edges = (shape[1], shape[2:]) if made.first else (shape[3], shape[1:3])
        if channels != 3:
            order = "first" if made.first else "last"
            self.refuse(f"{self.file.name} puts channels {order}, and {takes}")
            return
        size = made.crop or ((made.resize["height"], made.resize["width"]) if self.fixed else None)
        self._of_one_size(size)
        for edge, wanted in zip(("high", "wide"), edges, strict=True):
            if isinstance(wanted, int) and (size is None or size[edge == "wide"] != wanted):
                are = f"{size[edge == 'wide']} pixels {edge}" if size else f"of their own size, not all {wanted} {edge}"
                self.refuse(f"the pictures that {self.file.name} makes are {are}, and {takes}")

    def _of_one_size(self, size: tuple[int, int] | None) -> None:
        """Hold the size of pictures, None for their own, against the graphs' tables of positions of patches."""
        pixels = self.roles[PIXELS].name
        tables = (each for stage in self.stages for each in stage.signature.patches if each.input == pixels)
        for patch, count in ((each.patch, each.count) for each in tables):
            if size is None or (size[0] // patch) * (size[1] // patch) != count:
                are = f"of {size[0]} x {size[1]} pixels" if size is not None else "of their own size"
                takes = f"the graph's table of positions is for {count} patches of {patch} x {patch} pixels"
                self.refuse(f"the pictures that {self.file.name} makes are {are}, and {takes}")

    @property
    def tiled(self) -> bool:
        """Whether pictures become tiles alone."""
        return self.picture.views.get("mode") == "tiles"

    @property
    def fixed(self) -> bool:
        """Whether all pictures become as large as the file says."""
        return self.picture.resize.get("mode") == "stretch"

    def _cut(self, shape: tuple[int | str | None, ...], takes: str) -> None:
        """The reference runtime cuts by itself: row by row, a frame after the other, in patches of the resize."""
        made = self.picture
        area = 3 * made.patch**2
        frames = shape[-1] // area if isinstance(shape[-1], int) and area else 0
        if len(shape) != 2 or not frames or frames * area != shape[-1] or made.first:
            self.refuse(f"{self.file.name} leaves pictures whole, and {takes}", "end it with PatchImage")
            return
        self.cut = {"patch": made.patch, "frames": frames, "merge": made.merge}
