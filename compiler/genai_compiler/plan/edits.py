"""Edits of a component's graph: what a pass asks for and emit/ carries out (docs/decisions/0007)."""

from collections.abc import Collection
from dataclasses import dataclass


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
class Member:
    """One component of an island: (port, value) pairs in and out."""

    component: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Hoist:
    """A selection of positions that moves before the projection it selects from (pass hoist_selection).

    projected: the value that the first member's graph gives, [rows, positions, features]; hidden: what all of it comes
    from; behind: the values from there on, in that graph's names. drops: the selection leaves no axis of positions.
    """

    projected: str
    hidden: str
    behind: tuple[str, ...]
    drops: bool


@dataclass(frozen=True)
class Linked:
    """Members' graphs in order, linked by value (passes fuse_islands, link_readers). outputs: what leaves it."""

    members: tuple[Member, ...]
    outputs: tuple[str, ...]
    hoist: Hoist | None = None


Edit = SelectLast | Linked


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, behind it as many underscores as make it none of those taken."""
    while name in taken:
        name += "_"
    return name
