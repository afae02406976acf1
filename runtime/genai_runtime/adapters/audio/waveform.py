"""Samples to samples: what a preprocessing program does before features (standard, 5.7). All take and give float32."""

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]


def downmix(samples: Samples) -> Samples:
    """[frames, channels] -> [frames]: the mean of the channels."""
    if samples.shape[1] == 1:
        return samples[:, 0]
    mean: npt.NDArray[np.float64] = samples.mean(axis=1, dtype=np.float64)
    return mean.astype(np.float32)


def rescale(samples: Samples, scale: float) -> Samples:
    """Every sample times `scale`, rounded to float32 once."""
    return (samples.astype(np.float64) * scale).astype(np.float32)


def zero_mean_unit_variance(samples: Samples, epsilon: float) -> Samples:
    """[n]: the mean taken away, divided by the root of the population variance plus epsilon."""
    wide = samples.astype(np.float64)
    if not wide.size:
        return samples
    spread: np.float64 = np.sqrt(wide.var() + epsilon)
    return np.asarray((wide - wide.mean()) / spread, np.float32)


def fit(samples: Samples, length: int) -> Samples:
    """[n] -> [length]: cut at its end, or silence added there."""
    cut = samples[:length]
    return np.pad(cut, (0, length - len(cut))) if len(cut) < length else cut
