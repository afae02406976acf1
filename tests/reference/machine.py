"""What one invocation carries along while its steps run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.reference.document import steps_below
from tests.reference.emits import Publisher
from tests.reference.values import Array, Document, ReferenceError, Scope

Env: TypeAlias = dict[str, Array]
SessionStore: TypeAlias = dict[tuple[str, str], Array]


@dataclass
class Machine:
    """One invocation: the document, the request's options, and everything that outlives a region."""

    package: Path
    document: Document
    scope: Scope
    publisher: Publisher
    stop_on_eos: bool = True
    session: str | None = None
    store: SessionStore = field(default_factory=dict[tuple[str, str], Array])
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    iterations: int = 0
    final_cells: Env = field(default_factory=dict[str, Array])
    prompt_mask: Array | None = None

    @property
    def workflow(self) -> Document:
        """The executable part of the document."""
        return dict(self.document["pipeline"]["workflow"])

    @property
    def cells(self) -> Document:
        """State cells by name."""
        return dict(self.workflow.get("state") or {})

    @property
    def groups(self) -> Document:
        """State-service groups by name."""
        serving = self.workflow.get("serving") or {}
        return dict(serving.get("state_service", {}).get("groups", {}))

    def stored(self, cell: str) -> Array | None:
        """The value a session left in a cell; None outside a session, on a first turn, or for other cells."""
        if self.session is None or self.cells[cell]["scope"] != "session":
            return None
        return self.store.get((self.session, cell))

    def keep_session(self, env: Env) -> None:
        """Store the final value of every session cell; the caller does this after a whole success only."""
        if self.session is None:
            return
        steps = list(steps_below(self.workflow["steps"]))
        carried = {carry["cell"] for step in steps for carry in step.get("carried", [])}
        for name, cell in self.cells.items():
            if cell["scope"] != "session":
                continue
            if name in self.final_cells:
                self.store[(self.session, name)] = self.final_cells[name].copy()
            elif name not in carried and cell["initializer"] in env:
                self.store[(self.session, name)] = env[cell["initializer"]].copy()


def read(env: Mapping[str, Array], name: str) -> Array:
    """A value by its SSA name. Raises ReferenceError of kind missing_input (only absent inputs can be missing)."""
    if name not in env:
        raise ReferenceError("missing_input", f"value {name!r} has no value here")
    return env[name]
