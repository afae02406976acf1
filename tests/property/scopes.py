"""What a region of a made workflow can read."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.property.kinds import Kind


@dataclass(frozen=True)
class Value:
    """A value of the workflow. local: row r of it depends on row r of the request (and on what all rows share) alone.

    declared: its contract stands in the document. cell: a loop carries it.
    """

    name: str
    kind: Kind
    local: bool = True
    declared: bool = True
    cell: bool = False


@dataclass
class Scope:
    """The values of one region, those of the regions around it first.

    guards: liveness of the loops around, where a row's emits have to heed it. nested: how many loops stand around.
    """

    values: list[Value] = field(default_factory=list[Value])
    guards: tuple[Value, ...] = ()
    nested: int = 0
    in_branch: bool = False

    def inner(self, *, loop: bool = False, branch: bool = False) -> "Scope":
        """A region nested here."""
        return Scope(list(self.values), self.guards, self.nested + loop, self.in_branch or branch)

    def where(self, wanted: Callable[[Value], bool]) -> list[Value]:
        """The values that fit."""
        return [each for each in self.values if wanted(each)]
