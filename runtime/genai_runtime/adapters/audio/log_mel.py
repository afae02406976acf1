"""Log-mel features of speech encoders (standard, 5.7), in float64 until they are rounded to float32 at the end.

A power spectrum of centered, reflected frames under a periodic Hann window; mel bands of the Slaney scale, each divided
by its width; log10 with a floor; a range of 8 below the loudest value of the clip; (x + 4) / 4.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

RATE, FFT, HOP = 16_000, 400, 160
FLOOR, RANGE = 1e-10, 8.0
_BLOCK = 2048

_LINEAR = 200.0 / 3.0
_KNEE = 1000.0
_LOG_STEP = np.log(6.4) / 27.0
"""The Slaney scale: 3 mels for 200 Hz up to 1000 Hz, then 27 for every factor of 6.4."""

Floats = npt.NDArray[np.float64]


def log_mel(samples: npt.NDArray[np.float32], mels: int, zeros: bool = False) -> npt.NDArray[np.float32]:
    """[n] at 16 kHz -> [mels, n // HOP]. zeros: silence lies before and behind the clip, which is not reflected."""
    if len(samples) < HOP:
        return np.empty((mels, 0), np.float32)
    energy = band_energy(samples, mel_bands(mels), hann(FFT), HOP, zeros)
    return normalized(np.log10(np.maximum(energy, FLOOR))).T.astype(np.float32)


def fitted_frames(features: npt.NDArray[np.float32], frames: int) -> npt.NDArray[np.float32]:
    """[mels, n] -> [mels, frames]: cut at the end, or filled up with the least value that there is room for.

    That is a range below the loudest one, which `normalized` has made (largest - RANGE / 4); without any frame, the
    floor of silence.
    """
    cut = features[:, :frames]
    if cut.shape[1] == frames:
        return cut
    silence = normalized(np.full((1, 1), np.log10(FLOOR))).item()
    least = max(float(features.max()) - RANGE / 4, silence) if features.size else silence
    made = np.full((len(features), frames), least, np.float32)
    made[:, : cut.shape[1]] = cut
    return made


def band_energy(
    samples: npt.NDArray[np.float32], bands: Floats, window: Floats, hop: int, zeros: bool = False
) -> Floats:
    """[n] -> [n // hop, bands]: the power spectra of centered frames, summed up in bands [bands, bins].

    A frame has as many samples as the window. n is at least 1. Beyond its ends the clip is reflected, or silent.
    """
    count, width = len(samples) // hop, len(window)
    padded = np.pad(samples.astype(np.float64), width // 2, mode="constant" if zeros else "reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, width)[::hop][:count]
    energy = np.empty((count, len(bands)))
    for start in range(0, count, _BLOCK):
        spectrum = np.fft.rfft(frames[start : start + _BLOCK] * window, axis=1)
        energy[start : start + _BLOCK] = (spectrum.real**2 + spectrum.imag**2) @ bands.T
    return energy


def normalized(features: Floats) -> Floats:
    """Values within RANGE of the largest one, moved to about [-1, 1]."""
    held: Floats = np.maximum(features, features.max() - RANGE)
    return (held + 4.0) / 4.0


def hann(length: int) -> Floats:
    """The periodic Hann window."""
    return 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(length) / length)


@lru_cache(maxsize=8)
def mel_bands(mels: int, rate: int = RATE, fft: int = FFT) -> Floats:
    """[mels, fft // 2 + 1]: triangles between neighbouring band edges on the Slaney scale, each of area 1 Hz."""
    edges = _hertz(np.linspace(0.0, _mels(rate / 2), mels + 2))
    bins = np.arange(fft // 2 + 1) * (rate / fft)
    lower, center, upper = (edges[at : at + mels, None] for at in (0, 1, 2))
    triangles = np.minimum((bins - lower) / (center - lower), (upper - bins) / (upper - center))
    bands: Floats = np.maximum(triangles, 0.0) * (2.0 / (upper - lower))
    return bands


def _mels(hertz: float) -> float:
    if hertz < _KNEE:
        return hertz / _LINEAR
    return float(_KNEE / _LINEAR + np.log(hertz / _KNEE) / _LOG_STEP)


def _hertz(mels: Floats) -> Floats:
    above = np.maximum(mels - _KNEE / _LINEAR, 0.0)
    return np.where(above > 0, _KNEE * np.exp(_LOG_STEP * above), mels * _LINEAR)
