"""What a region of steps can see while a document is checked (standard, 2.9)."""

from dataclasses import dataclass, field

from genai_compiler.read.document import TensorContract


@dataclass(frozen=True)
class Value:
    """A defined name.

    contract: None when only a graph knows it. carried: made by a loop's carry. reported: its definition is at fault and
    was reported, so that nothing further is said about it. missing: nothing defines it, and that was reported.
    """

    contract: TensorContract | None = None
    carried: bool = False
    reported: bool = False
    missing: bool = False


REPORTED = Value(reported=True)
MISSING = Value(reported=True, missing=True)


@dataclass(frozen=True)
class Scope:
    """The names of one region, in the regions around it. present: optional inputs that are known to be there."""

    outer: "Scope | None" = None
    present: frozenset[str] = frozenset()
    names: dict[str, Value] = field(default_factory=dict[str, Value])

    def inner(self, present: str | None = None) -> "Scope":
        """A region nested here; inside, the input `present` is known to be there."""
        return Scope(self, self.present if present is None else self.present | {present})

    def find(self, name: str) -> Value | None:
        """What a name means here; None when nothing visible defines it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def taken(self, name: str) -> Value | None:
        """As `find`, without names that were only read."""
        value = self.find(name)
        return None if value is None or value.missing else value

    def visible(self) -> tuple[str, ...]:
        """Every name that can be read here."""
        outer = self.outer.visible() if self.outer is not None else ()
        return (*outer, *(name for name, value in self.names.items() if not value.missing))

    def at_root(self, name: str) -> bool:
        """Whether the root region is what defines this name."""
        scope = self
        while name not in scope.names and scope.outer is not None:
            scope = scope.outer
        return scope.outer is None
