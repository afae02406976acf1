"""Ops of a decoder whose step and policy the runtime supplies (standard, 4.3 and 10.3). Part of the IR: see ir.py."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Decode:
    """One decoder pass whose state, mask and positions the runtime owns. phase `prompt` takes the request's tokens.

    extras: (port, value) pairs of the document's own, bound once and the same for a whole request. maximum: the value
    that bounds the prompt's length, "" for none. media: (port, value) pairs beside the tokens, one value with the
    prompt and another with later tokens: of the front, or the decoder's own where there is none. positions: the value
    that gives the prompt's positions where its numbers are not negative, "" where none can. adapted: the value with the
    factors of its adapters, "" for none; it is bound once, too.
    """

    component: str
    phase: Literal["prompt", "step"]
    tokens: str
    logits: str
    origin: str
    extras: tuple[tuple[str, str], ...] = ()
    maximum: str = ""
    media: tuple[tuple[str, str], ...] = ()
    positions: str = ""
    adapted: str = ""


@dataclass(frozen=True)
class StartPolicy:
    """The runtime's token policy before its first choice: which rows are live, done, and what they accepted."""

    active: str
    done: str
    accepted: str
    origin: str


@dataclass(frozen=True)
class SelectToken:
    """The runtime's token policy: logits in; token [rows, 1], liveness and per-row accepted length out."""

    logits: str
    token: str
    active: str
    done: str
    accepted: str
    origin: str


@dataclass(frozen=True)
class LastRun:
    """Behind a decoder's loop: (port, value) of what its last run gave where the loop itself reads nothing."""

    component: str
    pairs: tuple[tuple[str, str], ...]
    origin: str


@dataclass(frozen=True)
class SpeculativeBlock:
    """The body of a decoder's loop as a block (standard, 4.3): draft, verify in one pass, accept, roll back the rest.

    decode, select: the single-token body that it stands for: where a request asks for no drafts, the block is that.
    token is now [rows, accepted], and `select.accepted` of it are accepted.
    """

    decode: Decode
    select: SelectToken
    proposer: str
    width: int
    origin: str
