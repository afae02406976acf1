"""Running an image program: files -> pictures -> tiles -> the tensors of its outputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_runtime.adapters.files import split_files
from genai_runtime.adapters.image import tiles as cutting
from genai_runtime.adapters.image.decode import decode
from genai_runtime.adapters.image.levels import level_table, through_table
from genai_runtime.adapters.image.limits import hold_count, hold_elements, hold_size
from genai_runtime.adapters.image.patches import patch_coordinates, patch_grid, patchify
from genai_runtime.adapters.image.program import ImageOutput, ImageProgram, ImageTiles, ImageViews
from genai_runtime.adapters.image.sizes import Size, fitted, middle, resized
from genai_runtime.adapters.image.views import canvas_of, entries_of_views, grids, masks_of, seen, together
from genai_runtime.problem import RequestError
from genai_runtime.values import ONNX_TYPE, Array, Value, encode, to_value


@dataclass(frozen=True)
class Prepared:
    """One picture: uint8 [tiles, height, width, 3], its sizes, its (rows, columns) of patches a tile, its masks.

    masks: uint8 [tiles, edge, edge] of dynamic_hd, else None.
    """

    tiles: Array
    original: Size
    transformed: Size
    grid: tuple[int, int] = (0, 0)
    masks: Array | None = None

    @property
    def patches(self) -> int:
        """How many patches the picture has."""
        return len(self.tiles) * self.grid[0] * self.grid[1]


def image_preprocess(
    parameters: Mapping[str, Any], program: ImageProgram | None = None
) -> Callable[[Mapping[str, Array]], dict[str, Array | Value]]:
    """The call of a program. In: `encoded` uint8 [bytes] (adapters.files). Out: the program's ports.

    parameters: none are known. Raises ValueError without a program.
    """
    if program is None:
        raise ValueError("there is no image program")
    return Preprocess(program)


class Preprocess:
    """A program ready to run: the level tables of its outputs are made."""

    def __init__(self, program: ImageProgram) -> None:
        self._program = program
        self._tables = {
            each.port: level_table(each.levels, each.dtype) for each in program.outputs if each.content == "pixels"
        }

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array | Value]:
        """The outputs by port. Raises RequestError (bad-files, bad-image, image-limit, -patches, -sizes), LoadError."""
        files = split_files(inputs["encoded"].tobytes())
        hold_count(len(files))
        names = ["the picture"] if len(files) == 1 else [f"picture {at}" for at in range(len(files))]
        if self._program.views is not None:
            return self._views(zip(files, names, strict=True), self._program.views)
        pictures: list[Prepared] = []
        elements = 0
        for data, name in zip(files, names, strict=True):
            pictures.append(self._prepared(decode(data, name)))
            elements += pictures[-1].tiles.size
            hold_elements((elements,), "all pictures together")
        return {each.port: self._tensor(each, pictures) for each in self._program.outputs}

    def _views(self, files: Iterable[tuple[bytes, str]], views: ImageViews) -> dict[str, Array | Value]:
        painted: list[tuple[Array, Array | None]] = []
        sizes: list[tuple[int, int]] = []
        elements = 0
        for data, name in files:
            picture = decode(data, name)
            sizes.append((picture.shape[0], picture.shape[1]))
            painted.append(canvas_of(picture, views))
            elements += painted[-1][0].size
            hold_elements((elements,), "all pictures together")
        made: dict[str, Array | Value] = {}
        for each in self._program.outputs:
            match each.content:
                case "pixels":
                    array = self._seen(each, [canvas for canvas, _ in painted], views)
                case "transformed_size":
                    array = _encoded([canvas.shape[:2] for canvas, _ in painted], each)
                case "validity_mask":
                    masks = [masks_of(mask, views) for _, mask in painted if mask is not None]
                    array = _encoded(together(masks, 0, 1), each)
                case "aspect" | "part_mask" | "parts":
                    array = _encoded([_of_grid(canvas, each.content, views) for canvas, _ in painted], each)
                case _:
                    array = _encoded([[entries_of_views(size, views)] for size in sizes], each)
            made[each.port] = to_value(array, each.dtype) if each.dtype in ONNX_TYPE else array
        return made

    def _seen(self, output: ImageOutput, canvases: Sequence[Array], views: ImageViews) -> Array:
        """float [pictures, views, 3, size, size]."""
        table = level_table(output.levels, "float32")
        turned = [each[..., ::-1] if output.reverse else each for each in canvases]
        whole = views.mode != "tiles"
        floats = [seen(through_table(each[None], table)[0], views.size, whole) for each in turned]
        least = 1 + views.most if views.mode == "squares" else views.most if views.filled else 0
        return encode(together(floats, least, 0), output.dtype)

    def _prepared(self, picture: Array) -> Prepared:
        program, original = self._program, picture.shape[:2]
        if program.tiles is not None:
            made = _tiled(picture, program.tiles)
        else:
            whole = picture if program.resize is None else resized(picture, program.resize)
            whole = whole if program.crop is None else middle(whole, program.crop)
            made = Prepared(whole[None], original, whole.shape[:2])
        if program.patches is None:
            return made
        cut = program.patches
        grid = patch_grid(made.tiles.shape[1], made.tiles.shape[2], cut.size, cut.merge)
        return Prepared(made.tiles, original, made.transformed, grid, made.masks)

    # ---- outputs -----------------------------------------------------------------------------------------------------

    def _tensor(self, output: ImageOutput, pictures: Sequence[Prepared]) -> Array | Value:
        match output.content:
            case "pixels":
                made = self._pixels(output, pictures)
            case "patch_coordinates":
                made = _encoded(self._packed([self._coordinates(each) for each in pictures], output.pad), output)
            case "grid_dimensions":
                made = _encoded([(len(each.tiles), *each.grid) for each in pictures], output)
            case "original_size":
                made = _encoded([each.original for each in pictures], output)
            case "transformed_size":
                made = _encoded([each.transformed for each in pictures], output)
            case "validity_mask":
                made = _encoded(self._mask(pictures), output)
        return to_value(made, output.dtype) if output.dtype in ONNX_TYPE else made

    def _pixels(self, output: ImageOutput, pictures: Sequence[Prepared]) -> Array:
        table, cut = self._tables[output.port], self._program.patches
        if cut is None and self._program.stacks:
            return _stacked([through_table(_channels(each, output), table) for each in pictures], output)
        if cut is None:
            _hold_common(pictures, output.port)
            planes = through_table(np.concatenate([_channels(each, output) for each in pictures]), table)
            return planes.transpose(0, 2, 3, 1) if output.channels_last else planes
        group, features = 1 if cut.raster else cut.merge, 3 * cut.size**2 * cut.frames
        self._hold_packed(pictures, features, output.port)
        rows = [
            patchify(
                through_table(_channels(each, output), table),
                cut.size,
                cut.frames,
                group,
                cut.channels_last,
                cut.temporal_major,
            )
            for each in pictures
        ]
        return self._packed(rows, encode(output.pad, output.dtype))

    def _coordinates(self, picture: Prepared) -> Array:
        cut = self._program.patches
        assert cut is not None
        return patch_coordinates(len(picture.tiles), *picture.grid, 1 if cut.raster else cut.merge, cut.xy)

    def _mask(self, pictures: Sequence[Prepared]) -> Array:
        masks = [each.masks for each in pictures if each.masks is not None]
        if masks:
            return np.concatenate(masks)
        if self._program.patches is None:
            return np.ones(sum(len(each.tiles) for each in pictures), np.int64)
        return self._packed([np.ones(each.patches, np.int64) for each in pictures], 0)

    def _packed(self, pictures: Sequence[Array], pad: Any) -> Array:
        """[patches, ...] of each picture as [sum, ...], or each filled up with `pad` as [pictures, length, ...]."""
        length = self._program.length
        if length is None:
            return np.concatenate(pictures)
        packed = np.full((len(pictures), length, *pictures[0].shape[1:]), pad, pictures[0].dtype)
        for at, each in enumerate(pictures):
            if len(each) > length:
                what = f"picture {at} has {len(each)} patches, more than the {length} it is padded to (V067)"
                raise RequestError("image-limit", what, help="give a smaller picture")
            packed[at, : len(each)] = each
        return packed

    def _hold_packed(self, pictures: Sequence[Prepared], features: int, port: str) -> None:
        length = self._program.length
        rows = (sum(each.patches for each in pictures),) if length is None else (len(pictures), length)
        hold_elements((*rows, features), f"'{port}'")


def _tiled(picture: Array, how: ImageTiles) -> Prepared:
    size: Size = picture.shape[:2]
    if how.mode == "dynamic_hd":
        made = cutting.high_definition(picture, how.size, how.most, how.mask_patch, how.background, how.interpolation)
        edge = how.size // how.mask_patch
        tiles, masks = cutting.cut(made.canvas, how.size), cutting.cut(made.mask, edge)
        if how.thumbnail != "none":
            whole = fitted(made.canvas, (how.size, how.size), "stretch", how.thumbnail_interpolation)
            tiles = cutting.with_thumbnail(tiles, whole, how.thumbnail)
            masks = cutting.with_thumbnail(masks, np.ones((edge, edge), np.uint8), how.thumbnail)
        return Prepared(tiles, size, made.canvas.shape[:2], masks=masks)
    grids = cutting.GRIDS[:1] if how.mode == "fixed_grid" else cutting.GRIDS
    columns, rows = cutting.best_grid(size, how.size, how.most, grids)
    hold_size(rows * how.size, columns * how.size, "the canvas of the tiles")
    canvas = fitted(picture, (rows * how.size, columns * how.size), how.fit, how.interpolation)
    tiles = cutting.cut(canvas, how.size)
    if how.thumbnail != "none":
        whole = fitted(picture, (how.size, how.size), how.fit, how.interpolation)
        tiles = cutting.with_thumbnail(tiles, whole, how.thumbnail)
    return Prepared(tiles, size, canvas.shape[:2])


def _of_grid(canvas: Array, content: str, views: ImageViews) -> list[int]:
    """What a canvas' grid of tiles tells: its number among all grids, which tiles there are, or how many."""
    down, across = canvas.shape[0] // views.size, canvas.shape[1] // views.size
    match content:
        case "aspect":
            return [1 + grids(views.most).index((down, across))]
        case "parts":
            return [down * across]
        case _:
            return [int(at < down * across) for at in range(views.most)]


def _channels(picture: Prepared, output: ImageOutput) -> Array:
    """A picture's tiles with the output's order of channels."""
    return picture.tiles[..., ::-1] if output.reverse else picture.tiles


def _stacked(pictures: Sequence[Array], output: ImageOutput) -> Array:
    """[1, 3, height, width] each -> [pictures, 3, highest, widest], or with the channels last."""
    shape = tuple(max(extents) for extents in zip(*(each.shape[1:] for each in pictures), strict=True))
    hold_elements((len(pictures), *shape), f"'{output.port}'")
    whole = np.zeros((len(pictures), *shape), pictures[0].dtype)
    for at, each in enumerate(pictures):
        whole[at, :, : each.shape[2], : each.shape[3]] = each[0]
    return np.ascontiguousarray(whole.transpose(0, 2, 3, 1)) if output.channels_last else whole


def _hold_common(pictures: Sequence[Prepared], port: str) -> None:
    """Whole pictures lie in one tensor only when they have one size. Raises RequestError `image-sizes`."""
    sizes = sorted({each.tiles.shape[1:3] for each in pictures})
    if len(sizes) > 1:
        shown = " and ".join(f"{width}x{height}" for height, width in sizes[:2])
        what = f"pictures of {shown} pixels can't share the tensor '{port}'"
        raise RequestError("image-sizes", what, help="give them in several calls, or pictures of one size")


def _encoded(numbers: Any, output: ImageOutput) -> Array:
    """Whole numbers as elements of the output's type. Raises RequestError `image-limit` for what it can't hold."""
    whole = np.asarray(numbers, np.int64)
    made = encode(whole, output.dtype)
    if output.dtype in ("int8", "uint8", "int32", "bool") and not np.array_equal(made, whole):
        what = f"'{output.port}' holds a number that {output.dtype} can't: {whole.min()} to {whole.max()} (V067)"
        raise RequestError("image-limit", what)
    return made
