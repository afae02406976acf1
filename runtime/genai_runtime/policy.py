"""The token policy that the runtime supplies: select a token a row, decide which rows go on (standard, 4.3)."""

from collections.abc import Callable

from genai_runtime.decoding import Decoding
from genai_runtime.request import Request
from genai_runtime.sample import make_selector

UNLIMITED = 1 << 62


class TokenPolicy:
    """Selection and liveness of the rows of one request. `live`: the rows that go on; `reasons`: why others ended."""

    def __init__(self, request: Request, decoding: Decoding) -> None:
        self.rows = rows = decoding.rows
        every = isinstance(request.valid_ids, int) and not request.valid_ids
        valid = decoding.spec.vocab_size if every else request.valid_ids
        options = request.sampling * rows if len(request.sampling) == 1 else request.sampling
        self._select = [
            make_selector(
                options[row],
                vocab_size=decoding.spec.vocab_size,
                valid_ids=valid,
                end_ids=request.end_ids,
                prompt=decoding.ids[row, : int(decoding.lengths[row])].tolist(),
            )
            for row in range(rows)
        ]
        self._tokens, self._row_logits = decoding.tokens, [decoding.logits[row] for row in range(rows)]
        self._ends = request.end_ids if request.stop_on_eos else frozenset[int]()
        limit = decoding.spec.capacity or request.context_length
        self._left = [limit - int(length) if limit else UNLIMITED for length in decoding.lengths]
        self._stopped = request.stopped
        self.live = list(range(rows))
        self.reasons: dict[int, str] = {}
        self.choose: Callable[[], list[int]] = self._choose_for_one() if rows == 1 else self._choose_for_all
        """Writes each live row's next token into the decoder's token buffer. Returns the rows that were live before."""

    def _choose_for_one(self) -> Callable[[], list[int]]:
        """The only row's choice, over locals: a step's host work runs on cold caches, where every object met counts."""
        select, logits, place = self._select[0], self._row_logits[0], self._tokens[0]
        ends, left, only, stopped = self._ends, self._left[0], [0], self._stopped

        def choose() -> list[int]:
            nonlocal left
            if stopped:
                self.live = []
                return self.live
            token = select(logits)
            place[0] = token
            left -= 1
            if token in ends:
                self.reasons[0] = "stop"
                self.live = []
            elif left <= 0:
                self.reasons[0] = "context"
                self.live = []
            return only

        return choose

    def _choose_for_all(self) -> list[int]:
        tokens, ends, left = self._tokens, self._ends, self._left
        if self._stopped:
            self.live = [row for row in self.live if row not in self._stopped]
        chosen = self.live
        ended = False
        for row in chosen:
            token = self._select[row](self._row_logits[row])
            tokens[row, 0] = token
            left[row] -= 1
            if token in ends:
                self.reasons[row] = "stop"
                ended = True
            elif left[row] <= 0:
                self.reasons[row] = "context"
                ended = True
        if ended:
            self.live = [row for row in chosen if row not in self.reasons]
        return chosen
