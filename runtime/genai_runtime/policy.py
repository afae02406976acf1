"""The token policy that the runtime supplies: select a token a row, decide which rows go on (standard, 4.3)."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from genai_runtime.decoding import Decoding
from genai_runtime.problem import ExecutionError
from genai_runtime.request import Request
from genai_runtime.runtime_steps import executed
from genai_runtime.sample import make_selector
from genai_runtime.truncate import not_finite

T = TypeVar("T")

UNLIMITED = 1 << 62


class TokenPolicy:
    """Selection and liveness of the rows of one request.

    ends: the tokens that end a row. live: the rows that go on. reasons: why others ended. choices: how often it chose.
    """

    def __init__(self, request: Request, decoding: Decoding, origin: str = "") -> None:
        """origin: the document's place of the step that chooses."""
        self.rows = rows = decoding.rows
        self._tokens, self._decoding, self._origin = decoding.tokens, decoding, origin
        every = isinstance(request.valid_ids, int) and not request.valid_ids
        valid = decoding.spec.vocab_size if every else request.valid_ids
        options = request.sampling * rows if len(request.sampling) == 1 else request.sampling
        self._selectors = [
            make_selector(
                options[row],
                vocab_size=decoding.spec.vocab_size,
                valid_ids=valid,
                end_ids=request.end_ids,
                prompt=decoding.ids[row, : int(decoding.lengths[row])].tolist(),
                graphs=decoding.policy_graphs,
            )
            for row in range(rows)
        ]
        self.ends = request.end_ids if request.stop_on_eos else frozenset[int]()
        self.choices = 0
        limit = decoding.spec.capacity or request.context_length
        self._left = [limit - int(length) if limit else UNLIMITED for length in decoding.lengths]
        most = request.row_limits or (UNLIMITED,) * rows
        self._bounds = ["context" if left <= own else "length" for left, own in zip(self._left, most, strict=True)]
        self._left = [min(max(left, 1), own) for left, own in zip(self._left, most, strict=True)]
        self._stopped = request.stopped
        self.live = [row for row in range(rows) if most[row]]
        self.reasons: dict[int, str] = {}

    @cached_property
    def select(self) -> list[Callable[[], int]]:
        """Each row's choice from the decoder's logits of the moment."""
        return [self._watched(each.over(self._decoding.logits[row])) for row, each in enumerate(self._selectors)]

    def _watched(self, select: Callable[[], T]) -> Callable[[], T]:
        timings = self._decoding.timings
        return select if timings is None else timings.timed("select a token", "", self._origin, select)

    def only_row(self) -> "tuple[Callable[[], object], memoryview[int], memoryview[float]]":
        """For a loop that drives the only row itself: what puts its next token into a buffer, that buffer, its scores.

        The buffer is the decoder's [1], the scores [vocab] are those of the moment. A choice whose score is NaN is the
        loop's to find; it raises what `not_finite` gives.
        """
        tokens, scores = self._tokens[0], self._decoding.logits[0]
        select = self._watched(self._selectors[0].into(scores, tokens))
        return select, memoryview(tokens), memoryview(scores)

    def not_finite(self) -> ExecutionError:
        """The failure of a row whose best score is NaN."""
        return not_finite()

    def choose(self) -> list[int]:
        """Write each live row's next token into the decoder's token buffer. Returns the rows that got one."""
        tokens, ends, left = self._tokens, self.ends, self._left
        self.choices += 1
        if self._stopped:
            self.live = [row for row in self.live if row not in self._stopped]
        chosen = self.live
        ended = False
        for row in chosen:
            token = self.select[row]()
            tokens[row, 0] = token
            left[row] -= 1
            if token in ends:
                self.reasons[row] = "stop"
                ended = True
            elif left[row] <= 0:
                self.reasons[row] = self._bounds[row]
                ended = True
        if ended:
            self.live = [row for row in chosen if row not in self.reasons]
        return chosen

    @property
    def left(self) -> int:
        """Tokens that the only row may still get."""
        return self._left[0]

    @property
    def executed(self) -> dict[str, int]:
        """Executions of the steps that the runtime supplied, by contract."""
        return executed(decode=self._decoding.passes, policy=self.choices)

    def steps(self, limit: int) -> int:
        """Tokens that the only row gets at most: `limit`, its own bound, or the context's room: one at least."""
        return 0 if self._stopped else min(limit, self._left[0])

    def ended(self, ids: Sequence[int]) -> None:
        """Note why the only row ended, which `choose` did not see. ids: its new tokens, with a run between any two."""
        self.choices += len(ids)
        self._decoding.passes += max(len(ids) - 1, 0)
        if ids and ids[-1] in self.ends:
            self.reasons[0] = "stop"
        elif ids and len(ids) >= self._left[0]:
            self.reasons[0] = self._bounds[0]
