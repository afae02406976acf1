"""Files of pictures or sounds before a graph that stands alone, where a processor file beside it says how.

    invoke image_processor(encoded); the graph on what it makes; or on the caller's tensor

A processor file that nothing uses is said, in every dialect.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.file_fronts import FileFront
from genai_compiler.lower.file_or_tensors import file_or_tensors
from genai_compiler.lower.matching import rank_of
from genai_compiler.lower.media_notes import AUDIO, IMAGE, MediaNotes, Said, file_text, processor_file
from genai_compiler.lower.picture_front import lone_picture_front
from genai_compiler.lower.sound_front import sound_front
from genai_compiler.lower.sound_roles import MODE, is_told, sound_roles
from genai_compiler.lower.stages import Stage, with_stages
from genai_compiler.problem import Problem
from genai_compiler.read.audio_processor import describes_audio
from genai_compiler.read.image_processor import describes_images
from genai_compiler.read.signature import Port
from genai_compiler.read.sound_processor import FILE
from genai_compiler.read.special_tokens import SpecialTokens

_DESCRIBES = ((IMAGE, describes_images), (AUDIO, describes_audio))


def with_files(document: Data, stage: Stage, notes: MediaNotes) -> tuple[Data, tuple[Problem, ...]]:
    """(the document of a graph that stands alone, with its stage; problems of files that can't be followed)."""
    front, found = _front(stage, notes)
    if front is None:
        return with_stages(document, [stage]), found
    workflow = document["pipeline"]["workflow"]
    workflow["steps"] = [*file_or_tensors(front, stage, document), *workflow["steps"]]
    workflow["manifest"]["capabilities"] += ["nested_control_flow", "input_presence"]
    return document, found


def _front(stage: Stage, notes: MediaNotes) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """What makes the graph's pictures or features of sound of files, None where nothing says how."""
    pictures = _pictures(stage)
    if pictures is not None:
        return lone_picture_front(notes, stage, pictures)
    sounds = sound_roles([stage], notes) if is_told(notes) else None
    if sounds is None or MODE in sounds:
        return None, ()
    return sound_front(notes, stage, sounds, SpecialTokens())


def _pictures(stage: Stage) -> Port | None:
    """The graph's only whole pictures, [rows, 3, height, width] or with the channels last."""
    whole = [each.port for each in stage.inputs if "float" in each.port.dtype and rank_of(each.port) == 4]
    found = [each for each in whole if each.shape and 3 in (each.shape[1], each.shape[3])]
    return found[0] if len(found) == 1 else None


def processor_notes(root: Path, document: Data) -> Iterator[str]:
    """What is said of the processor files beside the graphs: whether the document uses them."""
    workflow = document["pipeline"]["workflow"]
    used = {each["implementation"].get("artifact") for each in workflow["components"].values()}
    for kind, name in _processor_files(root).items():
        if name in used:
            yield f"{kind} files become tensors as {name} says"
        else:
            own = f"request.{kind}" in workflow["inputs"]
            why = "the document's own program is" if own else "no graph here takes what it makes, or tensors are given"
            yield f"{name} says how {kind} files become tensors; it is not used: {why}"
    text, _ = file_text(root, FILE)
    known = text is not None and any(is_one(text) for _, is_one in _DESCRIBES)
    of_samples = text is not None and isinstance(text.root, dict) and "sampling_rate" in text.root
    if text is not None and not known and not of_samples:
        yield f"{FILE} is not used: it is not known to say how pictures or sounds become tensors"


def _processor_files(root: Path) -> Mapping[str, str]:
    """Medium -> the file beside the graphs that describes it."""
    found = {kind: processor_file(root, kind, Said(), is_one)[0] for kind, is_one in _DESCRIBES}
    return {kind: name for kind, name in found.items() if name is not None}


def only_files(root: Path) -> MediaNotes:
    """Notes of a package that says nothing of its media but by the files beside its graphs."""
    return MediaNotes(root, {IMAGE: Said(), AUDIO: Said()})
