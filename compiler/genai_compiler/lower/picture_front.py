"""Picture files before the stages of a package: the program that makes their tensors, held against what these take."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.file_fronts import FileFront
from genai_compiler.lower.followed_picture import COORDINATES, GRID, MASK, PIXELS, SIZES, Picture, followed
from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.lower.media_notes import IMAGE, MediaNotes, Said, processor_file
from genai_compiler.lower.prompt_places import only_entry, place_parameters
from genai_compiler.lower.stages import Medium, Stage
from genai_compiler.problem import CompileError, Place, Problem, Severity, errors
from genai_compiler.read.image_processor import ImageProcessor, describes_images, read_image_processor
from genai_compiler.read.signature import Port
from genai_compiler.read.special_tokens import SpecialTokens

PROCESSOR, PROGRAM = "genai-compile.image-processor", "onnx-genai.image-preprocess"
Roles = Mapping[str, Port]
"""What the stages take of a picture -> their input."""


def picture_roles(medium: Medium) -> Roles | None:
    """The inputs of a medium's stages by what they are of a picture, None where they are not those of pictures.

    Floats are pixels; integers are grids [pictures, 3], sizes [pictures, 2], coordinates [pictures, patches, 2]. Beside
    views, [pictures, views, 3, height, width], sizes and a mask [pictures, views, cells, cells] may be floats.
    """
    found: dict[str, Port] = {}
    asked = [each.port for stage in medium.stages for each in stage.inputs if each.asked]
    views = next((each for each in asked if rank_of(each) == 5), None)
    for port in asked:
        shape = port.shape or ()
        forms = {(2, 3): GRID, (2, 2): SIZES, (3, 2): COORDINATES}
        role = PIXELS if "float" in port.dtype else None
        if views is not None and port != views:
            role = {2: SIZES, 4: MASK}.get(len(shape))
        if role is None and "int" in port.dtype and shape and isinstance(shape[-1], int):
            role = forms.get((len(shape), shape[-1]))
        if role is None or role in found:
            return None
        found[role] = port
    pixels = found.get(PIXELS)
    return found if pixels is not None and _of_pixels(pixels, len(found) > 1) else None


def _of_pixels(port: Port, placed: bool) -> bool:
    """Whether floats are pixels: three channels in whole pictures, or patches that something places."""
    shape = port.shape or ()
    if len(shape) in (4, 5):
        return 3 in (shape[-3], shape[-1])
    return placed and len(shape) in (2, 3) and isinstance(shape[-1], int)


def picture_front(
    notes: MediaNotes, medium: Medium, roles: Roles, tokens: SpecialTokens
) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """The front of a medium of pictures, None where there is no processor that can be followed; and problems."""
    said = notes.said[IMAGE]
    name, problems = processor_file(notes.root, IMAGE, said, describes_images)
    if name is None:
        return None, problems
    try:
        file = read_image_processor(notes.root, name)
        fitting = _Fitting(file, followed(file), roles, medium)
        fitting.hold()
    except CompileError as error:
        return None, (*problems, *error.problems)
    found = (*problems, *fitting.problems)
    if errors(found):
        return None, found
    front = _front(fitting, medium, said, tokens)
    return front, (*found, *unknown_places(front.declared["contract"]["parameters"], said.spot))


def picture_alone(
    notes: MediaNotes, medium: Medium, roles: Roles, name: str
) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """The front of a graph of pictures without a prompt, by the processor file `name`; None where sizes would differ.

    Problems are what `picture_front` finds, and bad-processor, a warning, for a file whose pictures have sizes of
    their own.
    """
    try:
        file = read_image_processor(notes.root, name)
        fitting = _Fitting(file, followed(file), roles, medium)
        fitting.hold()
    except CompileError as error:
        return None, tuple(error.problems)
    if errors(fitting.problems):
        return None, tuple(fitting.problems)
    front = _front(fitting, medium, Said(), SpecialTokens())
    if front.sizes or set(roles) != {PIXELS}:
        what = f"{name} makes pictures of their own sizes, which a run of this graph takes one by one, as tensors"
        return None, (Problem("bad-processor", file.text.place(()), "", what, _TENSORS, Severity.WARNING),)
    front.declared["contract"]["parameters"] = dict(fitting.cut)
    return replace(front, token=None), ()


_TENSORS = "make the tensors with the model's own processor and give them to run(inputs)"


@dataclass
class _Fitting:
    """What a file makes, beside what the graph takes. cut: patches that the file leaves to whoever runs it."""

    file: ImageProcessor
    picture: Picture
    roles: Roles
    medium: Medium
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
            ("pixels of a patch's edge", self.picture.patch, self.medium.patch),
            ("patches of the edge of what an entry stands for", self.picture.merge, self.medium.merge),
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
        if MASK in self.roles and self.picture.views.get("mode") != "fields":
            self.refuse(f"the graph takes a mask of views, {self.roles[MASK].name!r}, and {self.file.name} makes none")

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
        for each in (each for stage in self.medium.stages for each in stage.signature.patches):
            self._of_one_size(size, each.patch, each.count)
        for edge, wanted in zip(("high", "wide"), edges, strict=True):
            if isinstance(wanted, int) and (size is None or size[edge == "wide"] != wanted):
                are = f"{size[edge == 'wide']} pixels {edge}" if size else f"of their own size, not all {wanted} {edge}"
                self.refuse(f"the pictures that {self.file.name} makes are {are}, and {takes}")

    def _of_one_size(self, size: tuple[int, int] | None, patch: int, count: int) -> None:
        """Hold the size of pictures, None for their own, against a table of so many patches."""
        found = (size[0] // patch) * (size[1] // patch) if size is not None else 0
        if found != count:
            are = f"of {size[0]} x {size[1]} pixels" if size is not None else "of their own size"
            takes = f"the graph's table of positions is for {count} patches of {patch} x {patch} pixels"
            self.refuse(f"the pictures that {self.file.name} makes are {are}, and {takes}")

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


def _front(fitting: _Fitting, medium: Medium, said: Said, tokens: SpecialTokens) -> FileFront:
    roles, picture = fitting.roles, fitting.picture
    patches = picture.patches or fitting.cut
    each = GRID not in roles and not picture.views
    varies = each and not patches and not fitting.fixed and picture.crop is None
    contracts = {role: role_contract(port, role) for role, port in roles.items()}
    if varies and SIZES not in roles:
        contracts[SIZES] = {"dtype": "int64", "rank": 2, "shape": ["image.pictures", 2]}
    cell = picture.patch * picture.merge
    parameters = prompt_parameters(medium, said, tokens, cell, bool(picture.views))
    parameters |= fitting.cut
    return FileFront(
        kind=IMAGE,
        component="image_processor",
        declared={
            "implementation": {"kind": "adapter", "abi": PROCESSOR, "version": "1", "artifact": fitting.file.name},
            "ports": {"inputs": {"encoded": ENCODED}, "outputs": contracts},
            "contract": {"id": PROCESSOR, "version": "1", "parameters": parameters},
        },
        values={role: f"image.{role}" for role in contracts},
        feeds={port.name: f"image.{role}" for role, port in roles.items()},
        each=each,
        sizes=SIZES if varies else "",
        grid=roles[GRID].name if GRID in roles else "",
        merge=picture.merge or 1,
        token=parameters.get("entry_token"),
    )


ENCODED: Data = {"dtype": "uint8", "rank": 1, "shape": ["image_bytes"]}


def role_contract(port: Port, role: str) -> Data:
    """A port's contract with symbols of its own: what a program makes is not bound to what a graph calls its axes."""
    shape = [each if isinstance(each, int) else f"image.{role}.{axis}" for axis, each in enumerate(port.shape or ())]
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape}


def prompt_parameters(
    medium: Medium, said: Said, tokens: SpecialTokens, cell: int, views: bool = False
) -> dict[str, Any]:
    """What a prompt says of a picture: which token stands for an entry, where pictures go, how many entries one has.

    entries: of every picture; cell: pixels of the edge that one entry stands for. Neither where nobody says, nor where
    views tell it.
    """
    known = medium.entry if medium.entry is not None else said.token
    token = known if known is not None else only_entry(tokens)
    found = place_parameters(token, tokens, said.plain) if token is not None else {}
    count = said.count or _entries(medium)
    if views:
        return {**found, "of_views": True}
    if count:
        return {**found, "entries": count}
    return {**found, "cell": cell} if cell else found


def _entries(medium: Medium) -> int | None:
    """How many entries a picture always has, as the graph's output tells; a symbol of digits is a number, too."""
    last: Stage = medium.stages[-1]
    port = next(each for each in last.signature.outputs if f"{last.component}.{each.name}" == medium.result)
    extent = (port.shape or (None,))[-2] if rank_of(port) in (2, 3) else None
    if isinstance(extent, str) and extent.isdigit():
        return int(extent)
    return extent if isinstance(extent, int) else None


def unknown_places(parameters: Mapping[str, Any], spot: tuple[Place, str]) -> Iterator[Problem]:
    """Warnings where a prompt's pictures can't be counted."""
    lacks = [
        what
        for key, what in (
            (("entry_token",), "which token stands for a picture's entry in a prompt"),
            (("entries", "cell", "of_views"), "how many entries a picture has"),
        )
        if not any(each in parameters for each in key)
    ]
    if lacks:
        what = f"nobody says {' nor '.join(lacks)}: prompts are taken as they are"
        help = "name the token (image_token_id), and give the processor file its patch_size and merge_size"
        yield Problem("unknown-places", *spot, what, help, Severity.WARNING)
