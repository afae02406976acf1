"""An audio processor file -> what it makes of a sound: log-mel features, and all numbers that decide them.

Two dialects, told apart by content: `feature_extraction.sequence` (operations of onnxruntime-extensions), and the flat
keys of a Hugging Face feature extractor.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import pi, sin
from pathlib import Path
from typing import Any

from genai_compiler.problem import CompileError, Place, Problem, errors
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.config_json import ConfigText, Json, parse_config
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.suggest import did_you_mean

SEQUENCE: DocPath = ("feature_extraction", "sequence")
RATE, FFT, HOP = 16_000, 400, 160
_SECONDS = 30
_FLAT = ("feature_size", "n_fft", "hop_length")


@dataclass(frozen=True)
class AudioProcessor:
    """A file, followed. rate: Hz of its samples. most: samples that count, 0: all. window: their fixed number, 0: none.

    frames: of the features, 0: as the samples make. zeros: silence lies beyond a clip's ends, else it is reflected.
    """

    name: str
    text: ConfigText
    rate: int = RATE
    most: int = 0
    window: int = 0
    mels: int = 80
    frames: int = 0
    zeros: bool = False

    def problem(self, path: DocPath, what: str, help: str = "") -> Problem:
        """A problem of the file, `bad-processor`."""
        return Problem("bad-processor", self.text.place(path), format_path(path), what, help)

    @property
    def columns(self) -> int:
        """Frames of its features, 0 where they follow from the sound."""
        return self.frames or self.window // HOP


def read_audio_processor(root: Path, name: str) -> AudioProcessor:
    """The file `name` of the package at `root`. Raises CompileError with every fault (bad-processor, missing-file)."""
    try:
        file = find_artifact(root, name)
    except ArtifactFault as fault:
        raise CompileError([fault.problem(Place(name), "")]) from fault
    text = parse_config(file.file.read_bytes(), file.name)
    reading = _Reading(AudioProcessor(file.name, text))
    found = reading.flat() if is_flat(text.root) else reading.sequence()
    if errors(reading.problems):
        raise CompileError([*text.problems, *reading.problems])
    return found


def describes_audio(text: ConfigText) -> bool:
    """Whether a file says how sound is processed, in either dialect."""
    return _listed(text.root) is not None or is_flat(text.root)


def is_flat(root: Json) -> bool:
    """Whether a file's members are those of a feature extractor of log-mel features."""
    return isinstance(root, dict) and all(each in root for each in _FLAT)


def _listed(root: Json) -> list[Json] | None:
    extraction = root.get("feature_extraction") if isinstance(root, dict) else None
    sequence = extraction.get("sequence") if isinstance(extraction, dict) else None
    return sequence if isinstance(sequence, list) else None


_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "AudioDecoder": {
        "target_sample_rate": RATE,
        "target_sample_rates": [],
        "stereo_to_mono": 1,
        "max_samples": _SECONDS * RATE,
    },
    "STFTNorm": {
        "n_fft": FFT,
        "frame_length": FFT,
        "hop_length": HOP,
        "win_fn": "hann",
        "hann_win": [],
        "_comment": "",
    },
    "LogMelSpectrum": {
        "chunk_size": _SECONDS,
        "hop_length": HOP,
        "n_fft": FFT,
        "n_mel": 80,
        "feature_first": 1,
        "no_padding": 0,
    },
}
"""Operation -> attribute -> default. They come in this order."""
_FREE = frozenset({"max_samples", "chunk_size", "n_mel", "hann_win", "_comment", "no_padding"})
"""Attributes that need not have their default: the others say what is carried out one way only."""


@dataclass
class _Reading:
    file: AudioProcessor
    problems: list[Problem] = field(default_factory=list[Problem])

    def refuse(self, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(self.file.problem(path, what, help))

    def sequence(self) -> AudioProcessor:
        """The operations of a sequence: decode, spectrum, mel bands."""
        listed = _listed(self.file.text.root)
        if listed is None:
            what = "the file describes no audio processor: it has neither feature_extraction.sequence nor feature_size"
            self.refuse((), what, "name the file that does")
            return self.file
        found = list(self._operations(listed))
        if not self.problems and [kind for kind, _ in found] != list(_DEFAULTS):
            kinds = ", ".join(kind for kind, _ in found) or "nothing"
            self.refuse(SEQUENCE, f"the sequence is {kinds}", f"offered is {', '.join(_DEFAULTS)}, in this order")
        of = dict(found)
        if self.problems:
            return self.file
        mel = of["LogMelSpectrum"]
        frames = 0 if mel["no_padding"] else mel["chunk_size"] * RATE // HOP
        most = of["AudioDecoder"]["max_samples"]
        return replace(self.file, most=most, mels=mel["n_mel"], frames=frames, zeros=True)

    def _operations(self, listed: list[Json]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for at, each in enumerate(listed):
            path: DocPath = (*SEQUENCE, at, "operation")
            operation = each.get("operation") if isinstance(each, dict) else None
            if not isinstance(operation, dict):
                self.refuse((*SEQUENCE, at), "an entry is an object with the member 'operation'")
                continue
            kind = operation.get("type")
            kind = "AudioDecoder" if kind == "AudioDecoderEx" else kind
            if not isinstance(kind, str) or kind not in _DEFAULTS:
                help = did_you_mean(str(kind), _DEFAULTS) or f"offered are {', '.join(_DEFAULTS)}"
                self.refuse((*path, "type"), f"the audio operation {kind!r} is not offered here", help)
                continue
            yield kind, self._attributes(kind, operation.get("attrs"), (*path, "attrs"))

    def _attributes(self, kind: str, stated: Json, path: DocPath) -> Mapping[str, Any]:
        found = dict(_DEFAULTS[kind])
        if stated is not None and not isinstance(stated, dict):
            self.refuse(path, f"the attributes of {kind} are no object")
        for name, value in stated.items() if isinstance(stated, dict) else ():
            if name not in found:
                self.refuse((*path, name), f"{kind} has no attribute {name!r}", did_you_mean(name, found))
            elif fault := _fault(name, value, found[name]):
                self.refuse((*path, name), f"{name!r} of {kind} {fault}")
            else:
                found[name] = value
        return found

    def flat(self) -> AudioProcessor:
        """The flat keys of an extractor: clips reflected at their ends, filled up with silence to a fixed length."""
        root = self.file.text.root
        assert isinstance(root, dict)
        for key, wanted in (("n_fft", FFT), ("hop_length", HOP), ("sampling_rate", RATE), ("padding_value", 0)):
            if root.get(key, wanted) != wanted:
                self.refuse((key,), f"{key} is {root[key]!r}; features with {wanted} are offered")
        mels, seconds = root.get("feature_size"), root.get("chunk_length", _SECONDS)
        for key, value, most in (("feature_size", mels, 512), ("chunk_length", seconds, 3600)):
            if not _whole(value) or not 0 < int(str(value)) <= most:
                self.refuse((key,), f"{key} is {value!r}: a whole number from 1 to {most}")
        if self.problems:
            return self.file
        return replace(self.file, mels=int(str(mels)), window=int(str(seconds)) * RATE)


def _fault(name: str, value: Json, default: Any) -> str:
    """What is wrong with an attribute's value, "" for nothing."""
    if name == "_comment":
        return ""
    if name == "hann_win":
        return "" if _is_hann(value) else f"is another window than the periodic Hann window of {FFT}"
    if name in ("target_sample_rates", "win_fn"):
        return "" if value in (default, [RATE]) else f"is {value!r}; {default!r} is offered"
    if not _whole(value):
        return f"is {value!r}: a whole number"
    number = int(str(value))
    if name not in _FREE:
        return "" if number == default else f"is {number}; {default} is offered"
    least = 0 if name in ("max_samples", "no_padding") else 1
    most = {"n_mel": 512, "chunk_size": 3600, "no_padding": 1}.get(name, 64 << 20)
    return "" if least <= number <= most else f"is {number}: from {least} to {most}"


def _is_hann(value: Json) -> bool:
    """Whether the numbers of a window are those that are used without them."""
    if not isinstance(value, list) or not all(isinstance(each, int | float) for each in value):
        return False
    return not value or (
        len(value) == FFT
        and all(abs(float(str(each)) - sin(pi * at / FFT) ** 2) < 1e-4 for at, each in enumerate(value))
    )


def _whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
