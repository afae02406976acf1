"""Edits of a component's graph: what a pass asks for and emit/ carries out (docs/decisions/0007)."""

from collections.abc import Collection
from dataclasses import dataclass

from genai_compiler.read.cuts import Cut
from genai_compiler.read.link_graphs import Hoist as Hoist
from genai_compiler.read.link_graphs import Linked as Linked
from genai_compiler.read.link_graphs import Member as Member
from genai_compiler.read.mask_lengths import MaskLengths
from genai_compiler.read.turned_weights import TurnedWeight


@dataclass(frozen=True)
class SelectLast:
    """An edit of a graph: from one value on it computes one position a row (pass select_last).

    port: the new input, int64 [rows, 1, 1]: the position in each row. hidden: what all logits come from, [rows,
    positions, features]. thinned: the values behind it that get one position, the logits last. label: the node that
    gives `hidden`.
    """

    port: str
    hidden: str
    thinned: tuple[str, ...]
    label: str


@dataclass(frozen=True)
class FeedLengths:
    """An edit of a graph: attention reads two new inputs where it read what was computed from a mask (feed_lengths).

    last, width: the new inputs, int32 [rows] and int32 [1]: each row's last position, and how wide the mask would be.
    found: what they stand for.
    """

    mask: str
    last: str
    width: str
    found: MaskLengths


@dataclass(frozen=True)
class GatherColumns:
    """An edit of a graph: columns of a weight are gathered, not rows of the weight transposed (gather_columns)."""

    found: TurnedWeight


@dataclass(frozen=True)
class Edited:
    """A graph of the package with edits, carried out in this order."""

    parts: tuple[SelectLast | FeedLengths | GatherColumns, ...]


Edit = Edited | Linked


@dataclass(frozen=True)
class Parts:
    """A component's graph, edits done, runs as two one behind the other, a session each (pass split_opening).

    names: of the two. cut: where. extents: of what crosses, in terms of the extents of ports ("port axis"), by value.
    """

    names: tuple[str, str]
    cut: Cut
    extents: tuple[tuple[str, tuple[int | str, ...]], ...]


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, behind it as many underscores as make it none of those taken."""
    while name in taken:
        name += "_"
    return name
