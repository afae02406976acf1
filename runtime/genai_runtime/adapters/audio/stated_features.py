"""Features of sound whose every number a processor file states: frames, emphasis, window, spectrum, bands, logarithm.

In float64 until they are rounded to float32 at the end. The features of section 5.7 of the standard are `log_mel`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from genai_runtime.adapters.audio.log_mel import Floats, hann, mel_bands

Singles = npt.NDArray[np.float32]
_BLOCK = 1 << 20
"""Samples of frames looked at together."""
_HTK_BREAK, _HTK_SCALE, _NATURAL_SCALE = 700.0, 2595.0, 1127.0


@dataclass(frozen=True)
class AudioFeatures:
    """How features are made of samples at `rate` Hz. Lengths are in samples.

    frame: one frame's own; hop: from one to the next; span: what has to be there for it, of which its own begin at
    `skip`; before, behind: silence put around the clip.
    emphasis: what is taken away of each sample is `alpha` times the one before it, within the clip; within the frame,
    whose first sample takes itself; or `next`: a frame is its own samples from the second on, and one more.
    window: its shape; none: samples are features as they are. gain: what frames are multiplied with. fft: of the
    transform; power: the spectrum is squared. bands: their scale; mels, low, high: how many, between which frequencies;
    bank: the transform and the rate for which bands are made, 0: `fft` and `rate`; bins: of the spectrum that count,
    0: all. floor: added under the logarithm, or `clipped`, the least there is. mean, deviation: of each band, taken
    away and divided by. spread: above 0: each band has its mean over the clip taken away and is divided by its
    deviation plus this. bands_first: [mels, frames], else [frames, mels]. blank: how many frames at the end do not
    count: they are zeros, and no part of the clip's means.
    """

    rate: int
    frame: int
    hop: int
    span: int
    mels: int
    skip: int = 0
    before: int = 0
    behind: int = 0
    emphasis: Literal["", "clip", "frame", "next"] = ""
    alpha: float = 0.0
    window: Literal["hann", "symmetric-hann", "hamming", "none"] = "hann"
    gain: float = 1.0
    fft: int = 0
    power: bool = True
    bands: Literal["slaney", "htk", "natural", "kaldi"] = "slaney"
    low: float = 0.0
    high: float = 0.0
    bank: tuple[int, int] = (0, 0)
    bins: int = 0
    floor: float = 0.0
    clipped: bool = False
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    spread: float = 0.0
    bands_first: bool = False
    blank: int = 0


def frames_in(samples: int, how: AudioFeatures) -> int:
    """How many frames a clip of so many samples has, blank ones among them."""
    if how.window == "none":
        return -(-samples // how.frame)
    return max(0, (samples + how.before + how.behind - how.span) // how.hop + 1)


def stated_features(samples: Singles, how: AudioFeatures) -> Singles:
    """[n] at the rate of `how` -> float32 [frames, mels], or [mels, frames]."""
    count = frames_in(len(samples), how)
    if how.window == "none":
        raw = np.pad(samples, (0, count * how.frame - len(samples)))
        return raw.reshape(count, how.frame)
    made = _logarithms(samples, max(count - how.blank, 0), how)
    if how.mean:
        made -= np.array(how.mean)
    if how.deviation:
        made /= np.array([each or 1.0 for each in how.deviation])
    if how.spread:
        made = _evened(made, how.spread)
    if how.blank:
        made = np.pad(made, ((0, how.blank), (0, 0)))
    return np.ascontiguousarray(made.T if how.bands_first else made, np.float32)


def _logarithms(samples: Singles, count: int, how: AudioFeatures) -> Floats:
    """float64 [count, mels]."""
    own = samples.astype(np.float64)
    if how.emphasis == "clip":
        own = np.concatenate([own[:1], own[1:] - how.alpha * own[:-1]])
    clip = np.pad(own, (how.before, how.behind))
    bands = bands_of(how).T
    shape = _WINDOWS[how.window](how.frame) * how.gain
    first = how.skip
    made = np.empty((count, how.mels))
    step = max(1, _BLOCK // how.fft)
    for start in range(0, count, step):
        at = (np.arange(start, min(start + step, count)) * how.hop)[:, None] + first
        spectrum = np.fft.rfft(_emphasised(clip, at, how) * shape, n=how.fft, axis=1)
        energy = spectrum.real**2 + spectrum.imag**2
        energy = energy if how.power else np.sqrt(energy)
        used = how.bins or energy.shape[1]
        summed = energy[:, :used] @ bands[:used]
        made[start : start + len(at)] = np.log(np.maximum(summed, how.floor) if how.clipped else summed + how.floor)
    return made


def _emphasised(clip: Floats, at: npt.NDArray[np.int64], how: AudioFeatures) -> Floats:
    """The samples of the frames that begin at `at` [n, 1]: [n, frame]."""
    own: Floats = clip[at + np.arange(how.frame)]
    if how.emphasis == "next":
        own = clip[at + np.arange(1, how.frame + 1)] - how.alpha * own
    if how.emphasis == "frame":
        own = own - how.alpha * np.concatenate([own[:, :1], own[:, :-1]], axis=1)
    return own


def _evened(features: Floats, spread: float) -> Floats:
    """Each band with mean 0 and about deviation 1 (of a sample: n - 1); of a single frame nothing is left."""
    if len(features) < 2:
        return np.zeros_like(features)
    evened: Floats = (features - features.mean(axis=0)) / (features.std(axis=0, ddof=1) + spread)
    return evened


def _symmetric(middle: float) -> Callable[[int], Floats]:
    """A window whose two ends are alike: `middle` and a cosine."""
    return lambda length: middle - (1.0 - middle) * np.cos(2.0 * np.pi * np.arange(length) / max(length - 1, 1))


_WINDOWS: dict[str, Callable[[int], Floats]] = {
    "hann": hann,
    "symmetric-hann": _symmetric(0.5),
    "hamming": _symmetric(0.54),
}


# ---- bands -----------------------------------------------------------------------------------------------------------


def bands_of(how: AudioFeatures) -> Floats:
    """[mels, bins of the bank]."""
    fft, rate = how.bank[0] or how.fft, how.bank[1] or how.rate
    if how.bands == "slaney":
        return mel_bands(how.mels, rate, fft)
    return _triangles(how.bands, how.mels, fft, rate, how.low, how.high)


@lru_cache(maxsize=8)
def _triangles(scale: str, mels: int, fft: int, rate: int, low: float, high: float) -> Floats:
    """Triangles of height 1 between places that lie evenly on a mel scale.

    htk: straight lines over the bins of the transform. kaldi: straight lines over the mel scale itself; natural: the
    same, of the bins whose middle lies above the one nearest to `low` and below the one nearest to `high`.
    """
    bins = np.arange(fft // 2 + 1)
    if scale == "htk":
        first, last = (_HTK_SCALE * np.log10(1 + each / _HTK_BREAK) for each in (low, high))
        places: Floats = _HTK_BREAK * (10 ** (np.linspace(first, last, mels + 2) / _HTK_SCALE) - 1) * fft / rate
        across: Floats = bins.astype(np.float64)
    else:
        first, last = (_NATURAL_SCALE * np.log(1 + each / _HTK_BREAK) for each in (low, high))
        places = np.linspace(first, last, mels + 2)
        across = _NATURAL_SCALE * np.log(1 + bins * (rate / fft) / _HTK_BREAK)
    left, middle, right = (places[at : at + mels, None] for at in (0, 1, 2))
    made: Floats = np.maximum(np.minimum((across - left) / (middle - left), (right - across) / (right - middle)), 0.0)
    if scale == "natural":
        least, most = (int(each * fft / rate + 0.5) for each in (low, high))
        made[:, (bins <= least) | (bins >= max(most, least + 1))] = 0.0
    return made
