"""Audio programs by the words of the standard (5.7): loops and sums over the document, nothing prepared."""

import io
import math
import wave
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Window = Literal["hann", "lanczos"]


def preprocess(content: bytes, program: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Every output of a program over one file of 16-bit integers, by the name of its value."""
    transforms = program["transforms"]
    mels = next((each["num_mel_bins"] for each in transforms if each["op"] == "log_mel"), 0)
    rate = next((each["sample_rate"] for each in transforms if each["op"] == "resample"), 16000 if mels else 0)
    samples, source = _decoded(content)
    if mels and not any(each["op"] == "resample" for each in transforms):
        samples = np.array(resampled(samples, source, rate, "lanczos"))
    count = 0
    for each in transforms:
        match each["op"]:
            case "resample":
                samples = np.array(resampled(samples, source, rate, "lanczos"))
            case "rescale":
                samples = samples * each["scale"]
            case "zero_mean_unit_variance":
                centered = samples - samples.mean()
                samples = centered / math.sqrt((centered**2).mean() + each.get("epsilon", 1e-7))
            case "pad" | "trim":
                count = count or len(samples)
                samples = np.array([samples[at] if at < len(samples) else 0.0 for at in range(each["target_length"])])
    count, frames = count or len(samples), len(samples) // 160
    made = {
        "waveform": lambda: samples[None].astype(np.float32),
        "audio_features": lambda: log_mel(samples, mels)[None].astype(np.float32),
        "valid_samples": lambda: np.array([count]),
        "valid_frames": lambda: np.array([min(math.ceil(count / 160), frames)]),
    }
    return {each["name"]: made[each["content"]]() for each in program["outputs"]}


def _decoded(content: bytes) -> tuple[Floats, int]:
    with wave.open(io.BytesIO(content), "rb") as file:
        assert file.getsampwidth() == 2
        values = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
        return values.astype(np.float64).sum(axis=1) / file.getnchannels() / 32768, file.getframerate()


# ---- resampling ------------------------------------------------------------------------------------------------------


def sinc(x: float) -> float:
    """sin(pi x) / (pi x)."""
    return 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x)


def window_of(kind: Window, distance: float) -> float:
    """A window of radius 16 at a distance from its middle."""
    near = distance / 16
    return sinc(near) if kind == "lanczos" else 0.5 * (1 + math.cos(math.pi * near))


def resampled(samples: npt.NDArray[Any], source: int, target: int, kind: Window) -> list[float]:
    """Each sample of the result as a sum over the source samples nearer than 16."""
    if source == target:
        return [float(each) for each in samples]
    cutoff = min(1.0, target / source)
    made = []
    for at in range((len(samples) * target + source // 2) // source):
        place = at * source / target
        near = range(max(0, math.ceil(place - 16)), min(len(samples), math.floor(place + 16) + 1))
        weights = [cutoff * sinc(cutoff * (place - k)) * window_of(kind, place - k) for k in near]
        total = math.fsum(weights)
        made.append(math.fsum(float(samples[k]) * w for k, w in zip(near, weights, strict=True)) / total)
    return made


# ---- features --------------------------------------------------------------------------------------------------------


def to_mel(hertz: float) -> float:
    """The Slaney scale."""
    return 3 * hertz / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


def to_hertz(mel: float) -> float:
    """Its inverse."""
    return 200 * mel / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def mel_bands(mels: int) -> Floats:
    """[mels, 201]: a triangle a band, of area one."""
    edges = [to_hertz(to_mel(8000) * each / (mels + 1)) for each in range(mels + 2)]
    made = np.zeros((mels, 201))
    for band in range(mels):
        low, mid, high = edges[band : band + 3]
        for at in range(201):
            hertz = 40.0 * at
            if low < hertz <= mid:
                made[band, at] = (hertz - low) / (mid - low) * 2 / (high - low)
            elif mid < hertz < high:
                made[band, at] = (high - hertz) / (high - mid) * 2 / (high - low)
    return made


def reflected(at: int, count: int) -> int:
    """The index inside 0..count-1 that mirrors at both ends lead to."""
    while not 0 <= at < count:
        at = -at if at < 0 else 2 * (count - 1) - at
    return at


def log_mel(samples: npt.NDArray[Any], mels: int) -> Floats:
    """[mels, samples // 160]; a frame's spectrum is a sum of cosines and sines, no fast transform."""
    places = np.arange(400)
    turn = np.exp(-2j * np.pi * np.outer(np.arange(201), places) / 400)
    window, bands = np.array([math.sin(math.pi * each / 400) ** 2 for each in places]), mel_bands(mels)
    columns = []
    for frame in range(len(samples) // 160):
        cut = [samples[reflected(160 * frame + each - 200, len(samples))] for each in places]
        columns.append(bands @ np.abs(turn @ (window * np.array(cut, np.float64))) ** 2)
    loud = np.log10(np.maximum(np.stack(columns, axis=1), 1e-10))
    made: Floats = (np.maximum(loud, loud.max() - 8) + 4) / 4
    return made
