"""What changes a row's scores before a token is picked, one stage each, with state that grows by one token at a time.

The order is onnxruntime-genai's: minimum length, repetition penalty, n-gram ban; what it lacks stands beside its kin.
A ban is -inf, so no later stage can undo it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from genai_runtime.sample import SamplingOptions

FloatRow = npt.NDArray[np.float32]


class Stage(Protocol):
    """One change of a score row float32[size], in place; `note` hears every token that was chosen."""

    def __call__(self, scores: FloatRow, /) -> None: ...

    def note(self, token: int, /) -> None: ...


def make_stages(
    options: "SamplingOptions", size: int, end_ids: frozenset[int], prompt: Sequence[int]
) -> tuple[Stage, ...]:
    """The stages that `options` need, in order; none when they ask for nothing. `size`: ids 0 .. size-1 have scores."""
    stages: list[Stage] = []
    if options.logit_bias:
        stages.append(_Bias(options.logit_bias))
    if options.min_new_tokens:
        stages.append(_MinNewTokens(options.min_new_tokens, [i for i in sorted(end_ids) if 0 <= i < size]))
    if options.repetition_penalty != 1:
        stages.append(_Repetition(options.repetition_penalty, SeenTokens(size, options.penalty_window, prompt)))
    if options.presence_penalty or options.frequency_penalty:
        seen = SeenTokens(size, options.penalty_window, ())
        stages.append(_PresenceFrequency(options.presence_penalty, options.frequency_penalty, seen))
    if options.no_repeat_ngram_size:
        stages.append(_NoRepeatNgram(options.no_repeat_ngram_size, size, prompt))
    return tuple(stages)


class SeenTokens:
    """The distinct tokens among the last `window` ones (0: all), with their counts, kept up to date in O(1) a token.

    A token outside 0 .. size-1 takes its place in the window and is otherwise ignored.
    """

    def __init__(self, size: int, window: int, tokens: Sequence[int]) -> None:
        self._size, self._window = size, window
        self._recent: deque[int] = deque()
        self._distinct = np.zeros(size, np.int64)
        self._place = np.zeros(size, np.int64)
        self._counts = np.zeros(size, np.float32)
        self._n = 0
        for token in tokens[-window:] if window else tokens:
            self.add(int(token))

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """The distinct tokens, in no particular order; a view, valid until the next `add`."""
        return self._distinct[: self._n]

    @property
    def counts(self) -> FloatRow:
        """How often each of `ids` occurs."""
        return self._counts[self.ids]

    def add(self, token: int) -> None:
        if self._window:
            self._recent.append(token)
            if len(self._recent) > self._window:
                self._drop(self._recent.popleft())
        if not 0 <= token < self._size:
            return
        if not self._counts[token]:
            self._distinct[self._n] = token
            self._place[token] = self._n
            self._n += 1
        self._counts[token] += 1

    def _drop(self, token: int) -> None:
        if not 0 <= token < self._size:
            return
        self._counts[token] -= 1
        if not self._counts[token]:
            self._n -= 1
            last, hole = self._distinct[self._n], self._place[token]
            self._distinct[hole] = last
            self._place[last] = hole


class _Bias:
    def __init__(self, bias: Mapping[int, float]) -> None:
        self._ids = np.array(list(bias), np.int64)
        self._values = np.array(list(bias.values()), np.float32)

    def __call__(self, scores: FloatRow) -> None:
        scores[self._ids] += self._values

    def note(self, token: int) -> None:
        pass


class _MinNewTokens:
    def __init__(self, count: int, end_ids: Sequence[int]) -> None:
        self._left, self._end_ids = count, np.array(end_ids, np.int64)

    def __call__(self, scores: FloatRow) -> None:
        if self._left > 0:
            scores[self._end_ids] = -np.inf

    def note(self, token: int) -> None:
        self._left -= 1


class _Repetition:
    """Keskar et al. 2019 (CTRL), section 4.1, as transformers and onnxruntime-genai apply it: once a distinct token."""

    def __init__(self, penalty: float, seen: SeenTokens) -> None:
        self._penalty, self._seen = np.float32(penalty), seen
        self.note = seen.add

    def __call__(self, scores: FloatRow) -> None:
        ids = self._seen.ids
        values = scores[ids]
        scores[ids] = np.where(values < 0, values * self._penalty, values / self._penalty)


class _PresenceFrequency:
    """The OpenAI API's rule: score - presence * (count > 0) - frequency * count, over generated tokens."""

    def __init__(self, presence: float, frequency: float, seen: SeenTokens) -> None:
        self._presence, self._frequency, self._seen = np.float32(presence), np.float32(frequency), seen
        self.note = seen.add

    def __call__(self, scores: FloatRow) -> None:
        scores[self._seen.ids] -= self._presence + self._frequency * self._seen.counts


class _NoRepeatNgram:
    """Bans each token that once followed the row's last n-1 tokens; n = 1 bans every token seen."""

    def __init__(self, n: int, size: int, prompt: Sequence[int]) -> None:
        self._size = size
        self._tail: deque[int] = deque(maxlen=n - 1)
        self._full = n - 1
        self._followers: dict[tuple[int, ...], list[int]] = {}
        for token in prompt:
            self.note(int(token))

    def __call__(self, scores: FloatRow) -> None:
        followers = self._followers.get(tuple(self._tail))
        if followers:
            scores[followers] = -np.inf

    def note(self, token: int) -> None:
        if len(self._tail) == self._full and 0 <= token < self._size:
            self._followers.setdefault(tuple(self._tail), []).append(token)
        self._tail.append(token)
