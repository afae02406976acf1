"""Names in scope while a plan is built: document names -> plan values, each plan value defined once."""

from genai_compiler.plan.ir import Type


class Values:
    """Every plan value and its type. Sibling regions may reuse a document name; the later ones get a suffix."""

    def __init__(self) -> None:
        self.types: dict[str, Type] = {}

    def define(self, name: str, type: Type) -> str:
        """A fresh plan value for a document name."""
        unique, count = name, 1
        while unique in self.types:
            count += 1
            unique = f"{name}'{count}"
        self.types[unique] = type
        return unique


class Scope:
    """What a region can see: its own names and those of the regions around it."""

    def __init__(self, values: Values, parent: "Scope | None" = None) -> None:
        self.values, self._parent = values, parent
        self._names: dict[str, str] = {}

    def inner(self) -> "Scope":
        """The scope of a region nested here."""
        return Scope(self.values, self)

    def define(self, name: str, type: Type) -> str:
        """Make `name` visible here. The caller has checked that it is free."""
        self._names[name] = self.values.define(name, type)
        return self._names[name]

    def bind(self, name: str, value: str) -> None:
        """Make an existing value visible here (a cell after its loop)."""
        self._names[name] = value

    def find(self, name: str) -> str | None:
        """The plan value of a name, or None when nothing visible has it."""
        if name in self._names:
            return self._names[name]
        return self._parent.find(name) if self._parent else None

    def type(self, value: str) -> Type:
        """The type of a plan value."""
        return self.values.types[value]
