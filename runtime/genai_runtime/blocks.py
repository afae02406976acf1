"""Decoding by blocks: draft, verify in one run, keep what the token policy itself would have chosen (standard, 4.3, 7).

A draft never chooses: at every position the token policy chooses from the target's own logits, with the history and the
random numbers that it would have had anyway, and a draft that it agrees with saves the run that would have followed. So
every option of sampling, end tokens, limits and stops mean what they mean without drafts.
"""

import time
from collections.abc import Iterator
from functools import partial

from genai_runtime.block_decoding import BlockDecoding
from genai_runtime.budget import Budget
from genai_runtime.decoding import Decoder, DecoderSpec, Decoding, Kind
from genai_runtime.drafting import DraftSpec, Proposer
from genai_runtime.policy import TokenPolicy
from genai_runtime.request import Request
from genai_runtime.sessions import Sessions
from genai_runtime.values import Array


class SpeculativeDecoder(Decoder):
    """A decoder with a proposer, whose session is opened by the first request that asks for drafts."""

    def __init__(self, sessions: Sessions, spec: DecoderSpec, drafts: DraftSpec) -> None:
        super().__init__(sessions, spec)
        self._sessions, self._drafts = sessions, drafts

    def kind(self, request: Request, rows: int) -> Kind:
        """Blocks are of one row: rows accept different lengths, so several advance together, a token a step."""
        if not request.speculate or rows != 1:
            return super().kind(request, rows)
        keep = (self._drafts.seed,) if self._drafts.seed else ()
        return partial(BlockDecoding, keep=keep)

    def block(self, decoding: Decoding, policy: TokenPolicy, request: Request, limit: int) -> "Blocks | None":
        """The blocks of a request that asks for drafts; None for one that does not."""
        if not isinstance(decoding, BlockDecoding):
            return None
        proposer, budget = Proposer(self._sessions, self._drafts), self._drafts.budget
        return Blocks(decoding, policy, proposer, Budget(self._sessions, budget, self._drafts.width), request, limit)


class Blocks:
    """The blocks of one row. Iterating runs them: each gives the tokens that it commits, one at least.

    committed: all so far. count: blocks so far. drafted, accepted: tokens that the proposer made, and that stayed.
    The first block has no drafts: it commits the choice that the prompt's run allows.
    """

    def __init__(
        self,
        decoding: BlockDecoding,
        policy: TokenPolicy,
        proposer: Proposer,
        budget: Budget,
        request: Request,
        limit: int,
    ) -> None:
        self._decoding, self._policy, self._proposer, self._budget = decoding, policy, proposer, budget
        self._tokens, self._limit, self._tally = decoding.ids[0, : decoding.filled].tolist(), limit, request.tally
        self.committed, self.dtype = list[int](), decoding.tokens.dtype
        self.count = self.drafted = self.accepted = 0

    def __iter__(self) -> Iterator[list[int]]:
        logits, drafts = self._decoding.logits.copy(), list[int]()
        while len(self.committed) < self._limit:
            chosen = self._choose(logits, drafts)
            if not chosen:
                return
            agreed = min(len(chosen), len(drafts)) if chosen == drafts[: len(chosen)] else len(chosen) - 1
            self._count(len(drafts), agreed)
            yield chosen
            if not self._policy.live or len(self.committed) >= self._limit:
                return
            self._decoding.take_back(len(drafts) - agreed)
            self._proposer.settle(agreed)
            logits, drafts = self._verify(agreed, chosen)

    def _choose(self, logits: Array, drafts: list[int]) -> list[int]:
        """What the policy chooses, position by position, while the drafts agree. logits: [drafts + 1, vocab]."""
        decoding, chosen = self._decoding, list[int]()
        for at in range(len(drafts) + 1):
            decoding.logits[0] = logits[at]
            if not self._policy.choose():
                break
            token = int(decoding.tokens[0, 0])
            chosen.append(token)
            self.committed.append(token)
            ended = not self._policy.live or len(self.committed) >= self._limit
            if ended or at == len(drafts) or token != drafts[at]:
                break
        self._tokens += chosen
        return chosen

    def _verify(self, agreed: int, chosen: list[int]) -> tuple[Array, list[int]]:
        """Draft behind the last token and run both: logits [drafts + 1, vocab], drafts."""
        decoding, started = self._decoding, time.perf_counter()
        left = min(self._limit - len(self.committed), self._policy.left)
        width = min(self._budget.width, left - 1, decoding.room.most - decoding.filled - 1)
        drafts = self._proposer.propose(self._tokens, width, decoding) if width > 0 else []
        drafted = time.perf_counter()
        logits = decoding.run([self._tokens[-1], *drafts])
        self._times = drafted - started, time.perf_counter() - drafted
        return logits, drafts

    def _count(self, drafted: int, agreed: int) -> None:
        self.count += 1
        self.drafted += drafted
        self.accepted += agreed
        self._tally.drafted += drafted
        self._tally.accepted += agreed
        if drafted:
            draft, target = self._times
            self._budget.learn(agreed, drafted, agreed + 1, 1e3 * draft, 1e3 * target)
