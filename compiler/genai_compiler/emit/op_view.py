"""What a template is given of one op, and what views share while a plan is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from genai_compiler.emit.names import Names
from genai_compiler.plan.adapted import SelectAdapters
from genai_compiler.plan.ir import Cell, Hold, Plan


@dataclass(frozen=True)
class OpView:
    """What one template places: its fields, and the views of nested regions."""

    template: str
    fields: Mapping[str, str | tuple[str, ...]]
    regions: "Mapping[str, tuple[OpView, ...]]" = field(default_factory=dict)


@dataclass
class Uses:
    """What the module around the ops must provide: runners, cell tables, imported names. spare: runners seldom used.

    tables: a cell's name -> that of its table.
    """

    runners: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], str]] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    held: dict[str, tuple[str, str, Hold]] = field(default_factory=dict)
    selector: tuple[str, SelectAdapters] | None = None
    imports: set[str] = field(default_factory=set)
    spare: set[str] = field(default_factory=set)
    publishes: bool = False


@dataclass
class Writing:
    """The plan that is being written, the names that it has taken, and what the module must provide so far."""

    plan: Plan
    names: Names
    uses: Uses = field(default_factory=Uses)

    def call(self, function: str, *args: str) -> str:
        """A call of a function of the runtime, which is imported then."""
        self.uses.imports.add(function)
        return f"{function}({', '.join(args)})"
