"""Features of processor files as their makers describe them: loops and sums over one clip, nothing prepared.

Facts: the reference's section 5.4, and onnxruntime-extensions (shared/api) for what it leaves open; for the flat keys
of extractors, transformers 5.24.0 (their modules' own formulas).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.sounds import to_hertz, to_mel

Floats = npt.NDArray[np.float64]


def spectrum(frame: Floats, fft: int) -> npt.NDArray[np.complex128]:
    """The transform of a frame, silence behind it up to `fft`, as sums."""
    turn = np.exp(-2j * np.pi * np.outer(np.arange(fft // 2 + 1), np.arange(len(frame))) / fft)
    made: npt.NDArray[np.complex128] = turn @ frame
    return made


def natural(
    samples: npt.NDArray[Any],
    rate: int,
    mels: int = 80,
    ends: tuple[float, float] = (0, 7689),
    inner: bool = True,
    below: int = 127,
) -> Floats:
    """[frames, mels]: no padding; emphasis within a frame; Hamming of N - 1; triangles in 1127 ln(1 + f / 700).

    At 8000 Hz the transform is half as long, and its bins stand below those of 16000 Hz, as many as `below` says.
    ends: of the triangles, Hz. inner: only bins above the one nearest to the first and below that of the second count.
    """
    frame, hop, fft = (400, 160, 512) if rate == 16000 else (200, 80, 256)
    window = [0.54 - 0.46 * math.cos(2 * math.pi * at / (frame - 1)) for at in range(frame)]
    rows = []
    for start in range(0, len(samples) - frame + 1, hop):
        cut = [float(each) for each in samples[start : start + frame]]
        before = [cut[0], *cut[:-1]]
        held = [(each - 0.97 * last) * 32768 * w for each, last, w in zip(cut, before, window, strict=True)]
        power = np.abs(spectrum(np.array(held), fft)) ** 2
        whole = np.zeros(257)
        whole[: below if rate == 8000 else 257] = power[: below if rate == 8000 else 257]
        rows.append([math.log(max(1.0, float(each @ whole))) for each in natural_bands(mels, ends, inner)])
    return np.array(rows).reshape(-1, mels)


def natural_bands(mels: int, ends: tuple[float, float], inner: bool) -> list[Floats]:
    """Each 1 in its middle, and nothing at the middles beside it."""
    low, top = (1127 * math.log(1 + each / 700) for each in ends)
    step = (top - low) / (mels + 1)
    made = [np.zeros(257) for _ in range(mels)]
    first, last = (int(each * 512 / 16000 + 0.5) for each in ends)
    for band in range(mels):
        for at in range(first + 1, last) if inner else range(257):
            away = abs(1127 * math.log(1 + at * 16000 / 512 / 700) - low - (band + 1) * step)
            made[band][at] = max(0.0, 1 - away / step)
    return made


def htk(
    samples: npt.NDArray[Any], mels: int, emphasis: float = 0.0, flavour: bool = True, floor: float = 0.001
) -> Floats:
    """[frames, mels] at 16000 Hz: 160 zeros before, 321 samples a frame of which 320 count, magnitudes, HTK bands."""
    padded = [0.0] * 160 + [float(each) for each in samples]
    rows = []
    for start in range(0, len(padded) - 321 + 1, 160):
        cut = padded[start : start + 321]
        if emphasis and flavour:
            held = [cut[0] * (1 - emphasis), *(cut[at] - emphasis * cut[at - 1] for at in range(1, 320))]
        elif emphasis:
            held = [cut[at + 1] - emphasis * cut[at] for at in range(320)]
        else:
            held = cut[:320]
        windowed = np.array([each * math.sin(math.pi * at / 320) ** 2 for at, each in enumerate(held)])
        size = np.abs(spectrum(windowed, 512))
        rows.append([math.log(float(each @ size) + floor) for each in htk_bands(mels)])
    return np.array(rows).reshape(-1, mels)


def htk_bands(mels: int) -> list[Floats]:
    """Triangles over bins, from 0 to 8000 Hz."""
    top = 2595 * math.log10(1 + 8000 / 700)
    edges = [700 * (10 ** (top * at / (mels + 1) / 2595) - 1) * 512 / 16000 for at in range(mels + 2)]
    return [triangle(np.arange(257.0), *edges[band : band + 3]) for band in range(mels)]


def emphasised(samples: npt.NDArray[Any], mels: int, symmetric: bool = False) -> Floats:
    """[mels, frames]: the clip with emphasis, 256 zeros at both ends, Hann of 400 amid 512, ln(e + 2^-24).

    symmetric: the window's last place is as its first, zero.
    """
    turn = 399 if symmetric else 400
    given = [float(each) for each in samples]
    held = [each - 0.97 * last for each, last in zip(given, [0.0, *given[:-1]], strict=True)]
    padded = [0.0] * 256 + held + [0.0] * 256
    edges = [to_hertz(to_mel(8000) * at / (mels + 1)) for at in range(mels + 2)]
    bands = [
        triangle(np.arange(257) * 31.25, *edges[band : band + 3]) * 2 / (edges[band + 2] - edges[band])
        for band in range(mels)
    ]
    columns = []
    for start in range(0, len(padded) - 512 + 1, 160):
        cut = padded[start + 56 : start + 456]
        windowed = np.array([each * math.sin(math.pi * at / turn) ** 2 for at, each in enumerate(cut)])
        power = np.abs(spectrum(windowed, 512)) ** 2
        columns.append([math.log(float(each @ power) + 5.96046448e-08) for each in bands])
    return np.array(columns).reshape(-1, mels).T


def evened(features: Floats, epsilon: float = 1e-5) -> Floats:
    """Each row with its mean taken away, by its deviation (n - 1) plus epsilon; zeros where there is one column."""
    made = np.zeros_like(features)
    for at, row in enumerate(features):
        if len(row) > 1:
            mean = math.fsum(row) / len(row)
            spread = math.sqrt(math.fsum((each - mean) ** 2 for each in row) / (len(row) - 1))
            made[at] = [(each - mean) / (spread + epsilon) for each in row]
    return made


def triangle(places: Floats, low: float, middle: float, high: float) -> Floats:
    """Rising from low to 1 in the middle, falling to high."""
    made = [
        (at - low) / (middle - low)
        if low < at <= middle
        else (high - at) / (high - middle)
        if middle < at < high
        else 0
        for at in places
    ]
    return np.array(made, np.float64)
