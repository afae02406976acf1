"""The token policy that the runtime supplies: select a token a row, decide which rows go on (standard, 4.3)."""

from genai_runtime.decoding import Decoding
from genai_runtime.request import Request
from genai_runtime.sample import make_selector

UNLIMITED = 1 << 62


class TokenPolicy:
    """Selection and liveness of the rows of one request. `live` lists the rows that go on; `reasons` why others ended."""

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

    def choose(self) -> list[int]:
        """Write each live row's next token into the decoder's token buffer. Returns the rows that were live before."""
        tokens, ends, left = self._tokens, self._ends, self._left
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
        if ended or self._stopped:
            self.live = [row for row in chosen if row not in self.reasons and row not in self._stopped]
        return chosen
