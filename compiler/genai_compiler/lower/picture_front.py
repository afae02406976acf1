"""Picture files before the stages of a package: the program that makes their tensors, held against what these take."""

from dataclasses import replace
from typing import Any

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.file_fronts import FileFront
from genai_compiler.lower.followed_picture import COORDINATES, GRID, MASK, PIXELS, SIZES, followed
from genai_compiler.lower.matching import rank_of
from genai_compiler.lower.media_notes import IMAGE, MediaNotes, Said, processor_file
from genai_compiler.lower.picture_fitting import OF_TILES, Fitting, Roles
from genai_compiler.lower.prompt_places import NUMBERED, entry_of, fixed_entries, place_parameters, unknown_places
from genai_compiler.lower.stages import Medium, Stage
from genai_compiler.problem import CompileError, Problem, errors
from genai_compiler.read.image_processor import describes_images, read_image_processor
from genai_compiler.read.signature import Port
from genai_compiler.read.special_tokens import SpecialTokens

PROCESSOR, PROGRAM = "genai-compile.image-processor", "onnx-genai.image-preprocess"


def picture_roles(medium: Medium) -> Roles | None:
    """The inputs of a medium's stages by what they are of a picture, None where they are not those of pictures.

    Floats are pixels; integers are grids [pictures, 3], sizes [pictures, 2], coordinates [pictures, patches, 2]. Beside
    views, [pictures, views, 3, height, width], sizes and a mask [pictures, views, cells, cells] may be floats; of
    tiles there are further numbers [pictures, n], which have the names that models give them.
    """
    found: dict[str, Port] = {}
    asked = [each.port for stage in medium.stages for each in stage.inputs if each.asked]
    views = next((each for each in asked if rank_of(each) == 5), None)
    for port in asked:
        shape = port.shape or ()
        forms = {(2, 3): GRID, (2, 2): SIZES, (3, 2): COORDINATES}
        role = PIXELS if "float" in port.dtype else None
        if views is not None and port != views:
            role = OF_TILES.get(port.name) or {2: SIZES, 4: MASK}.get(len(shape))
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
        fitting = Fitting(file, followed(file), roles, medium.stages)
        fitting.hold()
    except CompileError as error:
        return None, (*problems, *error.problems)
    found = (*problems, *fitting.problems)
    if errors(found):
        return None, found
    picture = fitting.picture
    counted = bool(picture.views) and not fitting.tiled
    parameters = prompt_parameters(medium, said, tokens, picture.patch * picture.merge, counted)
    if picture.views.get("mode") == "squares" and said.token is None and medium.entry is None:
        parameters = {"of_views": True, **NUMBERED}
    front = _front(fitting, parameters)
    return front, (*found, *unknown_places(parameters, said.spot))


def lone_picture_front(notes: MediaNotes, stage: Stage, port: Port) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """The front of a graph that is no stage before a decoder: all pictures of a run are rows of its input `port`.

    None where no file describes pictures, or where that file can't be followed; the problems then are errors.
    """
    name, problems = processor_file(notes.root, IMAGE, notes.said[IMAGE], describes_images)
    if name is None:
        return None, tuple(errors(problems))
    try:
        file = read_image_processor(notes.root, name)
        fitting = Fitting(file, followed(file), {PIXELS: port}, (stage,))
        fitting.hold()
    except CompileError as error:
        return None, (*problems, *(_with_way_out(each) for each in error.problems))
    found = (*problems, *(_with_way_out(each) for each in fitting.problems))
    if errors(found):
        return None, found
    front = _front(fitting, {"one_size": True})
    return replace(front, each=False), found


def _with_way_out(problem: Problem) -> Problem:
    """The problem of a file that a graph can do without."""
    help = "take the file away, and tensors of pictures go in as before"
    return replace(problem, help=f"{problem.help}; or {help}" if problem.help else help)


def _front(fitting: Fitting, parameters: dict[str, Any]) -> FileFront:
    roles, picture = fitting.roles, fitting.picture
    patches = picture.patches or fitting.cut
    each = GRID not in roles and not picture.views
    varies = each and not patches and not fitting.fixed and picture.crop is None
    contracts = {role: role_contract(port, role, each) for role, port in roles.items()}
    if varies and SIZES not in roles:
        contracts[SIZES] = {"dtype": "int64", "rank": 2, "shape": ["image.pictures", 2]}
    parameters |= fitting.cut
    fixed = isinstance((roles[PIXELS].shape or (0, None))[1], int)
    parameters |= {"filled": True} if fitting.tiled and fixed else {}
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


def role_contract(port: Port, role: str, each: bool) -> Data:
    """A port's contract with symbols of its own: what a program makes is not bound to what a graph calls its axes.

    each: the graph takes one picture a run, and the program makes all of them.
    """
    shape = [size if isinstance(size, int) else f"image.{role}.{axis}" for axis, size in enumerate(port.shape or ())]
    shape = [f"image.{role}.0", *shape[1:]] if each else shape
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape}


def prompt_parameters(
    medium: Medium, said: Said, tokens: SpecialTokens, cell: int, views: bool = False
) -> dict[str, Any]:
    """What a prompt says of a picture: which token stands for an entry, where pictures go, how many entries one has.

    entries: of every picture; cell: pixels of the edge that one entry stands for. Neither where nobody says, nor where
    views tell it.
    """
    token = entry_of(medium, said, tokens)
    found = place_parameters(token, tokens, said.plain) if token is not None else {}
    count = said.count or fixed_entries(medium)
    if views:
        return {**found, "of_views": True}
    if count:
        return {**found, "entries": count}
    return {**found, "cell": cell} if cell else found
