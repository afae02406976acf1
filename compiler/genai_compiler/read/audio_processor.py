"""An audio processor file -> what it makes of a sound: features, and all numbers that decide them.

Two dialects, told apart by content: `feature_extraction.sequence` (operations of onnxruntime-extensions), and the flat
keys of a Hugging Face feature extractor.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from genai_compiler.problem import CompileError, Place, Problem, errors
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.audio_features import FEATURES, AudioFeatures
from genai_compiler.read.audio_operations import (
    AUDIO_OPERATIONS,
    FFT,
    HOP,
    RATE,
    AudioForm,
    audio_fault,
)
from genai_compiler.read.config_json import ConfigText, Json, parse_config
from genai_compiler.read.flat_keys import Members, members_of
from genai_compiler.read.framed_sound import framed_features, hf_sound
from genai_compiler.read.places import DocPath, as_written, format_path
from genai_compiler.read.sound_extractors import EXTRACTORS, class_features, class_sound, class_strides
from genai_compiler.read.suggest import did_you_mean

SEQUENCE: DocPath = ("feature_extraction", "sequence")
_SECONDS = 30
_FLAT = ("feature_size", "n_fft", "hop_length")
_FLAT_WITHOUT_EFFECT: Mapping[str, tuple[Json, ...]] = {
    "win_length": (FFT,),
    "mel_min_frequency": (0,),
    "mel_max_frequency": (RATE // 2,),
    "dither": (0,),
    "audio_downsample_rate": (1,),
    "audio_feat_stride": (1,),
}
"""Keys of other extractors -> the values with which they change nothing of these features."""


@dataclass(frozen=True)
class AudioProcessor:
    """A file, followed. rate: Hz of its samples. most: samples that count, 0: all. window: their fixed number, 0: none.

    frames: of the features, 0: as the samples make. zeros: silence lies beyond a clip's ends, else it is reflected.
    variants: instead of all that, features by stated numbers, one for each rate, in rising order. strides: how many of
    their frames, and of these, an entry of a prompt stands for; None: nobody says.
    """

    name: str
    text: ConfigText
    rate: int = RATE
    most: int = 0
    window: int = 0
    mels: int = 80
    frames: int = 0
    zeros: bool = False
    variants: tuple[AudioFeatures, ...] = ()
    strides: tuple[int, ...] | None = None

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
    found = reading.sequence() if _listed(text.root) is not None else reading.flat_keys()
    if errors(reading.problems):
        raise CompileError([*text.problems, *reading.problems])
    return found


def laid_out(file: AudioProcessor, shape: Sequence[object] | None) -> AudioProcessor:
    """The file with bands and frames in the order in which a graph takes them, where it says which axis has the bands.

    Flat keys say what features are, and nothing of their axes; operations give theirs in the order that they have.
    shape: of the graph's input, [sounds, ., .].
    """
    own = file.variants[0] if file.variants else None
    if own is None or _listed(file.text.root) is not None or shape is None or len(shape) != 3:
        return file
    found = [axis for axis in (1, 2) if shape[axis] == own.mels]
    if len(found) != 1:
        return file
    return replace(file, variants=tuple(replace(each, bands_first=found == [1]) for each in file.variants))


def describes_audio(text: ConfigText) -> bool:
    """Whether a file says how sound is processed, in either dialect."""
    kinds = (class_sound, hf_sound, plain_sound)
    return _listed(text.root) is not None or any(each(text.root) is not None for each in kinds)


def plain_sound(root: Json) -> tuple[Members, DocPath] | None:
    """(the members of a feature extractor of log-mel features, where they stand), None where there is none."""
    return members_of(root, lambda members: set(_FLAT) <= {*members})


def _listed(root: Json) -> list[Json] | None:
    extraction = root.get("feature_extraction") if isinstance(root, dict) else None
    sequence = extraction.get("sequence") if isinstance(extraction, dict) else None
    return sequence if isinstance(sequence, list) else None


_SPECTRUM = ("decode", "spectrum", "bands")
_CHAINS = (_SPECTRUM, *(("decode", each) for each in FEATURES), ("decode", "emphasised", "even"))
"""What operations may follow each other, by what they do."""
_NEEDS_RATE = "natural"
"""Features that take the rate of their samples as well, which only one of the decoders gives."""
_WITH_RATE = "AudioDecoderEx"
_STRIDES: Mapping[str, tuple[int, ...]] = {"htk": (2, 2), "raw": ()}
"""Features -> how many frames, and how many of these, an entry of a prompt stands for, where convention says so."""
_MOST_WEIGHTS = 1 << 24
"""Bands times samples of a transform, of which half are places of a spectrum."""
Found = tuple[str, str, Mapping[str, Any], DocPath]
"""An operation of a file: its name, what it does, its attributes, its place."""


@dataclass
class _Reading:
    file: AudioProcessor
    problems: list[Problem] = field(default_factory=list[Problem])

    def refuse(self, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(self.file.problem(path, what, help))

    def sequence(self) -> AudioProcessor:
        """The operations of a sequence: decode, and features in one or two steps."""
        found = list(self._operations(_listed(self.file.text.root) or []))
        does = tuple(each[1] for each in found)
        if not self.problems and does not in _CHAINS:
            names = ", ".join(each[0] for each in found) or "nothing"
            self.refuse(SEQUENCE, f"the sequence is {names}", f"offered are {'; '.join(map(_spelled, _CHAINS))}")
        if self.problems:
            return self.file
        return self._log_mel(found) if does == _SPECTRUM else self._stated(found)

    def _log_mel(self, found: list[Found]) -> AudioProcessor:
        decode, mel = found[0][2], found[2][2]
        for name in ("target_sample_rate", "target_sample_rates"):
            if decode[name] not in (RATE, [RATE], []):
                self.refuse((*found[0][3], "attrs", name), f"{name!r} is {as_written(decode[name])}; {RATE} is offered")
        frames = 0 if mel["no_padding"] else mel["chunk_size"] * RATE // HOP
        return replace(self.file, most=decode["max_samples"], mels=mel["n_mel"], frames=frames, zeros=True)

    def _stated(self, found: list[Found]) -> AudioProcessor:
        """Features whose every number the file states."""
        (decoder, _, decode, _), (name, does, attributes, path) = found[:2]
        rates = tuple(sorted(decode["target_sample_rates"])) or (decode["target_sample_rate"],)

        def refuse(attribute: str, what: str) -> None:
            place = (*path, "attrs", attribute) if attribute else path
            self.refuse(place, f"{attribute or name!r} can't be followed: {what}" if attribute else f"{name}: {what}")

        if does == _NEEDS_RATE and decoder != _WITH_RATE:
            refuse("", f"it takes the rate of its samples, which {decoder} does not give: decode with {_WITH_RATE}")
        variants = tuple(FEATURES[does](attributes, rates, refuse))
        if _too_wide(variants):
            refuse("", f"its bands over its spectrum are more than {_MOST_WEIGHTS} weights")
        strides = (attributes["audio_compression_rate"],) if does == _NEEDS_RATE else _STRIDES.get(does)
        if len(found) > 2:
            even = found[2][2]
            if not even["feature_first"]:
                where = (*found[2][3], "attrs", "feature_first")
                self.refuse(where, f"the features of {name} have their bands first, and 'feature_first' is 0")
            variants = tuple(replace(each, spread=float(even["eps"])) for each in variants)
        return replace(self.file, most=decode["max_samples"], variants=variants, strides=strides)

    def _operations(self, listed: list[Json]) -> Iterator[Found]:
        for at, each in enumerate(listed):
            path: DocPath = (*SEQUENCE, at, "operation")
            operation = each.get("operation") if isinstance(each, dict) else None
            if not isinstance(operation, dict):
                self.refuse((*SEQUENCE, at), "an entry is an object with the member 'operation'")
                continue
            kind = operation.get("type")
            if not isinstance(kind, str) or kind not in AUDIO_OPERATIONS:
                help = did_you_mean(str(kind), AUDIO_OPERATIONS) or f"offered are {', '.join(AUDIO_OPERATIONS)}"
                self.refuse((*path, "type"), f"the audio operation {as_written(kind)} is not offered here", help)
                continue
            form = AUDIO_OPERATIONS[kind]
            yield kind, form.does, self._attributes(kind, form, operation.get("attrs"), (*path, "attrs")), path

    def _attributes(self, kind: str, form: AudioForm, stated: Json, path: DocPath) -> Mapping[str, Any]:
        found = dict(form.defaults)
        if stated is not None and not isinstance(stated, dict):
            self.refuse(path, f"the attributes of {kind} are no object")
        for name, value in stated.items() if isinstance(stated, dict) else ():
            if name not in found:
                self.refuse((*path, name), f"{kind} has no attribute {name!r}", did_you_mean(name, found))
            elif fault := audio_fault(form, name, value):
                self.refuse((*path, name), f"{name!r} of {kind} {fault}")
            else:
                found[name] = value
        return found

    def flat_keys(self) -> AudioProcessor:
        """The keys of an extractor: of a known class, with frames that are stated, or those of plain log-mel."""
        root = self.file.text.root
        for find, follow in ((class_sound, self._of_class), (hf_sound, self._framed), (plain_sound, self._flat)):
            found = find(root)
            if found is not None:
                return follow(*found)
        what = "the file describes no audio processor: it has neither feature_extraction.sequence nor feature_size"
        self.refuse((), what, "name the file that does")
        return self.file

    def _of_class(self, root: Members, at: DocPath) -> AudioProcessor:
        """The flat keys of an extractor whose class says the rest; the whole clip counts."""
        refuse = self._refusing(at)
        variants = tuple(class_features(root, refuse))
        if _too_wide(variants):
            refuse("n_fft", f"bands over its spectrum are more than {_MOST_WEIGHTS} weights")
        strides = None if self.problems else class_strides(root)
        return replace(self.file, variants=variants, strides=strides)

    def _framed(self, root: Members, at: DocPath) -> AudioProcessor:
        """The flat keys of an extractor whose frames are stated; the whole clip counts."""
        variants = tuple(framed_features(root, self._refusing(at)))
        return replace(self.file, variants=variants, strides=_STRIDES["htk"])

    def _refusing(self, at: DocPath) -> Callable[[str, str], None]:
        return lambda key, what: self.refuse((*at, key), f"{key} can't be followed: {what}")

    def _flat(self, root: Members, at: DocPath) -> AudioProcessor:
        """The flat keys of an extractor: clips reflected at their ends, filled up with silence to a fixed length."""
        if root.get("preemphasis"):
            what = (
                f"preemphasis is {as_written(root['preemphasis'])}: these keys do not say which bands, which logarithm "
            )
            what += (
                "and what around the clip go with it; write the file as feature_extraction.sequence, whose operations "
            )
            what += f"({_spelled(('emphasised', 'natural'))}) have them all, or with the extractor's class as "
            self.refuse((*at, "preemphasis"), f"{what}feature_extractor_type, one of {', '.join(EXTRACTORS)}")
            return self.file
        for key, plain in _FLAT_WITHOUT_EFFECT.items():
            if root.get(key) not in (None, *plain):
                offered = f"features with {as_written(plain[-1])} are offered"
                self.refuse((*at, key), f"{key} is {as_written(root[key])}; {offered}")
        for key, wanted in (("n_fft", FFT), ("hop_length", HOP), ("sampling_rate", RATE), ("padding_value", 0)):
            if root.get(key, wanted) != wanted:
                self.refuse((*at, key), f"{key} is {as_written(root[key])}; features with {wanted} are offered")
        mels, seconds = root.get("feature_size"), root.get("chunk_length", _SECONDS)
        for key, value, most in (("feature_size", mels, 512), ("chunk_length", seconds, 3600)):
            if not _whole(value) or not 0 < int(str(value)) <= most:
                self.refuse((*at, key), f"{key} is {as_written(value)}: a whole number from 1 to {most}")
        if self.problems:
            return self.file
        return replace(self.file, mels=int(str(mels)), window=int(str(seconds)) * RATE)


def _spelled(chain: tuple[str, ...]) -> str:
    """A chain in the format's own names, the first one of each kind."""
    names = {form.does: name for name, form in reversed(tuple(AUDIO_OPERATIONS.items()))}
    return ", ".join(names[each] for each in chain)


def _too_wide(variants: Iterable[AudioFeatures]) -> bool:
    return any(each.mels * max(each.fft, each.bank[0]) > _MOST_WEIGHTS for each in variants)


def _whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
