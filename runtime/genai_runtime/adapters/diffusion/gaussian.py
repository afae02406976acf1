"""Noise by number: the same seed gives the same values on every machine, whatever else has been drawn."""

import numpy as np
import numpy.typing as npt


def gaussian(seed: int, count: int) -> npt.NDArray[np.float32]:
    """float32 [count] of unit variance: the stream of a counter (Philox 4x64-10), two numbers a pair (Box and Muller).

    The stream of the counter itself is promised to stay; what numpy makes of it, is not.
    """
    pairs = (count + 1) // 2
    bits = np.random.Philox(key=seed & (2**64 - 1)).random_raw(2 * pairs).reshape(2, pairs)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[0])), 2 * np.pi * uniform[1]
    drawn = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return drawn.reshape(-1)[:count].astype(np.float32)
