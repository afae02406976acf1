"""The values of an image program: what each is, what was done to it, and what an output may take (standard, 5.6).

A program is named as soon as a transform names what it reads or makes; every transform then names its values. One that
is not is a single line of work, and its outputs say by their content what they take of it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules
from genai_compiler.check.image_words import FLOAT32_MAX, MASK_DTYPES, NUMBER_DTYPES, PIXEL_DTYPES
from genai_compiler.plan.dtypes import canonical
from genai_compiler.read.document import ImageOutput, ImageProgram, ImageTransform
from genai_compiler.read.suggest import did_you_mean
from genai_compiler.read.vocabularies import IMAGE_CONTENTS

RULES: Rules = {
    "V065": Rule("image-values", "A program with named values names them all once, and its outputs take what fits."),
    "V066": Rule("image-dtype", "A program output has a dtype that its content can have."),
}
ROOT: Path = ("preprocessing", "image")

RASTER, TILES, PATCHES, PADDED = "a picture", "tiles", "patches", "padded patches"
COORDINATES, PADDED_COORDINATES = "coordinates", "padded coordinates"
GRID, ORIGINAL, TRANSFORMED, MASK = "a grid", "original sizes", "transformed sizes", "a mask"

TAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "convert_rgb": ((RASTER, TILES), ""),
    "resize": ((RASTER,), RASTER),
    "rescale": ((RASTER, TILES), ""),
    "normalize": ((RASTER, TILES), ""),
    "tile": ((RASTER,), TILES),
    "patchify": ((RASTER, TILES), PATCHES),
    "flatten": ((PATCHES,), PATCHES),
    "emit_original_size": ((RASTER,), ORIGINAL),
    "emit_transformed_size": ((RASTER, TILES), TRANSFORMED),
    "emit_validity_mask": ((TILES, PATCHES, PADDED), MASK),
    "emit_patch_coordinates": ((PATCHES,), COORDINATES),
    "emit_grid_coordinates": ((PATCHES,), GRID),
}
"""What a transform reads, and what it makes of it; "": the same kind of thing."""
PADS = {PATCHES: PADDED, COORDINATES: PADDED_COORDINATES}
STRUCTURE = frozenset({"resize", "tile", "patchify", "flatten", "pad"})
SAME: dict[str, frozenset[str]] = {
    "pixels": STRUCTURE,
    "patch_coordinates": frozenset({"resize", "tile", "patchify"}),
    "grid_dimensions": frozenset({"resize", "tile", "patchify"}),
    "transformed_size": frozenset({"resize", "tile"}),
    "validity_mask": frozenset({"resize", "tile"}),
    "original_size": frozenset(),
}
"""Content -> steps that an output's own branch has exactly when the program has them."""


class ImageValue(NamedTuple):
    """A value of a program. done: structural steps on its way; levels: what was done to its levels, in order."""

    kind: str
    done: frozenset[str] = frozenset()
    levels: tuple[tuple[float, ...], ...] = ()


def is_named(program: ImageProgram) -> bool:
    """Whether the program names its values."""
    return any(each.inputs is not None or each.outputs is not None for each in program.transforms)


def structure(program: ImageProgram) -> frozenset[str]:
    """The structural steps that the program has."""
    return frozenset(each.op for each in program.transforms) & STRUCTURE


def levels_of(transforms: tuple[ImageTransform, ...]) -> tuple[tuple[float, ...], ...]:
    """What these transforms do to the levels of a picture, in order: (scale,) or (means and deviations)."""
    found = (
        (each.scale,) if each.op == "rescale" and each.scale is not None else (*(each.mean or ()), *(each.std or ()))
        for each in transforms
        if each.op in ("rescale", "normalize")
    )
    return tuple(each for each in found if each)


def check_values(program: ImageProgram, blamed: frozenset[int]) -> Faults:
    """Named values and outputs. blamed: transforms that were refused already, whose inputs are not looked at again."""
    values: dict[str, ImageValue] | None = None
    if is_named(program):
        values = {}
        yield from trace(program, blamed, values)
    names: set[str] = set()
    for at, output in enumerate(program.outputs):
        for rule, what, help in _output(output, program, values, bool(blamed)):
            yield Fault(rule, (*ROOT, "outputs", at), what, help)
        if output.name in names:
            yield Fault("V065", (*ROOT, "outputs", at), f"two outputs are called '{output.name}'", "rename one")
        names.add(output.name)


# ---- named values ----------------------------------------------------------------------------------------------------


def trace(program: ImageProgram, blamed: frozenset[int], values: dict[str, ImageValue]) -> Faults:
    """Follow the names through the program, filling `values`."""
    before: tuple[str, ...] = ()
    for at, transform in enumerate(program.transforms):
        path = (*ROOT, "transforms", at)
        read, unknown = _read(transform, before, values)
        for name in unknown:
            what = f"{transform.op} reads '{name}', which no earlier transform makes"
            yield Fault("V065", path, what, did_you_mean(name, values))
        made = list(_made(transform, read)) if not unknown else []
        if at not in blamed and not unknown:
            if mismatch := _mismatch(transform, read):
                yield Fault("V065", path, *mismatch)
            elif transform.outputs is not None and len(transform.outputs) != len(made):
                what = f"{transform.op} makes {len(made)} values and names {len(transform.outputs)}"
                yield Fault("V065", path, what, "name each value that it makes")
        if transform.outputs is None:
            yield Fault("V065", path, f"{transform.op} names no output, others do", "add outputs")
        before = transform.outputs or ()
        for place, name in enumerate(before):
            if name in values:
                yield Fault("V065", path, f"'{name}' is made twice", "give each value a name of its own")
            else:
                values[name] = made[place] if place < len(made) else ImageValue("")


def _read(
    transform: ImageTransform, before: tuple[str, ...], values: dict[str, ImageValue]
) -> tuple[list[ImageValue], list[str]]:
    """What a transform reads, and the names that are unknown; unnamed, it reads what the one before made."""
    decodes = transform.op in ("decode", "decode_rgb")
    names = transform.inputs if transform.inputs is not None else () if decodes else before
    return [values[each] for each in names if each in values], [each for each in names if each not in values]


def _mismatch(transform: ImageTransform, read: list[ImageValue]) -> tuple[str, str] | None:
    op = transform.op
    if op in ("decode", "decode_rgb"):
        return (f"{op} reads values, and it has the file", "remove inputs") if read else None
    if not all(each.kind for each in read):
        return None  # what made it was refused
    if op == "pad":
        if not read:
            return "pad reads no value", "give its inputs"
        wrong = next((each.kind for each in read if each.kind not in PADS), None)
        return None if wrong is None else (f"pad reads {wrong}", "give patches or coordinates")
    if len(read) != 1:
        return f"{op} reads {len(read)} values", "give one as its inputs"
    takes = TAKES[op][0] if op in TAKES else ()
    if op in TAKES and read[0].kind not in takes:
        return f"{op} reads {read[0].kind}", f"give {' or '.join(takes)}"
    return None


def _made(transform: ImageTransform, read: list[ImageValue]) -> Iterator[ImageValue]:
    op = transform.op
    if op in ("decode", "decode_rgb"):
        yield ImageValue(RASTER)
        return
    for each in read if op == "pad" else read[:1]:
        kind = PADS.get(each.kind, "") if op == "pad" else TAKES[op][1] or each.kind if op in TAKES else ""
        yield ImageValue(kind, each.done | ({op} & STRUCTURE), (*each.levels, *levels_of((transform,))))


# ---- outputs ---------------------------------------------------------------------------------------------------------


def _output(
    output: ImageOutput, program: ImageProgram, values: dict[str, ImageValue] | None, doubtful: bool
) -> Iterator[tuple[str, str, str]]:
    content, dtype = output.content, canonical(output.dtype)
    if content not in SAME:
        yield "V065", f"there is no content '{content}'", did_you_mean(content, IMAGE_CONTENTS)
        return
    allowed = PIXEL_DTYPES if content == "pixels" else MASK_DTYPES if content == "validity_mask" else NUMBER_DTYPES
    if dtype not in allowed:
        yield "V066", f"{content} can't be {output.dtype}", f"write one of {', '.join(sorted(allowed))}"
    elif fault := _pad_fault(output):
        yield "V066", fault, "write a number that the content can hold"
    done = structure(program)
    if values is None:
        if content in ("patch_coordinates", "grid_dimensions") and "patchify" not in done:
            yield "V065", f"{content} need patches, and the program makes none", "add a patchify"
        return
    value = values.get(output.source)
    if value is None:
        what = f"output '{output.name}' takes '{output.source}', which no transform makes"
        yield "V065", what, did_you_mean(output.source, values)
    elif value.kind and value.kind not in (wanted := _kinds(content, done)):
        yield "V065", f"'{output.source}' is {value.kind}, no {content}", f"take {' or '.join(wanted)}"
    elif value.kind and not doubtful and (other := sorted((value.done ^ done) & SAME[content])):
        what = (
            f"'{output.source}' lies on a branch beside {' and '.join(other)}, which the program's pictures go through"
        )
        yield "V065", what, "take a value that went through it too"


def _kinds(content: str, done: frozenset[str]) -> tuple[str, ...]:
    if content == "pixels":
        return (PADDED,) if "pad" in done else (PATCHES,) if "patchify" in done else (RASTER, TILES)
    if content == "patch_coordinates":
        return (PADDED_COORDINATES,) if "pad" in done else (COORDINATES,)
    return ({"grid_dimensions": GRID, "original_size": ORIGINAL, "transformed_size": TRANSFORMED}.get(content, MASK),)


def _pad_fault(output: ImageOutput) -> str:
    pad = output.pad_value
    if pad is None:
        return ""
    if not -FLOAT32_MAX <= pad <= FLOAT32_MAX:
        return f"pad_value {pad} is no float32 number"
    if output.content == "patch_coordinates" and (pad != int(pad) or abs(pad) > 2**53):
        return f"pad_value {pad} is no whole number, and coordinates are"
    return ""
