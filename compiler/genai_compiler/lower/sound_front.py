"""Sound files before a stage that takes log-mel features: by a processor file, by the document's own program, or, where
neither is there and the graph leaves no choice of lengths, by the features that such graphs are trained on.
"""

from collections.abc import Sequence
from dataclasses import replace

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.file_fronts import FileFront
from genai_compiler.lower.matching import rank_of
from genai_compiler.lower.media_notes import AUDIO, MediaNotes, Said, processor_file
from genai_compiler.lower.prompt_places import SOUND_PLACES, entry_of, fixed_entries, place_parameters, unknown_places
from genai_compiler.lower.sound_entries import FRAMES, MORE, Form, entries_by_shape
from genai_compiler.lower.sound_roles import BANDS, COUNT, FEATURES, MODE, Roles, bands_first, sound_mismatches
from genai_compiler.lower.stages import Medium, Stage
from genai_compiler.problem import CompileError, Problem, Severity, errors
from genai_compiler.read.audio_operations import HOP, RATE
from genai_compiler.read.audio_processor import AudioProcessor, describes_audio, laid_out, read_audio_processor
from genai_compiler.read.signature import Port
from genai_compiler.read.special_tokens import SpecialTokens

PROCESSOR, PROGRAM = "genai-compile.audio-processor", "onnx-genai.audio-preprocess"
_STRIDE = 2
"""Frames of features that one place of an encoder's output stands for, where an export fixes its places."""


def sound_front(
    notes: MediaNotes, stage: Stage, roles: Roles, tokens: SpecialTokens, medium: Medium | None = None
) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """The front of a stage, None where nothing says how its features are made; and problems.

    medium: where what is made of a sound are entries of a prompt.
    """
    said, port = notes.said[AUDIO], roles[FEATURES]
    if said.program is not None:
        if len(roles) > 1:
            return None, (_alone(said, roles),)
        front = _of_program(port, said)
        return (front, ()) if medium is None else _in_prompts(front, notes, _programmed(said), medium, roles, tokens)
    name, problems = processor_file(notes.root, AUDIO, said, describes_audio)
    if name is None:
        assumed = _assumed(stage, port) if not errors(problems) and len(roles) == 1 else None
        if assumed is None:
            return None, problems
        what = (
            f"no processor file says how sound becomes {port.name!r}: log-mel features of {assumed['mels']} bands and "
            f"{assumed['window'] // RATE} s at {RATE} Hz are assumed, as the graph's extents have them"
        )
        help = "add the model's own audio_processor_config.json or preprocessor_config.json"
        doubt = Problem("assumed-features", *said.spot, what, help, Severity.WARNING)
        front = _declared(port, PROGRAM, program=_program(port, **assumed))
        if medium is None:
            return front, (doubt,)
        form = Form(assumed["mels"], assumed["window"] // HOP)
        front, found = _in_prompts(front, notes, form, medium, roles, tokens)
        return front, (doubt, *found)
    try:
        file = laid_out(read_audio_processor(notes.root, name), port.shape)
    except CompileError as error:
        return None, (*problems, *error.problems)
    found = (*problems, *sound_mismatches(file, roles, [stage]))
    if errors(found):
        return None, found
    front = _of_file(file, roles, medium is not None)
    if medium is None:
        return front, found
    own = file.variants[0] if file.variants else None
    form = Form(own.mels if own is not None else file.mels, file.columns, bands_first(file), own is not None)
    front, unknown = _in_prompts(front, notes, form, medium, roles, tokens, file.strides)
    return front, (*found, *unknown)


def sound_fits(notes: MediaNotes, roles: Roles, stages: Sequence[Stage]) -> bool:
    """Whether there is a processor file that makes what the inputs take."""
    name, _ = processor_file(notes.root, AUDIO, notes.said[AUDIO], describes_audio)
    try:
        if name is None:
            return False
        file = laid_out(read_audio_processor(notes.root, name), roles[FEATURES].shape)
        return not any(sound_mismatches(file, roles, stages))
    except CompileError:
        return False


_LACKING = (
    (("entry_token",), "which token stands for a sound's entry in a prompt"),
    (("entries", "of_sound"), "how many entries a sound has"),
)
_WAY_OUT = "name the token (audio_token_id, tokens.audio_token), and state how many frames have an entry together "
_WAY_OUT += "(model.subsampling_factor)"


def _alone(said: Said, roles: Roles) -> Problem:
    others = ", ".join(repr(port.name) for role, port in roles.items() if role != FEATURES)
    what = f"the program makes features, and beside them the graph takes {others}"
    return Problem("processor-mismatch", *said.spot, what, "describe the sound by a processor file")


def _in_prompts(
    front: FileFront,
    notes: MediaNotes,
    form: Form,
    medium: Medium,
    roles: Roles,
    tokens: SpecialTokens,
    strides: tuple[int, ...] | None = None,
) -> tuple[FileFront, tuple[Problem, ...]]:
    """The front with what a prompt says of a sound, which then goes in by itself: which token stands for an entry,
    where sounds go, how many entries one has; and warnings where that is not known.

    The number is the graph's where that is fixed, the file's (strides), what is stated beside it, else that of the
    graph's shapes.
    """
    said = notes.said[AUDIO]
    token = entry_of(medium, said, tokens, SOUND_PLACES)
    found = place_parameters(token, tokens, said.plain, SOUND_PLACES) if token is not None else {}
    if count := said.count or fixed_entries(medium):
        found |= {"entries": count}
    elif strides is not None:
        found |= {"of_sound": True}
    elif said.frames is not None and form.counted:
        found |= {"of_sound": True, FRAMES: said.frames, MORE: said.frames - 1}
    else:
        found |= entries_by_shape(notes.root, form, medium, roles)
    abi = front.declared["implementation"]["abi"]
    contract = {"contract": {"id": abi, "version": "1", "parameters": found}} if found else {}
    unknown = unknown_places(found, said.spot, _LACKING, _WAY_OUT)
    made = replace(front, declared={**front.declared, **contract}, each=True, axis=form.axis, token=token)
    return made, tuple(unknown)


def _programmed(said: Said) -> Form:
    """The features of a document's own program."""
    steps = [each for each in (said.program or {}).get("transforms") or () if isinstance(each, dict)]
    windows = [each.get("target_length") for each in steps if each.get("op") in ("pad", "trim")]
    bands = [each.get("num_mel_bins", BANDS[0]) for each in steps if each.get("op") == "log_mel"]
    window, mels = ([each for each in found if type(each) is int] for found in (windows, bands))
    return Form(mels[0] if mels else BANDS[0], window[-1] // HOP if window else 0)


def _of_file(file: AudioProcessor, roles: Roles, apart: bool) -> FileFront:
    """Ports of the adapter are called as in plan.processor_files; how many are entries where that is known.

    apart: each sound goes in by itself.
    """
    ports = {COUNT: "entries" if file.strides is not None else "valid_frames", MODE: ""}
    taken = {ports.get(role, role): port for role, port in roles.items()}
    contracts = {name: _contract(port, name) for name, port in taken.items() if name}
    sizes = "valid_frames" if apart and file.variants else ""
    if sizes:
        contracts.setdefault(sizes, {"dtype": "int64", "rank": 1, "shape": [f"audio.{sizes}.0"]})
    implementation: Data = {"kind": "adapter", "abi": PROCESSOR, "version": "1", "artifact": file.name}
    inputs = {"encoded": {"dtype": "uint8", "rank": 1, "shape": ["audio_bytes"]}}
    declared: Data = {"implementation": implementation, "ports": {"inputs": inputs, "outputs": contracts}}
    return FileFront(
        kind=AUDIO,
        component="audio_processor",
        declared=declared,
        values={name: f"audio.{name}" for name in contracts},
        feeds={port.name: f"audio.{name or MODE}" for name, port in taken.items()},
        mode=f"audio.{MODE}" if MODE in roles else "",
        sizes=sizes,
        blank=file.variants[0].blank if sizes else 0,
    )


def _assumed(stage: Stage, port: Port) -> dict[str, int] | None:
    """The bands and the samples of a clip, where the graph fixes both: bands of its input, places of its output."""
    bands = (port.shape or (None, None))[1]
    places = [(each.shape or (None, None))[1] for each in stage.signature.outputs if rank_of(each) == 3]
    frames = (port.shape or (None, None, None))[2]
    fixed = places[0] if len(places) == 1 else None
    count = frames if isinstance(frames, int) else _STRIDE * fixed if isinstance(fixed, int) else 0
    if bands not in BANDS or not count or count * HOP % RATE or port.dtype != "float32":
        return None
    return {"mels": int(str(bands)), "window": count * HOP}


def _program(port: Port, mels: int, window: int) -> Data:
    """The standard's program of such features."""
    transforms: list[Data] = [
        {"op": "decode"},
        {"op": "resample", "sample_rate": RATE},
        {"op": "trim", "target_length": window},
        {"op": "log_mel", "num_mel_bins": mels, "outputs": ["features"]},
    ]
    return {"transforms": transforms, "outputs": [_output("features", port, {})]}


def _output(source: str, port: Port, more: Data) -> Data:
    contract = _contract(port)
    stated = {"source": source, "name": f"audio.{FEATURES}", "content": FEATURES, **more}
    return {**stated, "dtype": contract["dtype"], "contract": contract}


def _of_program(port: Port, said: Said) -> FileFront:
    """The document's own program, whose outputs are called `model.input`; it is checked where programs are."""
    stated = [each for each in (said.program or {}).get("outputs") or () if isinstance(each, dict)]
    source = next((str(each.get("source", FEATURES)) for each in stated), FEATURES)
    transforms = [dict(each) for each in (said.program or {}).get("transforms") or () if isinstance(each, dict)]
    return _declared(port, PROGRAM, program={"transforms": transforms, "outputs": [_output(source, port, {})]})


def _declared(port: Port, abi: str, program: Data) -> FileFront:
    implementation: Data = {"kind": "adapter", "abi": abi, "version": "1"}
    ports = {"inputs": {"encoded": {"dtype": "uint8", "rank": 1, "shape": ["audio_bytes"]}}, "outputs": {
        FEATURES: _contract(port)}}  # fmt: skip
    return FileFront(
        kind=AUDIO,
        component="audio_processor",
        declared={
            "implementation": implementation,
            "ports": ports,
        },
        values={FEATURES: f"audio.{FEATURES}"},
        feeds={port.name: f"audio.{FEATURES}"},
        program=program,
    )


def _contract(port: Port, name: str = FEATURES) -> Data:
    own = f"audio.{name}"
    shape = [each if isinstance(each, int) else f"{own}.{axis}" for axis, each in enumerate(port.shape or ())]
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape}
