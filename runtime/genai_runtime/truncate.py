"""Draw a token from scores at a temperature, within top-k, top-p and min-p, without sorting the vocabulary.

One definition for every path: of the tokens that survive the cuts, in ascending id order, the first whose cumulative
weight exceeds u * total, for one uniform u a token. So two ways to find the survivors give the same token.

The cost is a few passes over the row: maxima of strided blocks bound the k-th largest score from below (k block maxima
reach it, so at least k scores do), and only the scores above that bound are looked at in detail.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from genai_runtime.problem import ExecutionError

FloatRow = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
ROWS = 64  # a score row is seen as [ROWS, width / ROWS] for the bound: one maximum a column
RUN = 512  # and as [width / RUN, RUN] for the two-level cumulative sum; a multiple of ROWS
LIKELY_NUCLEUS = 256  # column maxima taken as the first guess of a nucleus: enough for a peaked distribution
SORTABLE = 1024  # so few scores are sorted; more are told apart by a histogram of BINS first
BINS = 255


def padded_width(size: int) -> int:
    """The width of a score row that holds `size` scores: the next multiple of RUN. The rest of it is -inf."""
    return -(-size // RUN) * RUN


class Uniforms:
    """Uniform numbers in [0, 1) of one row: Philox (Salmon et al. 2011), 53 bits each, the same on every platform.

    seed: the seed in use; fresh entropy when None is given. Raw counter output, not numpy's `random()`, whose bits
    a numpy release may change.
    """

    def __init__(self, seed: int | None) -> None:
        if seed is None:
            from secrets import randbits  # only a request without a seed waits for this import

            seed = randbits(63)
        self.seed = int(seed)
        self._raw: Callable[[], int] = np.random.Philox(self.seed).random_raw

    def __call__(self) -> float:
        return (int(self._raw()) >> 11) * 2.0**-53


class Sampler:
    """Picks an id of a padded score row float32[padded_width(size)]; -1 when every score is -inf.

    The way it takes is chosen at construction. Raises ExecutionError `logits-not-finite` on NaN and on +inf.
    """

    def __init__(
        self, uniforms: Uniforms, size: int, temperature: float, top_k: int, top_p: float, min_p: float
    ) -> None:
        self._uniforms, self._temperature, self._top_p, self._min_p = uniforms, temperature, top_p, min_p
        self._k = min(top_k, size)
        self._work = np.empty(padded_width(size), np.float32)
        self._inside = top_p if top_k else 1.0
        ways = ((top_k > 0, self._top_k), (top_p < 1, self._nucleus), (min_p > 0, self._likely), (True, self._any))
        self._draw = next(way for wanted, way in ways if wanted)

    def __call__(self, row: FloatRow) -> int:
        return self.drawn(row, self._uniforms())

    def drawn(self, row: FloatRow, uniform: float) -> int:
        """The id that belongs to this number in [0, 1)."""
        maxima = row.reshape(ROWS, -1).max(0)
        top = float(maxima.max())
        if not np.isfinite(top):
            if top == -np.inf:
                return -1
            raise not_finite()
        return self._draw(row, maxima, top, uniform)

    def _top_k(self, row: FloatRow, maxima: FloatRow, top: float, uniform: float) -> int:
        ids = np.flatnonzero(row >= _bound(maxima, self._k))
        ids = ids[largest(row[ids], self._k)]
        weights = np.exp((row[ids].astype(np.float64) - top) / self._temperature)
        if self._inside < 1:
            kept = nucleus(row[ids], weights, self._inside * float(weights.sum()))
            ids, weights = ids[kept], weights[kept]
        return self._choose(ids, weights, uniform)

    def _nucleus(self, row: FloatRow, maxima: FloatRow, top: float, uniform: float) -> int:
        work = self._softmax(row, top)
        wanted = self._top_p * float(work.reshape(-1, RUN).sum(1).sum(dtype=np.float64))
        for guess in (LIKELY_NUCLEUS, maxima.size):
            ids = np.flatnonzero(row >= _bound(maxima, guess))
            weights = work[ids].astype(np.float64)
            if weights.sum() >= wanted:
                kept = nucleus(row[ids], weights, wanted)
                return self._choose(ids[kept], weights[kept], uniform)
        _drop_below_nucleus(row, work, wanted)
        work[work < self._min_p] = 0
        return _choose_in_runs(work, uniform)

    def _likely(self, row: FloatRow, maxima: FloatRow, top: float, uniform: float) -> int:
        work = self._softmax(row, top)
        work[work < self._min_p] = 0
        return _choose_in_runs(work, uniform)

    def _any(self, row: FloatRow, maxima: FloatRow, top: float, uniform: float) -> int:
        return _choose_in_runs(self._softmax(row, top), uniform)

    def _softmax(self, row: FloatRow, top: float) -> FloatRow:
        """exp((row - top) / temperature), so 1 at the best token, in the work buffer."""
        work = self._work
        with np.errstate(over="ignore"):  # a tiny temperature takes all but the best to -inf, whose weight is 0
            np.subtract(row, np.float32(top), out=work)
            np.divide(work, np.float32(self._temperature), out=work)
        return np.exp(work, out=work)

    def _choose(self, ids: Ids, weights: Weights, uniform: float) -> int:
        if self._min_p > 0:
            kept = weights >= self._min_p * weights.max()
            ids, weights = ids[kept], weights[kept]
        cumulative = weights.cumsum()
        return int(ids[_first_above(cumulative, uniform * float(cumulative[-1]))])


def nucleus(scores: FloatRow, weights: Weights, wanted: float) -> Ids:
    """Ascending positions of the fewest largest weights whose sum reaches `wanted` (Holtzman et al. 2020).

    Of equal weights the larger score goes first: at a high temperature different scores round to the same weight.
    """
    return largest(scores, int(np.sort(weights)[::-1].cumsum().searchsorted(wanted)) + 1)


def _drop_below_nucleus(scores: FloatRow, weights: FloatRow, wanted: float) -> None:
    """Set to 0 the weights outside the nucleus, however wide it is: histograms close in on its last score.

    A sort of the vocabulary costs ten times as much. Scores of weight 0 play no part.
    """
    some = np.flatnonzero(weights)
    inside, masses = scores[some], weights[some]
    while inside.size > SORTABLE and inside.min() < inside.max():
        low = inside.min()
        bins = ((inside - low) * (BINS / (inside.max() - low))).astype(np.int64)
        above = np.bincount(bins, masses)[::-1].cumsum()
        last = min(int(above.searchsorted(wanted)), above.size - 1)
        wanted -= float(above[last - 1]) if last else 0.0
        same = bins == above.size - 1 - last
        inside, masses = inside[same], masses[same]
    order = np.argsort(-inside, kind="stable")
    count = min(int(masses[order].cumsum(dtype=np.float64).searchsorted(wanted)) + 1, order.size)
    cut = inside[order[count - 1]]
    weights[scores < cut] = 0
    kept_ties = count - int(np.count_nonzero(inside > cut))
    weights[np.flatnonzero(scores == cut)[kept_ties:]] = 0


def _choose_in_runs(weights: FloatRow, uniform: float) -> int:
    """Two levels, so that one run is summed up element by element and not the whole row."""
    runs = weights.reshape(-1, RUN)
    cumulative = runs.sum(1).cumsum(dtype=np.float64)
    target = uniform * float(cumulative[-1])
    run = _first_above(cumulative, target)
    before = float(cumulative[run - 1]) if run else 0.0
    return run * RUN + _first_above(runs[run].cumsum(dtype=np.float64), target - before)


def largest(values: npt.NDArray[np.floating], k: int) -> Ids:
    """Ascending positions of the k largest values; among equals at the cut, the first ones."""
    if k >= values.size:
        return np.arange(values.size)
    cut = np.partition(values, -k)[-k]
    keep = values > cut
    missing = k - np.count_nonzero(keep)
    keep[np.flatnonzero(values == cut)[:missing]] = True
    return np.flatnonzero(keep)


def _bound(maxima: FloatRow, k: int) -> np.float32:
    """A score that at least k scores of the row reach, and few more than those do."""
    if k > maxima.size:
        return np.float32(-np.inf)
    return np.float32(np.partition(maxima, -k)[-k])


def _first_above(cumulative: Weights, target: float) -> int:
    """The first place above target, or, where rounding leaves none, the one that reached the total: never a 0."""
    place = int(cumulative.searchsorted(target, side="right"))
    return place if place < cumulative.size else int(cumulative.searchsorted(float(cumulative[-1])))


def not_finite() -> ExecutionError:
    """The failure for a logits row that holds NaN, or +inf where a distribution is needed."""
    return ExecutionError(
        "logits-not-finite",
        "the logits hold NaN or +inf",
        help="a float16 graph overflows on some inputs: run it with float32 activations, or on another provider",
    )
