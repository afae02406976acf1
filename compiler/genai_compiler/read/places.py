"""Where each value of a document stood, and how a document path is written."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genai_compiler.problem import Place

DocPath = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_LONGEST_KEY = 120
LONGEST_SHOWN = 80
"""Characters of a value that a message shows."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value begins (line and column from 1), and the spots of what it holds.

    `entries` maps a key to (line of the key, its column, the value's spot), `items` are the spots of a list.
    """

    line: int
    column: int
    entries: Mapping[str, tuple[int, int, "Spot"]] | None = None
    items: Sequence["Spot"] | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Where the values of one document stand. `file` is package-relative; without `root` no lines are known."""

    file: str
    root: Spot | None = None

    def find(self, path: DocPath) -> Place:
        """The key (or list item) that `path` names, or the nearest enclosing one that the document has."""
        return self._walk(path)[0]

    def find_value(self, path: DocPath) -> Place:
        """Where the value of `path` begins: for a block mapping the line below its key."""
        return self._walk(path)[1]

    def _walk(self, path: DocPath) -> tuple[Place, Place]:
        spot = self.root
        if spot is None:
            return Place(self.file), Place(self.file)
        key = value = Place(self.file, spot.line, spot.column)
        for step in path:
            if spot.entries is not None and isinstance(step, str) and step in spot.entries:
                line, column, spot = spot.entries[step]
                key = Place(self.file, line, column)
            elif spot.items is not None and isinstance(step, int) and 0 <= step < len(spot.items):
                spot = spot.items[step]
                key = Place(self.file, spot.line, spot.column)
            else:
                break
            value = Place(self.file, spot.line, spot.column)
        return key, value

    @staticmethod
    def format_path(path: DocPath) -> str:
        """`pipeline.workflow.steps[0].inputs["request.ids"]`: only plain words stand behind a dot."""
        return format_path(path)


def format_path(path: DocPath) -> str:
    """A document path as text; odd keys are quoted, unprintable characters escaped, endless ones cut."""
    return "".join(_segment(step) for step in path).removeprefix(".")


def _segment(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_KEY.match(step) and len(step) <= _LONGEST_KEY:
        return f".{step}"
    return f"[{quoted(step, _LONGEST_KEY)}]"


def as_written(value: object) -> str:
    """A value of a document as JSON has it, a text in quotes: `true`, `null`, `[1]`, `'text'`; cut where it is long."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def quoted(text: str, longest: int = 60) -> str:
    """`text` in double quotes on one line, safe to print: controls and lone surrogates escaped, cut at `longest`."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    shown = json.dumps(cut, ensure_ascii=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in shown)
