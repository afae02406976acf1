"""Sound files before a stage that takes log-mel features: by a processor file, by the document's own program, or, where
neither is there and the graph leaves no choice of lengths, by the features that such graphs are trained on.
"""

from collections.abc import Iterator, Sequence

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.file_fronts import FileFront
from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.lower.media_notes import AUDIO, MediaNotes, Said, processor_file
from genai_compiler.lower.stages import Stage
from genai_compiler.problem import CompileError, Problem, Severity, errors
from genai_compiler.read.audio_processor import HOP, RATE, AudioProcessor, describes_audio, read_audio_processor
from genai_compiler.read.signature import Port

PROCESSOR, PROGRAM = "genai-compile.audio-processor", "onnx-genai.audio-preprocess"
_FEATURES = "audio_features"
_BANDS = (80, 128)
_STRIDE = 2
"""Frames of features that one place of an encoder's output stands for, where an export fixes its places."""


def sound_port(stages: Sequence[Stage], said: Said) -> Port | None:
    """The only input that a caller gives, float [rows, bands, frames]; None where there is another.

    Where nothing is said of sound, as many bands as features of sound have tell it.
    """
    asked = [each.port for stage in stages for each in stage.inputs if each.asked]
    if len(asked) != 1 or asked[0].dtype not in ("float32", "float16", "bfloat16") or rank_of(asked[0]) != 3:
        return None
    bands = (asked[0].shape or (None, None))[1]
    known = said.config is not None or said.program is not None
    return asked[0] if bands in _BANDS or (known and isinstance(bands, int)) else None


def sound_front(notes: MediaNotes, stage: Stage, port: Port) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """The front of a stage, None where nothing says how its features are made; and problems."""
    said = notes.said[AUDIO]
    if said.program is not None:
        return _of_program(stage, port, said), ()
    name, problems = processor_file(notes.root, AUDIO, said, describes_audio)
    if name is None:
        assumed = _assumed(stage, port) if not errors(problems) else None
        if assumed is None:
            return None, problems
        what = (
            f"no processor file says how sound becomes {port.name!r}: log-mel features of {assumed['mels']} bands and "
            f"{assumed['window'] // RATE} s at {RATE} Hz are assumed, as the graph's extents have them"
        )
        help = "add the model's own audio_processor_config.json or preprocessor_config.json"
        doubt = Problem("assumed-features", *said.spot, what, help, Severity.WARNING)
        return _declared(stage, port, PROGRAM, program=_program(port, **assumed)), (doubt,)
    try:
        file = read_audio_processor(notes.root, name)
    except CompileError as error:
        return None, (*problems, *error.problems)
    found = (*problems, *_mismatches(file, port), *_too_long(file, stage, port))
    if errors(found):
        return None, found
    return _declared(stage, port, PROCESSOR, artifact=file.name), found


def _mismatches(file: AudioProcessor, port: Port) -> Iterator[Problem]:
    takes = f"the graph takes {port.name!r} as {spell_port(port)}"
    _, bands, frames = port.shape or (None, None, None)
    where = file.text.place(())
    help = "make the file and the graph agree"
    if bands != file.mels:
        yield Problem("processor-mismatch", where, "", f"{file.name} makes {file.mels} bands, and {takes}", help)
    if isinstance(frames, int) and frames != file.columns:
        made = f"{file.columns} frames" if file.columns else "as many frames as the sound has"
        yield Problem("processor-mismatch", where, "", f"{file.name} makes {made}, and {takes}", help)
    if port.dtype != "float32":
        yield Problem("processor-mismatch", where, "", f"features are made as float32, and {takes}", "export float32")


def _too_long(file: AudioProcessor, stage: Stage, port: Port) -> Iterator[Problem]:
    """Frames that the graph's own table of positions has no rows for, or too few for."""
    for each in stage.signature.limits:
        fits = each.least <= file.columns <= each.most if file.columns else not each.least
        if (each.input, each.axis) == (port.name, 2) and not fits:
            made = f"{file.columns} frames" if file.columns else "as many frames as the sound has"
            takes = f"{each.least} to {each.most}" if each.least else f"at most {each.most}"
            what = f"{file.name} makes {made}, and the graph's table of positions takes {takes} of {port.name!r}"
            yield Problem("processor-mismatch", file.text.place(()), "", what, "make the file and the graph agree")


def _assumed(stage: Stage, port: Port) -> dict[str, int] | None:
    """The bands and the samples of a clip, where the graph fixes both: bands of its input, places of its output."""
    bands = (port.shape or (None, None))[1]
    places = [(each.shape or (None, None))[1] for each in stage.signature.outputs if rank_of(each) == 3]
    frames = (port.shape or (None, None, None))[2]
    fixed = places[0] if len(places) == 1 else None
    count = frames if isinstance(frames, int) else _STRIDE * fixed if isinstance(fixed, int) else 0
    if bands not in _BANDS or not count or count * HOP % RATE or port.dtype != "float32":
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
    stated = {"source": source, "name": f"audio.{_FEATURES}", "content": _FEATURES, **more}
    return {**stated, "dtype": contract["dtype"], "contract": contract}


def _of_program(stage: Stage, port: Port, said: Said) -> FileFront:
    """The document's own program, whose outputs are called `model.input`; it is checked where programs are."""
    stated = [each for each in (said.program or {}).get("outputs") or () if isinstance(each, dict)]
    source = next((str(each.get("source", _FEATURES)) for each in stated), _FEATURES)
    transforms = [dict(each) for each in (said.program or {}).get("transforms") or () if isinstance(each, dict)]
    return _declared(stage, port, PROGRAM, program={"transforms": transforms, "outputs": [_output(source, port, {})]})


def _declared(stage: Stage, port: Port, abi: str, artifact: str = "", program: Data | None = None) -> FileFront:
    implementation: Data = {"kind": "adapter", "abi": abi, "version": "1"}
    ports = {"inputs": {"encoded": {"dtype": "uint8", "rank": 1, "shape": ["audio_bytes"]}}, "outputs": {
        _FEATURES: _contract(port)}}  # fmt: skip
    return FileFront(
        kind=AUDIO,
        component="audio_processor",
        declared={
            "implementation": implementation | ({"artifact": artifact} if artifact else {}),
            "ports": ports,
        },
        values={_FEATURES: f"audio.{_FEATURES}"},
        feeds={port.name: f"audio.{_FEATURES}"},
        program=program,
    )


def _contract(port: Port) -> Data:
    own = f"audio.{_FEATURES}"
    shape = [each if isinstance(each, int) else f"{own}.{axis}" for axis, each in enumerate(port.shape or ())]
    return {"dtype": port.dtype, "rank": len(shape), "shape": shape}
