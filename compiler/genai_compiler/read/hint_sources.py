"""Where execution hints come from, strongest first: the caller, a user's file, the graphs (standard, section 9).

The standard's third source, hints inside the metadata, has no field in the closed document; what is written there is
refused like any unknown field, and its help names the file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.files import read_document
from genai_compiler.read.hints import DeviceTarget, ExecutionHints, NodeSelector
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.validate import parse_hints

CALLER, FILE, DOCUMENT, GRAPH = 1, 2, 3, 4
"""Ranks of the sources as the standard counts them; a lower one is stronger."""
MAX_HINTS = 200
"""How many hints one source may give."""
Action = Literal[
    "placement", "pin", "low_priority", "allow_alias", "arena_size", "prefetch", "overlap", "cuda_graph_region",
    "no_cuda_graph", "chunk_size", "group", "offloadable", "kernel",
]  # fmt: skip
"""What a hint asks for; the last three stand only in graphs."""


@dataclass(frozen=True)
class Hint:
    """One hint. where, path: its place. rank: of its source. amount: bytes, or a chunk's size; None: none given.

    component, nodes: what a graph says of itself; otherwise the selector says (None: everything).
    """

    action: Action
    where: Place
    path: str
    rank: int
    selector: NodeSelector | None = None
    device: DeviceTarget | None = None
    force: bool = False
    amount: int | None = None
    component: str = ""
    nodes: frozenset[int] | None = None

    @property
    def name(self) -> str:
        """The hint by its place: `execution_hints.json:4 placement[0]`."""
        return f"{self.where} {self.path}"


@dataclass(frozen=True)
class SourcedHints:
    """All hints of one source, in its order."""

    hints: tuple[Hint, ...]


def caller_hints(hints: ExecutionHints | Mapping[str, Any]) -> SourcedHints:
    """Hints that a program gives, typed or as plain data. Raises CompileError with every fault of them."""
    places = Places("Options.hints")
    typed = hints if isinstance(hints, ExecutionHints) else parse_hints(dict(hints), places)
    return _sourced(typed, places, CALLER)


def file_hints(file: str | Path) -> SourcedHints:
    """Hints of a user's file. Raises CompileError with every fault of it."""
    found = Path(file).resolve()
    data, places = read_document(found, found.parent)
    return _sourced(parse_hints(data, places), places, FILE)


def _sourced(hints: ExecutionHints, places: Places, rank: int) -> SourcedHints:
    count = len(hints.placement) + len(hints.memory) + len(hints.scheduling)
    if count > MAX_HINTS:
        what = f"there are {count} hints; at most {MAX_HINTS} are read"
        raise CompileError(
            [Problem("too-many-hints", Place(places.file), "", what, "select by patterns, not one by one")]
        )
    return SourcedHints(tuple(_listed(hints, places, rank)))


def _listed(hints: ExecutionHints, places: Places, rank: int) -> Iterator[Hint]:
    def at(*path: str | int) -> tuple[Place, str, int]:
        place: DocPath = path
        return places.find(place), format_path(place), rank

    for index, each in enumerate(hints.placement):
        place = at("placement", index)
        yield Hint("placement", *place, selector=each.selector, device=each.device, force=each.strength == "force")
    for index, memory in enumerate(hints.memory):
        place = at("memory", index)
        yield Hint(memory.action, *place, selector=memory.selector, device=memory.device, amount=memory.bytes)
    for index, scheduling in enumerate(hints.scheduling):
        place = at("scheduling", index)
        yield Hint(scheduling.action, *place, selector=scheduling.selector, amount=scheduling.chunk_size)
