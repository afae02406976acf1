"""Audio programs: everything of the standard's 5.7 that the document alone decides (V068), and what remains to be run.

The reference runtime runs a program as one chain: decode, change samples, fit them to a window, make features. The same
is demanded here, so that no two readings of a program exist; what else is legal metadata is refused with its place.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules
from genai_compiler.plan.dtypes import canonical
from genai_compiler.read.document import AudioOutput, AudioProgram, AudioTransform
from genai_compiler.read.suggest import did_you_mean
from genai_compiler.read.vocabularies import AUDIO_OPS

RULES: Rules = {
    "V068": Rule("audio-program", "An audio program keeps to the operations and values that a runtime carries out."),
}

PROGRAM: Path = ("preprocessing", "audio")
RATE, FFT, HOP = 16_000, 400, 160
MELS = (80, 128)
MOST_SAMPLES = 64 << 20
"""What the runtime makes at most of one file (standard, 5.6 and 5.7)."""

DEFAULT_EPSILON = 1e-7
"""Of zero_mean_unit_variance, where the document gives none: that of the feature extractors that have this step."""

_ANY: frozenset[object] = frozenset()
_ONE, _SILENCE = frozenset({1}), frozenset({0.0})
_FEATURES: Mapping[str, frozenset[object]] = {
    "sample_rate": frozenset({RATE}),
    "n_fft": frozenset({FFT}),
    "win_length": frozenset({FFT}),
    "hop_length": frozenset({HOP}),
    "window": frozenset({"hann"}),
    "channels": _ONE,
}
_WINDOW = {
    "target_length": _ANY,
    "pad_value": _SILENCE,
    "mode": frozenset({"fixed_window", "constant", "silence"}),
}
_NORMALIZE_MODE = frozenset({"whisper_log_mel"})
FIELDS: Mapping[str, Mapping[str, frozenset[object]]] = {
    "decode": {"channels": _ONE, "sample_rate": _ANY},
    "resample": {"channels": _ONE, "sample_rate": _ANY, "mode": frozenset({"sinc", "windowed_sinc"})},
    "downmix": {"channels": _ONE, "mode": frozenset({"mean", "average"})},
    "rescale": {"scale": _ANY},
    "zero_mean_unit_variance": {"epsilon": _ANY},
    "pad": _WINDOW,
    "trim": _WINDOW,
    "spectrogram": _FEATURES,
    "log_mel": {
        **_FEATURES,
        "num_mel_bins": frozenset(MELS),
        "mel_scale": frozenset({"slaney"}),
        "epsilon": frozenset({1e-10}),
        "mode": _NORMALIZE_MODE,
    },
    "normalize": {"mode": _NORMALIZE_MODE},
    "emit_valid_frames": {"hop_length": frozenset({HOP})},
    "emit_valid_samples": {},
}
"""Operation -> the fields that it takes, and the values that are carried out (none listed: any)."""

_NEEDS = {"resample": "sample_rate", "rescale": "scale", "pad": "target_length", "trim": "target_length",
          "log_mel": "num_mel_bins"}  # fmt: skip
_OWN = frozenset({"op", "inputs", "outputs"})
_DTYPES = {"audio_features": "float32", "waveform": "float32", "valid_frames": "int64", "valid_samples": "int64"}
"""Content -> element type of its tensor."""


def check_audio_program(program: AudioProgram) -> Faults:
    """Every fault of the program by itself."""
    yield from Chain(program).faults()


def audio_chain(program: AudioProgram) -> "Chain":
    """What a sound program comes to."""
    chain = Chain(program)
    tuple(chain.faults())
    return chain


@dataclass
class Chain:
    """One walk along a program's chain, and what is found there.

    steps: (op, its number) on the samples, in order. window, mels: 0 where there is none. newest: the kind of the
    newest value, with a number that tells versions of it apart.
    """

    program: AudioProgram
    steps: list[tuple[str, int | float]] = field(default_factory=list[tuple[str, int | float]])
    window: int = 0
    mels: int = 0
    rate: int | None = None
    newest: tuple[str, int] = ("file", 0)
    last_samples: tuple[str, int] = ("samples", 0)
    names: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    decode_rate: tuple[Path, int] | None = None

    def faults(self) -> Faults:
        """Every fault, in document order."""
        for at, transform in enumerate(self.program.transforms):
            path = (*PROGRAM, "transforms", at)
            for what, help in self._transform(transform, at, path):
                yield Fault("V068", path, what, help)
        if self.decode_rate is not None and self.decode_rate[1] != self.rate:
            what = f"decode says {self.decode_rate[1]} Hz, and decoding changes no rate"
            yield Fault("V068", self.decode_rate[0], what, "add a resample with that sample_rate")
        for at, output in enumerate(self.program.outputs):
            for what, help in self._output(output):
                yield Fault("V068", (*PROGRAM, "outputs", at), what, help)

    # ---- transforms --------------------------------------------------------------------------------------------------

    def _transform(self, transform: AudioTransform, at: int, path: Path) -> "_Sayings":
        op = transform.op
        if op not in FIELDS:
            known = "is legal metadata that this runtime does not carry out" if op in AUDIO_OPS else "is no operation"
            self._gives(transform)  # what it would have made is not missed as well
            return [(f"'{op}' {known}", did_you_mean(op, FIELDS))]
        faults = [*_field_faults(transform)]
        if at == 0 and op != "decode":
            faults.append((f"the program begins with '{op}': the file is not decoded yet", "begin with decode"))
        elif at and op == "decode":
            faults.append(("the file is decoded already", "remove this decode"))
        faults += self._takes(transform)
        faults += _CARRY.get(op, Chain._passes)(self, transform)
        if op == "decode" and transform.sample_rate is not None:
            self.decode_rate = (path, transform.sample_rate)
        return [*faults, *self._gives(transform)]

    def _takes(self, transform: AudioTransform) -> "_Sayings":
        """Whether it takes the newest value of the chain (a length may be taken of any)."""
        if transform.inputs is None or (transform.op == "decode" and transform.inputs == ("encoded",)):
            return []
        if len(transform.inputs) != 1:
            return [(f"'{transform.op}' takes one value, not {len(transform.inputs)}", "name one input")]
        (name,) = transform.inputs
        value = self.names.get(name)
        if value is None:
            return [(f"nothing before this transform makes '{name}'", did_you_mean(name, self.names))]
        if transform.op.startswith("emit_"):
            return [] if value[0] in ("samples", "features") else [(f"'{name}' is a length already", "")]
        if value != self.newest:
            what = f"'{name}' was worked on since: a program that goes two ways from one value can't be carried out"
            return [(what, "take the value of the transform before this one")]
        return []

    def _gives(self, transform: AudioTransform) -> "_Sayings":
        if transform.outputs is None:
            return []
        kind = transform.op.removeprefix("emit_")
        made = (kind, 0) if transform.op.startswith("emit_") else self.newest
        faults: _Sayings = []
        if len(transform.outputs) != 1:
            faults.append((f"'{transform.op}' makes one value, not {len(transform.outputs)}", "name one output"))
        for name in transform.outputs:
            if name in self.names:
                faults.append((f"'{name}' is made twice", "choose another name"))
            self.names[name] = made
        return faults

    def _passes(self, transform: AudioTransform) -> "_Sayings":
        """decode, downmix (decoding has made one channel of all), spectrogram (a mark), normalize, lengths."""
        if transform.op == "decode":
            self.newest = self.last_samples = ("samples", 0)
        if transform.op in ("downmix", "spectrogram"):
            return self._on_samples(transform.op)
        if transform.op == "normalize" and self.newest[0] != "features":
            return [("there are no features to normalize yet", "put it after log_mel")]
        if transform.op == "emit_valid_frames" and not any(each.op == "log_mel" for each in self.program.transforms):
            return [("only log_mel makes frames, and the program has none", "add log_mel, or emit_valid_samples")]
        return []

    def _samples(self, transform: AudioTransform) -> "_Sayings":
        """resample, rescale, zero_mean_unit_variance."""
        op, faults = transform.op, self._on_samples(transform.op)
        if self.window and not faults:
            faults.append((f"'{op}' comes after the samples were fitted to a window", "put it before pad and trim"))
        if op == "resample":
            if any(step == "resample" for step, _ in self.steps):
                faults.append(("the samples are resampled already", "remove one resample"))
            self.rate = transform.sample_rate
        given = {"resample": transform.sample_rate, "rescale": transform.scale}.get(op, transform.epsilon)
        number = DEFAULT_EPSILON if given is None else given
        if not isfinite(number) or (op == "zero_mean_unit_variance" and number < 0):
            faults.append((f"'{op}' can't use {number}", "write a finite number"))
        self.steps.append((op, number))
        self._next("samples")
        return faults

    def _fits(self, transform: AudioTransform) -> "_Sayings":
        """pad, trim: either one fixes the number of samples."""
        faults, length = self._on_samples(transform.op), transform.target_length or 0
        if self.window and length and length != self.window:
            faults.append((f"the window is {self.window} samples already, not {length}", "write one target_length"))
        if length > MOST_SAMPLES:
            faults.append((f"{length} samples are more than {MOST_SAMPLES}", "choose a shorter window"))
        self.window = self.window or length
        self._next("samples")
        return faults

    def _log_mel(self, transform: AudioTransform) -> "_Sayings":
        faults = self._on_samples("log_mel")
        if self.rate is not None and self.rate != RATE:
            faults.append((f"log_mel works at {RATE} Hz, and the samples have {self.rate}", f"resample to {RATE}"))
        if self.rate is None:
            self.steps.insert(0, ("resample", RATE))  # a file's own rate may be any
            self.rate = RATE
        self.mels = transform.num_mel_bins or MELS[0]
        self._next("features")
        return faults

    def _on_samples(self, op: str) -> "_Sayings":
        if self.newest[0] != "features":
            return []
        return [(f"'{op}' works on samples, and log_mel has made features of them", "put it before log_mel")]

    def _next(self, kind: str) -> None:
        self.newest = (kind, self.newest[1] + 1)
        if kind == "samples":
            self.last_samples = self.newest

    # ---- outputs -----------------------------------------------------------------------------------------------------

    def _output(self, output: AudioOutput) -> "_Sayings":
        content = output.content
        if content not in _DTYPES:
            return [(f"content '{content}' is none that an audio program gives", did_you_mean(content, _DTYPES))]
        faults: _Sayings = []
        if not self.program.transforms:
            faults.append(("the program has no transform: the file is not decoded", "begin with decode"))
        if content in ("audio_features", "valid_frames") and not self.mels:
            faults.append((f"'{content}' needs a log_mel, and the program has none", "add log_mel"))
        if canonical(output.dtype) != _DTYPES[content]:
            faults.append((f"'{content}' is {_DTYPES[content]}, not {output.dtype}", f"write {_DTYPES[content]}"))
        if output.pad_value:
            faults.append((f"samples are padded with silence only, not with {output.pad_value}", "remove pad_value"))
        return [*faults, *self._source(output), *self._shape(output)]

    def _source(self, output: AudioOutput) -> "_Sayings":
        """Whether the source is a value of that content; a program that names nothing has one of each."""
        if not any(each.inputs or each.outputs for each in self.program.transforms):
            return []
        value, content = self.names.get(output.source), output.content
        if value is None:
            return [(f"no transform makes '{output.source}'", did_you_mean(output.source, self.names))]
        kind = {"audio_features": "features", "waveform": "samples"}.get(content, content)
        if value[0] != kind:
            return [(f"'{output.source}' holds {value[0]}, and the content says {content}", "name another source")]
        if kind == "samples" and value != self.last_samples:
            what = f"'{output.source}' is worked on later, and a program publishes the samples as they are at its end"
            return [(what, "name the last samples")]
        return []

    def _shape(self, output: AudioOutput) -> "_Sayings":
        content, window = output.content, self.window or None
        rows = None if window else 1  # several files make rows of one tensor where all have one length
        known: tuple[int | None, ...] = (rows,)
        if content == "audio_features":
            known = (rows, self.mels or None, self.window // HOP if window else None)
        elif content == "waveform":
            known = (rows, window)
        contract = output.contract
        for rank in {output.rank, contract.rank if contract is not None else None} - {None, len(known)}:
            return [(f"'{content}' has rank {len(known)}, not {rank}", "correct the rank")]
        shape = (contract.shape if contract is not None else None) or ()
        for axis, (made, declared) in enumerate(zip(known, shape, strict=False)):
            if made is not None and isinstance(declared, int) and declared != made:
                said = "without a fixed window one file makes one row" if axis == 0 else f"the program makes {made}"
                return [
                    (f"the contract says {declared} on axis {axis}, and {said}", "correct the shape, or use a symbol")
                ]
        return []


_Sayings = list[tuple[str, str]]
"""(what is wrong, the way out)."""

_CARRY: Mapping[str, Callable[[Chain, AudioTransform], _Sayings]] = {
    "resample": Chain._samples,
    "rescale": Chain._samples,
    "zero_mean_unit_variance": Chain._samples,
    "pad": Chain._fits,
    "trim": Chain._fits,
    "log_mel": Chain._log_mel,
}


def _field_faults(transform: AudioTransform) -> _Sayings:
    """Fields that the operation lacks, does not take, or takes with other values."""
    op, faults = transform.op, list[tuple[str, str]]()
    given = {name: value for name, value in transform if name not in _OWN and value is not None}
    needed = _NEEDS.get(op)
    if needed is not None and needed not in given:
        faults.append((f"'{op}' needs {needed}", f"add {needed}"))
    for name, value in given.items():
        allowed = FIELDS[op].get(name)
        if allowed is None:
            faults.append((f"'{op}' can't carry out {name}", f"remove {name}"))
        elif allowed and value not in allowed:
            words = " or ".join(sorted(map(str, allowed)))
            faults.append((f"'{op}' carries out {name} {words}, not {value}", f"write {words}"))
    return faults
