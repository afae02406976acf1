"""The driver of audio programs: what the compiler decided, carried out on the bytes of files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.adapters.audio.limits import hold_count, hold_rows
from genai_runtime.adapters.audio.log_mel import HOP, RATE, fitted_frames, log_mel
from genai_runtime.adapters.audio.resample import resample
from genai_runtime.adapters.audio.sound_file import read_sound
from genai_runtime.adapters.audio.stated_features import AudioFeatures, frames_in, stated_features
from genai_runtime.adapters.audio.wav import MAX_SAMPLES
from genai_runtime.adapters.audio.waveform import Samples, downmix, fit, rescale, zero_mean_unit_variance
from genai_runtime.adapters.files import split_files
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.values import ONNX_TYPE, Value, encode, to_value

Array = npt.NDArray[Any]
MAX_TRANSFORMED = 1 << 29
"""Samples of all frames together, which may overlap as much as a file says: some seconds of work."""
Sound = tuple[Samples, int]
"""Samples [n] and their rate in Hz."""


@dataclass(frozen=True)
class AudioProgram:
    """steps: (op, its number), in order, on the samples. window: their fixed number, 0: as many as there are.

    mels: bands of the features, 0: none are made. outputs: (port, content). most: samples of a file that count, 0: all;
    frames: of the features of each file, 0: as many as its samples make; zeros: see `log_mel`.

    variants: instead of all that but `most`, features by stated numbers, in rising order of rates: those of the highest
    rate that the file has, else the first. Clips become rows of one length, zeros behind the shorter ones. strides: how
    many frames, then how many of these, one entry of a prompt stands for. types: (port, dtype) where it is not that of
    the content: float32 features, bool masks, int64 numbers.
    """

    steps: tuple[tuple[str, float], ...]
    window: int
    mels: int
    outputs: tuple[tuple[str, str], ...]
    most: int = 0
    frames: int = 0
    zeros: bool = False
    variants: tuple[AudioFeatures, ...] = ()
    strides: tuple[int, ...] = ()
    types: tuple[tuple[str, str], ...] = ()

    def run(self, files: Sequence[bytes]) -> dict[str, Array | Value]:
        """Every output by port, one row a file.

        Raises RequestError, for files are a caller's: `audio-limit`, `bad-audio`, `audio-too-long`, `audio-too-short`
        (no frame), `audio-window` (several files of no fixed length). LoadError `miniaudio-missing`.
        """
        hold_count(len(files))
        try:
            return self._rows(files)
        except ExecutionError as fault:
            raise RequestError(fault.code, fault.what, help=fault.help) from fault

    def _rows(self, files: Sequence[bytes]) -> dict[str, Array | Value]:
        if self.variants:
            return self._stated(files)
        if self.frames:
            hold_rows(len(files), self.mels * self.frames, "features")
            features = np.stack([self._features(content) for content in files])
            return {port: features for port, _ in self.outputs}
        if not self.window and len(files) != 1:
            what = f"{len(files)} audio files can't be rows of one tensor: the program fixes no length (V068)"
            raise ExecutionError("audio-window", what, help="give the program a pad with target_length")
        hold_rows(len(files), self.window, "samples")
        clips, lengths = list[Samples](), list[int]()
        for content in files:
            clip = self._samples(content)
            lengths.append(len(clip))
            clips.append(fit(clip, self.window).copy() if self.window else clip)  # not the file behind its window
        if self.mels and not self.window and lengths[0] < HOP:
            raise _too_short(lengths[0], RATE, "")
        made = _Made(np.stack(clips), np.array(lengths, np.int64), self.mels, self.zeros)
        return {port: _CONTENTS[content](made) for port, content in self.outputs}

    def _stated(self, files: Sequence[bytes]) -> dict[str, Array | Value]:
        rows: list[Array] = []
        for at, content in enumerate(files):
            samples, rate = read_sound(content)
            how = variant_of(self.variants, rate)
            clip = resample(downmix(samples), rate, how.rate, "lanczos")
            clip = clip[: self.most] if self.most else clip
            hold_features(frames_in(len(clip), how), how, len(files))
            made = stated_features(clip, how)
            rows.append(made.T if how.bands_first else made)
            if len(rows[-1]) <= how.blank:
                raise _too_short(len(clip), how.rate, f" {at}" if len(files) > 1 else "")
        blank = self.variants[0].blank
        counts = np.array([len(each) - blank for each in rows], np.int64)
        contents: Mapping[str, Callable[[], Array]] = {
            "audio_features": lambda: _together(rows, self.variants[0].bands_first),
            "frame_mask": lambda: np.arange(counts.max() + blank) < counts[:, None],
            "valid_frames": lambda: counts,
            "entries": lambda: np.array([entries_in(int(each), self.strides) for each in counts], np.int64),
        }
        types = dict(self.types)
        return {port: _as_type(contents[content](), types.get(port)) for port, content in self.outputs}

    def _features(self, content: bytes) -> Array:
        whole = log_mel(self._samples(content), self.mels, self.zeros)
        return fitted_frames(whole, self.frames).copy()  # not the frames behind those that count

    def _samples(self, content: bytes) -> Samples:
        samples, rate = read_sound(content)
        sound = downmix(samples), rate
        for op, number in self.steps:
            sound = _STEPS[op](sound, number)
        return sound[0][: self.most] if self.most else sound[0]


@dataclass(frozen=True)
class _Made:
    """The windowed samples [B, n], how many of each row came from its file, and the number of bands."""

    samples: Samples
    lengths: npt.NDArray[np.int64]
    mels: int
    zeros: bool = False

    def features(self) -> Array:
        """float32 [B, mels, frames]."""
        rows, count = self.samples.shape
        if rows * self.mels * (count // HOP) > MAX_SAMPLES:
            raise ExecutionError("audio-too-long", f"features of {count} samples are more than {MAX_SAMPLES} numbers")
        return np.stack([log_mel(row, self.mels, self.zeros) for row in self.samples])

    def frames(self) -> Array:
        """int64 [B]: hops begun within the file's own samples, at most as many as there are frames."""
        begun: Array = np.minimum(-(-self.lengths // HOP), self.samples.shape[1] // HOP)
        return begun


def variant_of(variants: Sequence[AudioFeatures], rate: int) -> AudioFeatures:
    """The features for a file of this rate."""
    return next((each for each in reversed(variants) if each.rate <= rate), variants[0])


def entries_in(frames: int, strides: Sequence[int]) -> int:
    """How many entries of a prompt stand for so many frames: each stride takes that many together, the rest as well."""
    for each in strides:
        frames = -(-frames // each)
    return frames


def hold_features(frames: int, how: AudioFeatures, rows: int) -> None:
    """So many frames may be made. Raises ExecutionError `audio-too-long`."""
    if rows * frames * how.mels > MAX_SAMPLES:
        what = f"features of {frames} frames are more than {MAX_SAMPLES} numbers"
        raise ExecutionError("audio-too-long", what, help="cut the sound into parts")
    if rows * frames * max(how.fft, how.frame) > MAX_TRANSFORMED:
        what = f"{frames} frames with transforms of {how.fft} samples are more than {MAX_TRANSFORMED} samples"
        raise ExecutionError("audio-too-long", what, help="cut the sound into parts")


def _too_short(samples: int, rate: int, which: str) -> ExecutionError:
    what = f"sound{which} has {samples} samples at {rate} Hz, too few for one frame of features"
    return ExecutionError("audio-too-short", what, help="give a longer sound")


def _together(rows: Sequence[Array], bands_first: bool) -> Array:
    """[frames, mels] each -> float32 [rows, most frames, mels], or with the bands first; zeros behind."""
    most = max(len(each) for each in rows)
    made = np.zeros((len(rows), most, rows[0].shape[1]), np.float32)
    for at, each in enumerate(rows):
        made[at, : len(each)] = each
    return np.ascontiguousarray(made.transpose(0, 2, 1)) if bands_first else made


def _as_type(array: Array, dtype: str | None) -> Array | Value:
    if dtype is None:
        return array
    made = encode(array, dtype)
    return to_value(made, dtype) if dtype in ONNX_TYPE else made


_STEPS: Mapping[str, Callable[[Sound, float], Sound]] = {
    "resample": lambda sound, rate: (resample(sound[0], sound[1], int(rate), "lanczos"), int(rate)),
    "rescale": lambda sound, scale: (rescale(sound[0], scale), sound[1]),
    "zero_mean_unit_variance": lambda sound, epsilon: (zero_mean_unit_variance(sound[0], epsilon), sound[1]),
}
_CONTENTS: Mapping[str, Callable[[_Made], Array]] = {
    "waveform": lambda made: made.samples,
    "audio_features": _Made.features,
    "valid_frames": _Made.frames,
    "valid_samples": lambda made: made.lengths,
}

_KNOWN = {*_CONTENTS, "frame_mask", "entries"}


def audio_preprocess(
    parameters: Mapping[str, Any], program: AudioProgram | None = None
) -> Callable[[Mapping[str, Array]], dict[str, Array | Value]]:
    """The call of a program. In: `encoded` uint8 [bytes] (adapters.files). Out: the program's outputs by port.

    parameters: none are known. Raises ValueError without a program, or for one with operations of a newer compiler.
    """
    if program is None:
        raise ValueError("it needs the document's audio program")
    unknown = {op for op, _ in program.steps} - set(_STEPS) or {name for _, name in program.outputs} - _KNOWN
    if unknown:
        raise ValueError(f"the program has {', '.join(sorted(unknown))}, which this runtime has not")
    return lambda inputs: program.run(split_files(inputs["encoded"].tobytes()))
