"""What an image program makes, as far as the document tells its shape, against its contracts and the limits (5.6)."""

from collections.abc import Iterator
from math import prod

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules
from genai_compiler.check.image_words import MAX_ELEMENTS, MAX_PIXELS, RESIZE
from genai_compiler.read.document import ImageOutput, ImageProgram, ImageTransform

RULES: Rules = {
    "G004": Rule("image-geometry", "Pictures of a size that is known are whole patches, and whole groups of them."),
    "G005": Rule("image-contract", "A program output's contract has the rank and the extents that the program makes."),
    "V067": Rule("image-limit", "A program keeps within the standard's limits."),
}
ROOT: Path = ("preprocessing", "image")
Dims = tuple[int | None, ...]


class Facts:
    """The transforms of a sound program by name, and the height and width of a tile where they are known."""

    def __init__(self, program: ImageProgram) -> None:
        self.at = {each.op: at for at, each in enumerate(program.transforms)}
        self.of = {each.op: each for each in program.transforms}
        self.size = _known_size(self.of)

    def path(self, op: str) -> Path:
        return (*ROOT, "transforms", self.at[op])


def _known_size(of: dict[str, ImageTransform]) -> tuple[int, int] | None:
    tile, resize = of.get("tile"), of.get("resize")
    if tile is not None:
        assert tile.tile_size is not None
        return tile.tile_size, tile.tile_size
    return fixed_size(resize) if resize is not None else None


def fixed_size(resize: ImageTransform) -> tuple[int, int] | None:
    """(height, width) of a resize to a size that the document gives."""
    size = resize.size
    return None if size is None else (size, size) if isinstance(size, int) else (size.height, size.width)


def check_shapes(program: ImageProgram, blamed: frozenset[str | int]) -> Faults:
    """Limits, patches and contracts of a program whose transforms are sound. blamed: outputs refused already."""
    facts = Facts(program)
    limits = list(_limits(facts))
    yield from limits
    if limits:
        return
    cut = list(_patches(facts))
    yield from cut
    for at, output in enumerate(program.outputs):
        if output.contract is not None and at not in blamed:
            yield from _contract(output, dims_of(output, facts), (*ROOT, "outputs", at))


def _limits(facts: Facts) -> Faults:
    resize, tile, patchify, pad = (facts.of.get(op) for op in ("resize", "tile", "patchify", "pad"))
    for op, each, size in (
        ("resize", resize, fixed_size(resize) if resize is not None else None),
        ("tile", tile, facts.size),
    ):
        if each is not None and size is not None and prod(size) > MAX_PIXELS:
            what = f"a picture of {size[1]}x{size[0]} pixels is larger than {MAX_PIXELS} pixels"
            yield Fault("V067", facts.path(op), what)
    if resize is not None and RESIZE[resize.mode or "stretch"] == "pixel_area":
        assert resize.min_pixels is not None
        if resize.min_pixels > MAX_PIXELS:
            what = f"min_pixels {resize.min_pixels} asks for pictures larger than {MAX_PIXELS} pixels"
            yield Fault("V067", facts.path("resize"), what)
    if patchify is not None:
        features = _features(patchify)
        length = pad.target_length if pad is not None and pad.target_length is not None else 1
        if features * length > MAX_ELEMENTS:
            what = f"{length} patches of {features} numbers are more than {MAX_ELEMENTS}"
            yield Fault("V067", facts.path("pad" if pad is not None and features <= MAX_ELEMENTS else "patchify"), what)


def _features(patchify: ImageTransform) -> int:
    assert patchify.patch_size is not None
    return 3 * patchify.patch_size**2 * (patchify.temporal_patch_size or 1)


def _patches(facts: Facts) -> Iterator[Fault]:
    patchify, pad = facts.of.get("patchify"), facts.of.get("pad")
    if patchify is None or facts.size is None:
        return
    patch, merge, (height, width) = patchify.patch_size or 1, patchify.merge_size or 1, facts.size
    if height % (patch * merge) or width % (patch * merge):
        groups = f" in groups of {merge}x{merge}" if merge > 1 else ""
        what = f"pictures of {width}x{height} pixels are no whole patches of {patch} pixels{groups}"
        yield Fault("G004", facts.path("patchify"), what, "choose sizes that divide")
    elif pad is not None and pad.target_length is not None:
        count = (height // patch) * (width // patch)
        if count > pad.target_length:
            what = f"a picture has at least {count} patches, more than the {pad.target_length} it is padded to"
            yield Fault("V067", facts.path("pad"), what, "raise target_length")


def dims_of(output: ImageOutput, facts: Facts) -> list[Dims]:
    """The shapes that an output can have; None for an extent that follows from the pictures."""
    tile, patchify, pad = facts.of.get("tile"), facts.of.get("patchify"), facts.of.get("pad")
    count: Dims = (None, pad.target_length) if pad is not None else (None,)
    match output.content:
        case "pixels" if patchify is not None:
            return [(*count, _features(patchify))]
        case "pixels":
            height, width = facts.size or (None, None)
            return [(None, 3, height, width), (None, height, width, 3)]
        case "patch_coordinates":
            return [(*count, 2)]
        case "grid_dimensions":
            return [(None, 3)]
        case "validity_mask":
            if tile is not None and tile.mode == "dynamic_hd" and tile.tile_size and tile.mask_patch_size:
                edge = tile.tile_size // tile.mask_patch_size
                return [(None, edge, edge)]
            return [count]
        case _:
            return [(None, 2)]


def _contract(output: ImageOutput, shapes: list[Dims], path: Path) -> Faults:
    contract = output.contract
    assert contract is not None
    if contract.rank != len(shapes[0]):
        what = f"the program makes '{output.name}' of rank {len(shapes[0])}, its contract says {contract.rank}"
        yield Fault("G005", (*path, "contract"), what, f"write the shape {_shown(shapes)}")
    elif contract.shape is not None and not any(_agree(contract.shape, each) for each in shapes):
        what = f"the program makes '{output.name}' of shape {_shown(shapes)}, its contract says {list(contract.shape)}"
        yield Fault("G005", (*path, "contract"), what, "write what the program makes, or change the program")


def _agree(shape: tuple[int | str, ...], dims: Dims) -> bool:
    pairs = zip(shape, dims, strict=False)
    return len(shape) == len(dims) and all(isinstance(each, str) or dim is None or each == dim for each, dim in pairs)


def _shown(shapes: list[Dims]) -> str:
    return " or ".join("[" + ", ".join("?" if each is None else str(each) for each in dims) + "]" for dims in shapes)
