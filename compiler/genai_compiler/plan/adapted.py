"""The op that makes a request's choice of adapters a value (ir.py has all others)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SelectAdapters:
    """First in a run: which adapters each row uses (standard, 6.2 and 6.3). Refuses a selection that is none.

    inputs: segments, counts, scales, and active where there is one. selected: the value that overlays read, "" without
    overlays; overlays: (component, parameter) of each. factors: (component, the value that its runs take factors from).
    """

    inputs: tuple[str, ...]
    selected: str
    factors: tuple[tuple[str, str], ...]
    overlays: tuple[tuple[str, str], ...]
    origin: str

    @property
    def made(self) -> tuple[str, ...]:
        """The values that it defines."""
        return (*([self.selected] if self.selected else []), *(value for _, value in self.factors))
