"""What the stages before a decoder take of a sound: features, and what tells how much of them is the sound's own."""

from collections.abc import Iterator, Mapping, Sequence

from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.lower.media_notes import AUDIO, NAMES, MediaNotes, file_text
from genai_compiler.lower.stages import Stage
from genai_compiler.problem import Problem
from genai_compiler.read.audio_processor import AudioProcessor, describes_audio
from genai_compiler.read.signature import Port

FEATURES, MASK, COUNT, MODE = "audio_features", "frame_mask", "count", "mode"
Roles = Mapping[str, Port]
"""What the stages take of a sound -> their input."""
MODE_NAME = "audio_projection_mode"
"""The input that says which media a request has, by the name that the configuration's format gives it."""
BANDS = (80, 128)
_FLOATS = ("float32", "float16", "bfloat16")


def sound_roles(stages: Sequence[Stage], notes: MediaNotes) -> Roles | None:
    """The inputs of stages that a caller gives by what they are of a sound, None where they are not those of sounds.

    Floats [rows, bands, frames] or [rows, frames, bands] are features; beside them [rows, frames] is a mask, [rows] a
    count, and [1] tells which media a request has. Where nothing is said of sound, only as many bands as features of
    sound have, before their frames, tell it.
    """
    asked = [each.port for stage in stages for each in stage.inputs if each.asked]
    features = [each for each in asked if each.dtype in _FLOATS and rank_of(each) == 3]
    if len(features) != 1:
        return None
    found: dict[str, Port] = {FEATURES: features[0]}
    shape = features[0].shape or (None, None, None)
    told = is_told(notes)
    if shape[1] not in BANDS and not (told and any(isinstance(each, int) for each in shape[1:])):
        return None
    for port in (each for each in asked if each != features[0]):
        role = _beside(port)
        if role is None or role in found or not told:
            return None
        found[role] = port
    return found


def _beside(port: Port) -> str | None:
    extents = port.shape or ()
    if len(extents) == 2 and (port.dtype in ("bool", *_FLOATS) or "int" in port.dtype):
        return MASK
    if len(extents) != 1:
        return None
    if "int" in port.dtype and (port.name == MODE_NAME or extents[0] == 1):
        return MODE
    return COUNT if "int" in port.dtype or port.dtype in _FLOATS else None


def sound_mismatches(file: AudioProcessor, roles: Roles, stages: Sequence[Stage]) -> Iterator[Problem]:
    """What a file makes, held against what the graphs of `stages` take."""
    features = roles[FEATURES]
    for what in (*_of_features(file, features), *_of_others(file, roles), *_too_long(file, features, stages)):
        yield Problem("processor-mismatch", file.text.place(()), "", what, "make the file and the graph agree")


def _of_features(file: AudioProcessor, port: Port) -> Iterator[str]:
    takes = f"the graph takes {port.name!r} as {spell_port(port)}"
    own = file.variants[0] if file.variants else None
    first = bands_first(file)
    bands, frames = (port.shape or (None, None, None))[1:] if first else (port.shape or (None, None, None))[:0:-1]
    mels = own.mels if own is not None else file.mels
    if own is not None and isinstance(frames, int) and not isinstance(bands, int):
        yield f"{file.name} puts bands {'before' if first else 'behind'} frames, and {takes}"
        return
    if bands != mels and (own is None or isinstance(bands, int)):
        yield f"{file.name} makes {mels} bands, and {takes}"
    if isinstance(frames, int) and frames != file.columns:
        made = f"{file.columns} frames" if file.columns else "as many frames as the sound has"
        yield f"{file.name} makes {made}, and {takes}"
    if port.dtype != "float32" and own is None:
        yield f"features are made as float32, and {takes}"


def bands_first(file: AudioProcessor) -> bool:
    """Whether its features are [sounds, bands, frames]."""
    return not file.variants or file.variants[0].bands_first


def _too_long(file: AudioProcessor, port: Port, stages: Sequence[Stage]) -> Iterator[str]:
    """Frames that a graph's own table of positions has no rows for, or too few for."""
    axis = 2 if bands_first(file) else 1
    for each in (each for stage in stages for each in stage.signature.limits):
        fits = each.least <= file.columns <= each.most if file.columns else not each.least
        if (each.input, each.axis) == (port.name, axis) and not fits:
            made = f"{file.columns} frames" if file.columns else "as many frames as the sound has"
            takes = f"{each.least} to {each.most}" if each.least else f"at most {each.most}"
            yield f"{file.name} makes {made}, and the graph's table of positions takes {takes} of {port.name!r}"


def _of_others(file: AudioProcessor, roles: Roles) -> Iterator[str]:
    for role, port in roles.items():
        takes = f"the graph takes {port.name!r} as {spell_port(port)}"
        if role in (MASK, COUNT) and not file.variants:
            yield f"{file.name} makes features and nothing that says how long a sound is, and {takes}"
        elif role == MASK and isinstance((port.shape or (None, None))[1], int):
            yield f"{file.name} makes as many frames as the sound has, and {takes}"


def is_told(notes: MediaNotes) -> bool:
    """Whether the package says anything of sound: a file, or a program."""
    said = notes.said[AUDIO]
    if said.config is not None or said.program is not None:
        return True
    texts = (file_text(notes.root, name) for name in NAMES[AUDIO])
    return any(text is not None and describes_audio(text) for text, _ in texts)
