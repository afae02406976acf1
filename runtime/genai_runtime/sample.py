"""Pick one row's next token from its logits: options, the selector they specialise to, and float conversion.

A selector is made once a row and called once a token. The order inside one call is the one of onnxruntime-genai's
generator (the common steps are confirmed against its release 0.18), with the steps it lacks put where they commute:

    logit_bias, min_new_tokens, repetition, presence and frequency, no-repeat n-grams      (penalties.py)
    top_k on the scores, softmax at the temperature, top_p, min_p, one uniform, inverse CDF  (truncate.py; or, where
                                                      that is cheaper, a graph of the folder: graph_sampler.py)

Differences from that generator: `min_new_tokens` counts new tokens only, and ties at a cut keep the lowest ids. Its
`top_p` of 0 together with `top_k` > 1 means "no nucleus"; here 0 always keeps the single most likely token, so a reader
of its configuration maps that pair to 1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from genai_runtime.penalties import Stage, make_stages
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.truncate import Sampler, Uniforms, not_finite, padded_width

if TYPE_CHECKING:
    from genai_runtime.policy_graphs import PolicyGraphs

FloatRow = npt.NDArray[np.float32]
IntRow = npt.NDArray[np.integer[Any]]
SMALLEST_TEMPERATURE = 1e-30  # the float32 quotients stay numbers; packages write 1e-6 where they mean greedy


@dataclass(frozen=True)
class SamplingOptions:
    """What a request may ask of the token choice. The defaults change nothing and decode greedily.

    do_sample: None samples when any of temperature, top_k, top_p, min_p or seed differs from its default.
    temperature: 0 is greedy. top_k: 0 is off, 1 is greedy. top_p: keeps the shortest most likely prefix whose mass is
    >= top_p. min_p: keeps tokens at least min_p times as likely as the best one.
    repetition_penalty: once a distinct token of prompt and output (Keskar et al. 2019: x / p, or x * p below zero).
    presence_penalty, frequency_penalty: over the output only, once and per occurrence (subtracted).
    penalty_window: only the last so many tokens count for these three; 0 is all of them.
    no_repeat_ngram_size: no n-gram of prompt and output occurs twice; 0 is off.
    min_new_tokens: end tokens are impossible before. seed: 0 .. 2**64-1; None takes fresh entropy.
    logit_bias: token id -> value added to its logit.
    """

    do_sample: bool | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    seed: int | None = None
    logit_bias: Mapping[int, float] | None = None

    @property
    def greedy(self) -> bool:
        """Whether these options take the most likely token, so that no random number is drawn."""
        if self.temperature == 0 or self.top_k == 1 or self.do_sample is False:
            return True
        neutral = (1.0, 0, 1.0, 0.0, None)
        return not self.do_sample and (self.temperature, self.top_k, self.top_p, self.min_p, self.seed) == neutral

    def validate(self) -> None:
        """Raises RequestError `bad-sampling-options` that lists every field out of bounds."""
        faults = [f"{name} must be {bound}, got {getattr(self, name)!r}" for name, bound, ok in _RULES if not ok(self)]
        if faults:
            raise RequestError("bad-sampling-options", "; ".join(faults))


def _real(value: object, low: float = -1e30, high: float = 1e30) -> bool:
    """Whether value is a number within the bounds, which keep float32 arithmetic finite; NaN is within none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    number: Any = value
    return bool(low <= number <= high)


def _count(value: object, high: int = 2**63 - 1) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) <= high


def _biases(value: object) -> bool:
    if not isinstance(value, Mapping):
        return value is None
    return all(_count(token) and _real(bias) for token, bias in cast(Mapping[object, object], value).items())


_RULES: tuple[tuple[str, str, Callable[[SamplingOptions], bool]], ...] = (
    ("do_sample", "true, false or unset", lambda o: o.do_sample is None or isinstance(o.do_sample, bool)),
    ("temperature", "0 (greedy) or a number within 1e-30..1e30",
     lambda o: _real(o.temperature, 0) and (o.temperature == 0 or o.temperature >= SMALLEST_TEMPERATURE)),
    ("top_k", "a whole number within 0..2**63-1", lambda o: _count(o.top_k)),
    ("top_p", "within 0..1", lambda o: _real(o.top_p, 0, 1)),
    ("min_p", "within 0..1", lambda o: _real(o.min_p, 0, 1)),
    ("repetition_penalty", "a number above 0, 1e30 at most",
     lambda o: _real(o.repetition_penalty, 0) and o.repetition_penalty > 0),
    ("presence_penalty", "a number within -1e30..1e30", lambda o: _real(o.presence_penalty)),
    ("frequency_penalty", "a number within -1e30..1e30", lambda o: _real(o.frequency_penalty)),
    ("penalty_window", "a whole number within 0..2**63-1", lambda o: _count(o.penalty_window)),
    ("no_repeat_ngram_size", "a whole number within 0..2**63-1", lambda o: _count(o.no_repeat_ngram_size)),
    ("min_new_tokens", "a whole number within 0..2**63-1", lambda o: _count(o.min_new_tokens)),
    ("seed", "a whole number within 0..2**64-1", lambda o: o.seed is None or _count(o.seed, 2**64 - 1)),
    ("logit_bias", "a map from token id to a number within -1e30..1e30", lambda o: _biases(o.logit_bias)),
)  # fmt: skip


class Selector(Protocol):
    """Chooses a row's next token and remembers it. `seed`: the seed in use, None where nothing is random."""

    @property
    def seed(self) -> int | None: ...

    def __call__(self, logits: FloatRow) -> int:
        """logits: float32[vocab], not changed. Raises ExecutionError `logits-not-finite`."""
        ...

    def over(self, logits: FloatRow) -> Callable[[], int]:
        """Choices from a buffer that stays where it is: what calls with it would choose, with nothing to look up."""
        ...

    def into(self, logits: FloatRow, token: IntRow) -> Callable[[], object]:
        """The same, put into `token`, integer [1]. The score of a choice that is not finite may be left to be found."""
        ...


def make_selector(
    options: SamplingOptions,
    *,
    vocab_size: int,
    valid_ids: int | npt.NDArray[np.bool_],
    end_ids: frozenset[int],
    prompt: Sequence[int],
    graphs: "PolicyGraphs | None" = None,
) -> Selector:
    """Specialise `options` to one row.

    vocab_size: length of a logits row. valid_ids: how many ids, from 0 on, have a token, or bool[<= vocab_size]; an id
    without a token is never chosen. end_ids: what min_new_tokens holds back. prompt: the row's ids, for the penalties;
    ids outside the vocabulary (placeholders) count as places in a window, not as tokens. graphs: what may draw in the
    host's place. Raises RequestError `bad-sampling-options`, `bad-logit-bias`, `no-valid-token`; LoadError
    `session-failed`.
    """
    options.validate()
    size, holes = _extent(vocab_size, valid_ids)
    outside = sorted(i for i in options.logit_bias or () if i >= size)
    if outside:
        raise RequestError(
            "bad-logit-bias", f"logit_bias names ids without a token: {outside[:8]}; ids are 0 to {size - 1}"
        )
    stages = make_stages(options, size, end_ids, prompt)
    if options.greedy:
        plain = not stages
        if plain and not holes.size:
            return _Greedy(size)
        return _Staged(size, holes, stages, lambda row: partial(_best, row), None)
    uniforms = Uniforms(options.seed)
    session = graphs.session(options) if graphs is not None else None
    if session is None:
        host = Sampler(uniforms, size, options.temperature, options.top_k, options.top_p, options.min_p)
        return _Staged(size, holes, stages, lambda row: partial(host, row), uniforms.seed)
    from genai_runtime.graph_sampler import GraphSampler  # only who draws by a graph waits for this import

    sampler = GraphSampler(session, options, uniforms)
    if stages or holes.size or size < sampler.width:
        return _Staged(size, holes, stages, sampler.over, uniforms.seed)
    return _AsTheyAre(size, sampler.over, uniforms.seed)


def _extent(vocab_size: int, valid_ids: int | npt.NDArray[np.bool_]) -> tuple[int, npt.NDArray[np.int64]]:
    """One past the last id with a token, and the ids below it that have none."""
    if isinstance(valid_ids, int | np.integer):
        size, holes = min(int(valid_ids), vocab_size), np.empty(0, np.int64)
    else:
        present = np.flatnonzero(valid_ids[:vocab_size])
        size = int(present[-1]) + 1 if present.size else 0
        holes = np.flatnonzero(~valid_ids[:size])
    if size <= 0:
        raise RequestError("no-valid-token", f"none of the {vocab_size} logits belongs to a token of the tokenizer")
    return size, holes


class _Greedy:
    """The most likely token, the lowest id among equals; argmax finds a NaN before any number, so the test is free."""

    seed: int | None = None

    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, logits: FloatRow) -> int:
        return self.over(logits)()

    def over(self, logits: FloatRow) -> Callable[[], int]:
        row = logits[: self._size]
        argmax, item = row.argmax, row.item

        def choose() -> int:
            token = int(argmax())
            best = item(token)
            if best != best:
                raise not_finite()
            return token

        return choose

    def into(self, logits: FloatRow, token: IntRow) -> Callable[[], object]:
        if token.dtype != np.intp:
            return _putting(self.over(logits), token)
        return partial(logits[: self._size].argmax, None, token.reshape(()))


def _putting(choose: Callable[[], int], token: IntRow) -> Callable[[], None]:
    def put() -> None:
        token[0] = choose()

    return put


Picks = Callable[[FloatRow], Callable[[], int]]
"""Given a score row that stays where it is: what picks an id of it, -1 where every score is -inf."""


class _AsTheyAre:
    """Picks from the logits themselves, where nothing changes them."""

    def __init__(self, size: int, over: Picks, seed: int) -> None:
        self._size, self._over, self.seed = size, over, seed

    def __call__(self, logits: FloatRow) -> int:
        return self.over(np.ascontiguousarray(logits))()

    def over(self, logits: FloatRow) -> Callable[[], int]:
        pick = self._over(logits[: self._size])
        return lambda: max(pick(), 0)  # every token is forbidden: like onnxruntime-genai, the first one

    def into(self, logits: FloatRow, token: IntRow) -> Callable[[], object]:
        return _putting(self.over(logits), token)


class _Staged:
    """Copies the row, lets each stage change the copy, picks, and tells the stages. Padding never wins: it is -inf."""

    def __init__(
        self,
        size: int,
        holes: npt.NDArray[np.int64],
        stages: tuple[Stage, ...],
        over: Picks,
        seed: int | None,
    ) -> None:
        self._row = np.full(padded_width(size), -np.inf, np.float32)
        self._scores, self._size, self._holes = self._row[:size], size, holes
        self._first_valid = int(np.setdiff1d(np.arange(holes.size + 1), holes)[0])
        self._stages, self._pick, self.seed = stages, over(self._row), seed

    def __call__(self, logits: FloatRow) -> int:
        scores = self._scores
        scores[:] = logits[: self._size]
        scores[self._holes] = -np.inf
        for stage in self._stages:
            stage(scores)
        token = self._pick()
        if token < 0:  # every token is forbidden: like onnxruntime-genai, the first one
            token = self._first_valid
        for stage in self._stages:
            stage.note(token)
        return token

    def over(self, logits: FloatRow) -> Callable[[], int]:
        return partial(self, logits)

    def into(self, logits: FloatRow, token: IntRow) -> Callable[[], object]:
        return _putting(self.over(logits), token)


def _best(row: FloatRow) -> int:
    token = int(row.argmax())
    best = row[token]
    if best != best:
        raise not_finite()
    return token if best > -np.inf else -1


def to_float32(logits: npt.NDArray[np.generic]) -> FloatRow:
    """Logits of any float type as float32, same shape; float32 comes back as it is.

    uint16 is read as bfloat16 bit patterns, the form in which onnxruntime gives that type to numpy.
    Raises ExecutionError `logits-dtype`.
    """
    name = logits.dtype.name
    if name == "float32":
        return logits.astype(np.float32, copy=False)
    if name == "uint16":
        return (logits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name in ("float16", "float64", "bfloat16"):
        return logits.astype(np.float32)
    raise ExecutionError("logits-dtype", f"logits of type {name} are not a float type")
