"""Files of pictures or sounds before a graph that stands alone, where a processor file beside it says how.

    invoke image_processor(encoded); the graph on what it makes; or on the caller's tensor

A processor file that nothing uses is said, in every dialect.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.media_notes import AUDIO, IMAGE, MediaNotes, Said, named_processor
from genai_compiler.lower.picture_front import picture_alone, picture_roles
from genai_compiler.lower.sound_front import sound_front, sound_port
from genai_compiler.lower.stages import Medium, Stage, with_stages
from genai_compiler.lower.with_media import heard
from genai_compiler.problem import Problem
from genai_compiler.read.audio_processor import describes_audio
from genai_compiler.read.image_processor import describes_images

_DESCRIBES = ((IMAGE, describes_images), (AUDIO, describes_audio))


def with_files(document: Data, stage: Stage, notes: MediaNotes) -> tuple[Data, tuple[Problem, ...]]:
    """(the document of a graph that stands alone, with its stage; problems of files that can't be followed)."""
    files = processor_files(notes)
    port = sound_port([stage], Said(config=files.get(AUDIO)))
    first = next(iter(stage.signature.outputs), None)
    picture = Medium((stage,), first, f"{stage.component}.{first.name}", "", "") if first is not None else None
    roles = picture_roles(picture) if picture is not None else None
    front, found = None, tuple[Problem, ...]()
    if roles is not None and picture is not None and IMAGE in files:
        front, found = picture_alone(notes, picture, roles, files[IMAGE])
    elif roles is None and port is not None and AUDIO in files:
        front, found = sound_front(notes, stage, port)
    if front is None:
        return with_stages(document, [stage]), found
    workflow = document["pipeline"]["workflow"]
    workflow["steps"] = [*heard(front, stage, document), *workflow["steps"]]
    workflow["manifest"]["capabilities"] += ["input_presence", "nested_control_flow"]
    return document, found


def processor_files(notes: MediaNotes) -> Mapping[str, str]:
    """Medium -> the file beside the graphs that describes it."""
    found = {kind: named_processor(notes.root, kind, notes.said[kind], is_one) for kind, is_one in _DESCRIBES}
    return {kind: name for kind, name in found.items() if name is not None}


def processor_notes(root: Path, document: Data) -> Iterator[str]:
    """What is said of the processor files beside the graphs: whether the document uses them."""
    workflow = document["pipeline"]["workflow"]
    used = {each["implementation"].get("artifact") for each in workflow["components"].values()}
    for kind, name in processor_files(only_files(root)).items():
        if name in used:
            yield f"{kind} files become tensors as {name} says"
        else:
            own = f"request.{kind}" in workflow["inputs"]
            why = "the document's own program is" if own else "no graph here takes what it makes, or tensors are given"
            yield f"{name} says how {kind} files become tensors; it is not used: {why}"


def only_files(root: Path) -> MediaNotes:
    """Notes of a package that says nothing of its media but by the files beside its graphs."""
    return MediaNotes(root, {IMAGE: Said(), AUDIO: Said()})
