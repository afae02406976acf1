"""The image program of `onnx-genai.image-preprocess` (metadata standard 5.6), one output at a time.

An output's transforms are collected by going back from its source, and done one after the other on every picture.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference.pixels import patch_rows, refuse, resized, tiled
from tests.reference.png import decode_rgb
from tests.reference.values import Array, Document, numpy_dtype

MARK = b"\x89GENAI\r\n"


def preprocess(encoded: bytes, program: Document) -> dict[str, Array]:
    """The program's outputs by their workflow value names. Raises ReferenceError of kind adapter."""
    return outputs_of([decode_rgb(each) for each in _files(encoded)], program)


def _files(encoded: bytes) -> list[bytes]:
    if encoded[:8] != MARK:
        return [encoded]
    (count,) = struct.unpack("<I", encoded[8:12])
    at, files = 12 + 8 * count, []
    for size in struct.unpack(f"<{count}Q", encoded[12:at]):
        files.append(encoded[at : at + size])
        at += size
    return files


def outputs_of(pictures: list[Array], program: Document) -> dict[str, Array]:
    """The outputs for pictures that are decoded."""
    return {output["name"]: _output(pictures, program, output) for output in program["outputs"]}


def _output(pictures: list[Array], program: Document, output: Document) -> Array:
    everything: list[Document] = program["transforms"]
    own = _way_to(everything, output["source"]) if any("outputs" in each for each in everything) else everything
    structure = [each for each in everything if each["op"] in ("resize", "tile", "patchify", "pad")]
    levels = [each for each in own if each["op"] in ("rescale", "normalize")]
    made = [_picture(each, structure, levels) for each in pictures]
    length = next((each["target_length"] for each in structure if each["op"] == "pad"), None)
    fill = next((each.get("pad_value", 0) for each in structure if each["op"] == "pad"), 0)
    match output["content"]:
        case "pixels" if made[0].rows is not None:
            array = _filled([each.rows for each in made], length, output.get("pad_value", fill))
        case "pixels":
            array = _whole([tile for each in made for tile in each.tiles], output)
        case "patch_coordinates":
            array = _filled([each.places for each in made], length, output.get("pad_value", -1))
        case "grid_dimensions":
            array = np.array([each.grid for each in made])
        case "original_size":
            array = np.array([each.shape[:2] for each in pictures])
        case "transformed_size":
            array = np.array([each.size for each in made])
        case "validity_mask":
            array = _mask(made, length)
        case other:
            raise refuse(f"the reference has no content {other!r}")
    return array.astype(numpy_dtype(output["dtype"]))


def _way_to(transforms: list[Document], source: str) -> list[Document]:
    """The transforms between the file and a named value."""
    for at, each in enumerate(transforms):
        if source in each["outputs"]:
            read = each.get("inputs") or (transforms[at - 1]["outputs"] if at else [])
            if each["op"] == "pad":
                read = [read[each["outputs"].index(source)]]
            return [*(_way_to(transforms[:at], read[0]) if read else []), each]
    raise refuse(f"nothing makes {source!r}")


@dataclass
class Made:
    """One picture: tiles [height, width, 3], its size, masks, and where it is cut: rows, places and grid."""

    tiles: list[Array]
    size: tuple[int, int]
    masks: list[Array] | None
    rows: Any = None
    places: Any = None
    grid: tuple[int, int, int] = (0, 0, 0)


def _picture(picture: Array, structure: list[Document], levels: list[Document]) -> Made:
    steps = {each["op"]: each for each in structure}
    if "tile" in steps:
        made = Made(*tiled(picture, steps["tile"], steps.get("resize", {})))
    else:
        whole = resized(picture, steps["resize"]) if "resize" in steps else picture
        made = Made([whole], whole.shape[:2], None)
    made.tiles = [_levelled(each, levels) for each in made.tiles]
    if "patchify" in steps:
        made.rows, made.places, made.grid = patch_rows(made.tiles, steps["patchify"])
    return made


def _levelled(tile: Array, levels: list[Document]) -> Array:
    numbers = tile.astype(np.float32)
    for each in levels:
        if each["op"] == "rescale":
            numbers = numbers * np.float32(each["scale"])
        else:
            numbers = (numbers - np.array(each["mean"], np.float32)) / np.array(each["std"], np.float32)
    return numbers


def _whole(tiles: list[Array], output: Document) -> Array:
    if len({each.shape for each in tiles}) > 1:
        raise refuse("pictures of several sizes in one tensor")
    shape = (output.get("contract") or {}).get("shape") or [0, 3]
    return np.stack([each if 3 in shape[3:] and shape[1] != 3 else each.transpose(2, 0, 1) for each in tiles])


def _filled(pictures: list[Array], length: int | None, fill: float) -> Array:
    if length is None:
        return np.concatenate(pictures)
    filled = np.full((len(pictures), length, *pictures[0].shape[1:]), fill, pictures[0].dtype)
    for at, each in enumerate(pictures):
        if len(each) > length:
            raise refuse("more patches than the length they are padded to")
        for row, numbers in enumerate(each):
            filled[at, row] = numbers
    return filled


def _mask(made: list[Made], length: int | None) -> Array:
    if made[0].masks is not None:
        return np.stack([mask for each in made for mask in each.masks or ()])
    if made[0].rows is None:
        return np.ones(sum(len(each.tiles) for each in made), np.int64)
    return _filled([np.ones(len(each.rows), np.int64) for each in made], length, 0)
