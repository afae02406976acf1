"""Statistics of paired rounds: medians of ratios taken within a round, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Rounds = list[dict[str, dict[str, float]]]
"""By round, name and what was measured: a figure."""
RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median with the bounds between which it lies with 95 % confidence."""

    median: float
    low: float
    high: float


def bootstrap_median(samples: Sequence[float], resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The median of `samples` and its percentile bootstrap interval (Efron 1979). Raises ValueError without samples."""
    values = np.asarray(samples, dtype=np.float64)
    if not values.size:
        raise ValueError("no samples")
    drawn = np.random.default_rng(seed).integers(0, values.size, size=(resamples, values.size))
    medians = np.median(values[drawn], axis=1)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(medians, [tail, 100 - tail])
    return Interval(float(np.median(values)), float(low), float(high))


def paired(over: Sequence[float], under: Sequence[float]) -> Interval:
    """The median over rounds of over[i] / under[i]. Raises ValueError for lists of different length."""
    return bootstrap_median([one / other for one, other in zip(over, under, strict=True)])


def difference(over: Sequence[float], under: Sequence[float]) -> Interval:
    """The median over rounds of over[i] - under[i]. Raises ValueError for lists of different length."""
    return bootstrap_median([one - other for one, other in zip(over, under, strict=True)])


def deviation(pair: Interval, even: float = 1.0) -> float:
    """How far apart the halves of an A/A pair may have been: the bound of its interval that is farther from `even`."""
    return max(abs(pair.low - even), abs(pair.high - even))


def column(rounds: Rounds, name: str, what: str) -> list[float]:
    """One contestant's figure, round by round."""
    return [each[name][what] for each in rounds]


def baseline(rounds: Rounds, what: str, first: str, second: str) -> list[float]:
    """Round by round the geometric mean of both halves of the A/A pair: neither's place in the process decides."""
    one, other = np.asarray(column(rounds, first, what)), np.asarray(column(rounds, second, what))
    means: Any = np.sqrt(one * other)
    return [float(each) for each in means]
