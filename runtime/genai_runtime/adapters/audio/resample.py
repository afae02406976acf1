"""Changing the sample rate by windowed-sinc interpolation (standard, 5.7 and section 11).

Two windows: `hann` for media outputs, as section 11 has it; `lanczos` (a sinc itself) for preprocessing, where 5.7
says "windowed sinc, radius 16" and the reference runtime takes this one. Everything is float64 until the last step.
"""

from math import gcd
from typing import Literal

import numpy as np
import numpy.typing as npt

from genai_runtime.adapters.audio.wav import MAX_SAMPLES
from genai_runtime.problem import ExecutionError

RADIUS = 16
"""Source samples on each side of a target sample's place that take part in it."""

_TAPS = np.arange(1 - RADIUS, RADIUS + 1)
_BLOCK = 1 << 14
_MAX_PHASES = 1 << 15

Floats = npt.NDArray[np.float64]
Window = Literal["hann", "lanczos"]


def resample(samples: npt.NDArray[np.float32], source: int, target: int, window: Window) -> npt.NDArray[np.float32]:
    """float32 [..., n] at `source` Hz -> float32 [..., (n * target + source / 2) / source] at `target` Hz.

    Sample i of the result lies at i * source / target; weights are cutoff * sinc(cutoff * d) * window(d / RADIUS) with
    cutoff min(1, target / source), over those source samples that exist, divided by their sum.
    Raises ExecutionError `audio-too-long` when the result would have more than MAX_SAMPLES samples.
    """
    count = samples.shape[-1]
    length = length_at(count, source, target)
    if length * max(1, samples.size // max(count, 1)) > MAX_SAMPLES:
        what = f"{count} samples at {source} Hz are {length} at {target} Hz, more than {MAX_SAMPLES}"
        raise ExecutionError("audio-too-long", what, help="cut the sound into parts")
    if source == target:
        return samples
    made = np.empty((*samples.shape[:-1], length), np.float32)
    if not count:
        return made
    step, phases = source // gcd(source, target), target // gcd(source, target)
    wide = samples.astype(np.float64)
    weights = _Weights(min(1.0, target / source), phases, window)
    for start in range(0, length, _BLOCK):
        places = np.arange(start, min(start + _BLOCK, length), dtype=np.int64) * step
        near = (places // phases)[:, None] + _TAPS
        held = weights.of(places % phases)
        if near[0, 0] < 0 or near[-1, -1] >= count:  # an end of the sound: what lies beyond takes no part
            held = held * ((near >= 0) & (near < count))
            near = near.clip(0, count - 1)
        total = held.sum(axis=-1)
        summed = np.einsum("...nt,nt->...n", wide[..., near], held)
        known = np.abs(total) > np.finfo(np.float64).eps
        made[..., start : start + len(places)] = np.where(known, summed / np.where(known, total, 1), 0)
    return made


def length_at(count: int, source: int, target: int) -> int:
    """How many samples at `target` Hz so many at `source` Hz become."""
    return (count * target + source // 2) // source


class _Weights:
    """Weights of the taps by phase: where between two source samples a target sample lies, in 1/phases."""

    def __init__(self, cutoff: float, phases: int, window: Window) -> None:
        self._cutoff, self._phases, self._window = cutoff, phases, window
        self._table = self._made(np.arange(phases)) if phases <= _MAX_PHASES else None

    def of(self, phase: npt.NDArray[np.int64]) -> Floats:
        """[n] -> [n, 2 * RADIUS]."""
        return self._made(phase) if self._table is None else self._table[phase]

    def _made(self, phase: npt.NDArray[np.int64]) -> Floats:
        distance = (phase / self._phases)[:, None] - _TAPS
        near = distance / RADIUS
        shape = np.sinc(near) if self._window == "lanczos" else 0.5 + 0.5 * np.cos(np.pi * near)
        weights: Floats = self._cutoff * np.sinc(self._cutoff * distance) * shape
        return weights
