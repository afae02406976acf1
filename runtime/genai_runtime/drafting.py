"""A proposer at work: the tokens that it guesses will follow (standard, 7.2).

Guesses cost or save time and never change a token, so nothing here decides what is published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_runtime import binding
from genai_runtime.block_decoding import BlockDecoding
from genai_runtime.budget import BudgetSpec
from genai_runtime.problem import ExecutionError
from genai_runtime.sessions import Sessions
from genai_runtime.state import GROWTH, Slot, empty_state
from genai_runtime.values import NUMPY, Array, Value, encode, from_bfloat16, to_array, to_value

Typed = tuple[str, str]
"""A port and its dtype."""


@dataclass(frozen=True)
class DraftSpec:
    """How the proposer is driven, taken from document and graphs at compile time.

    chained: one token a run, else a whole block. vocabulary: its ids are the target's first so many, 0: all. tokens:
    takes ids: the last token, of a block proposer all so far. fused: takes the last token's row of `table`, and behind
    it the carry where there is one. context: takes `seed` of the last position. carry: the output that goes into the
    next `fused`. seed: the target's output [1, positions, width] that a first carry, or the context, is. drafts: its
    output, logits or ids. recurrent: state of its own. borrowed: (port, past port of the target). one_position: a run
    takes one position.
    """

    component: str
    origin: str
    chained: bool
    width: int
    vocabulary: int
    tokens: Typed | None
    fused: Typed | None
    table: str
    context: Typed | None
    carry: str
    seed: str
    mask: Typed | None
    positions: Typed | None
    drafts: str
    logits: bool
    recurrent: tuple[Slot, ...]
    borrowed: tuple[tuple[str, str], ...]
    one_position: bool
    budget: BudgetSpec | None = None


class Proposer:
    """A proposer and its state in one request of one row.

    The state after every run of a block is kept until the target has said how far it agrees: rolling back is taking
    an earlier one, which is the same for state that grows and state of one size.
    """

    def __init__(self, sessions: Sessions, spec: DraftSpec) -> None:
        self.spec = spec
        self._run = binding.run_with_values(sessions.session(spec.component), spec.origin)
        self._table = sessions.table(spec.component) if spec.table else np.empty((0, 0), np.float32)
        self._outputs = [spec.drafts, *([spec.carry] if spec.carry else []), *(each.present for each in spec.recurrent)]
        self._state: Sequence[Value] = empty_state(spec.recurrent, 1)
        self._length, self._fed = 0, 1 if spec.seed else 0
        self._after: list[tuple[Sequence[Value], int]] = []

    def propose(self, tokens: Sequence[int], width: int, target: BlockDecoding) -> list[int]:
        """Up to `width` guesses of what follows `tokens`, of which the target has run all but the last.

        Raises ExecutionError `step-failed`.
        """
        try:
            drafts = self._chain(tokens, width, target) if self.spec.chained else self._block(tokens, width, target)
        except (ValueError, IndexError) as failure:  # numpy's, of shapes that the graphs declare otherwise
            raise self._failed(
                f"what it takes or gives has another shape than its graph declares: {failure}"
            ) from failure
        size = self.spec.vocabulary or target.spec.vocab_size
        return drafts[: next((at for at, each in enumerate(drafts) if not 0 <= each < size), len(drafts))]

    def settle(self, agreed: int) -> None:
        """Roll back: the target agrees with the first so many drafts of the block."""
        if self._after:
            at = min(agreed, len(self._after) - 1)
            self._state, self._length = self._after[at]
            self._fed += at
            self._after = []

    # ---- a block in one run ------------------------------------------------------------------------------------------

    def _block(self, tokens: Sequence[int], width: int, target: BlockDecoding) -> list[int]:
        hidden = target.seeds(self.spec.seed)[1][-1:] if self.spec.seed else None
        made = self._step(list(tokens), hidden, 0, target)
        found = to_array(made[0])
        ids = self._argmax(found[0]) if self.spec.logits else found[0]
        drafts: list[int] = ids[:width].tolist()
        return drafts

    # ---- one token a run ---------------------------------------------------------------------------------------------

    def _chain(self, tokens: Sequence[int], width: int, target: BlockDecoding) -> list[int]:
        places, hidden = self._pending(tokens, target)
        count = 1 if self.spec.one_position else target.chunk or len(places)
        for at in range(0, len(places), count):
            part = places[at : at + count]
            seeds = hidden[at : at + count] if hidden is not None else None
            made = self._step([tokens[each] for each in part], seeds, part[0], target)
        hidden, self._fed = (hidden[-1:] if hidden is not None else None), len(tokens)
        self._after = [(self._state, self._length)]
        drafts = [self._best(made)]
        while len(drafts) < width and 0 <= drafts[-1] < (len(self._table) or target.spec.vocab_size or 1 << 31):
            carried = to_array(made[1])[0][-1:] if self.spec.carry else hidden
            made = self._step(drafts[-1:], carried, len(tokens) + len(drafts) - 1, target)
            self._after.append((self._state, self._length))
            drafts.append(self._best(made))
        return drafts

    def _pending(self, tokens: Sequence[int], target: BlockDecoding) -> tuple[range, Array | None]:
        """Places of tokens that its state has not seen, the last among them, and the target's seed before each."""
        first = self._fed if self.spec.recurrent else len(tokens) - 1
        if not self.spec.seed:
            return range(first, len(tokens)), None
        start, seeds = target.seeds(self.spec.seed)
        places = range(max(first, start + 1), len(tokens))
        return places, seeds[places.start - 1 - start : places.stop - 1 - start]

    def _best(self, made: Sequence[Value]) -> int:
        return int(self._argmax(to_array(made[0]).reshape(-1, made[0].shape()[-1])[-1:])[0])

    def _argmax(self, logits: Array) -> Array:
        known: Array = logits[:, : self.spec.vocabulary or None].argmax(axis=-1)
        return known

    # ---- a run -------------------------------------------------------------------------------------------------------

    def _step(self, ids: list[int], hidden: Array | None, place: int, target: BlockDecoding) -> Sequence[Value]:
        """One run over tokens at consecutive places; hidden: [tokens, width], what the target made before each."""
        spec, count = self.spec, len(ids)
        feeds: dict[str, Value] = dict(zip((each.past for each in spec.recurrent), self._state, strict=True))
        feeds.update((port, target.borrow(past)) for port, past in spec.borrowed)
        if spec.tokens is not None:
            feeds[spec.tokens[0]] = _tensor([ids], spec.tokens)
        if spec.fused is not None:
            rows = self._embedded(ids)
            whole = np.concatenate([rows, hidden], axis=-1) if spec.carry and hidden is not None else rows
            feeds[spec.fused[0]] = _tensor(whole[None], spec.fused)
        if spec.context is not None and hidden is not None:
            feeds[spec.context[0]] = _tensor(hidden[None], spec.context)
        if spec.mask is not None:
            feeds[spec.mask[0]] = _tensor(np.ones((1, self._width(count, target))), spec.mask)
        if spec.positions is not None:
            feeds[spec.positions[0]] = _tensor(np.arange(place, place + count)[None], spec.positions)
        try:
            made = binding.results(self._run(feeds, self._outputs, None))
        except binding.RUN_FAILURES as failure:
            raise self._failed(str(failure)) from failure
        self._state = made[len(made) - len(spec.recurrent) :]
        self._length += count
        return made

    def _failed(self, what: str) -> ExecutionError:
        where = f"{self.spec.origin} (component '{self.spec.component}')"
        return ExecutionError("step-failed", what, origin=where)

    def _embedded(self, ids: list[int]) -> Array:
        rows = self._table[ids]
        return from_bfloat16(rows) if rows.dtype == np.uint16 else rows.astype(np.float32)

    def _width(self, count: int, target: BlockDecoding) -> int:
        """Columns of the mask: what a query may look at."""
        if any(GROWTH in slot.dims for slot in self.spec.recurrent):
            return self._length + count
        return target.filled if self.spec.borrowed else count


def _tensor(numbers: Any, port: Typed) -> Value:
    return to_value(encode(numbers, port[1]), port[1]) if port[1] in NUMPY else to_value(np.asarray(numbers))
