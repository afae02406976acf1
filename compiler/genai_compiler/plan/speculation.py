"""Speculation as facts: who drafts for the decoder that the runtime drives, by which ports, how far, and who asks.

DraftSpec and BudgetSpec are, by name and field, the runtime's (`drafting`, `budget`): generated code states them.
"""

from dataclasses import dataclass

from genai_compiler.plan.state import Slot

Typed = tuple[str, str]
"""A port and its dtype."""


@dataclass(frozen=True)
class BudgetSpec:
    """A graph that says how many tokens to draft next (contract adaptive-proposal-budget, 4.1).

    inputs, outputs: (role, port, dtype, rank); estimates: extents of the state that it keeps for itself, which is
    advisory: it is made for one request and stored nowhere.
    """

    component: str
    origin: str
    inputs: tuple[tuple[str, str, str, int], ...]
    outputs: tuple[tuple[str, str], ...]
    estimates: tuple[int, ...]


@dataclass(frozen=True)
class DraftSpec:
    """How the proposer is driven (standard, 7.1 and 7.2).

    chained: one token a run, else a whole block. vocabulary: its ids are the target's first so many, 0: all.
    tokens: takes token ids: the last one, of a block proposer all so far. fused: takes the last token's row of the
    target's initializer `table`, and behind it the carry where one is folded in. context: takes `seed` of the last
    position as it is. carry: the output that goes into the next `fused`. seed: the target's output that a block's
    first carry, or the context, is. drafts: its output, logits or ids. recurrent: state of its own. borrowed: (port,
    past port of the target) pairs. one_position: a run takes one position.
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


@dataclass(frozen=True)
class Speculation:
    """What the document's `speculative` block comes to.

    by_itself: a request need not ask (standard, 7.4). drafting: None where the runtime does not drive it; then
    `reason` says why, in words, and the workflow runs as if the block were not there.
    """

    proposer: str
    target: str
    chained: bool
    width: int
    by_itself: bool
    drafting: DraftSpec | None
    reason: str
