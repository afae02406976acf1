"""Plain data from the events of a parser, with bounds: depth, values and their texts (aliases counted as written out).

Both readers (YAML, JSON) report their events here, so that both formats meet the same bounds, the same refusal of
repeated keys and the same record of places. Nothing recurses: a hostile document can't exhaust the stack.
"""

import re
from dataclasses import dataclass, field

from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.places import DocPath, Places, Spot, format_path, quoted

_UNWANTED = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Limits:
    """Bounds of one document: bytes, nesting, one text, values with aliases written out, faults before reading stops.

    The texts of all values, aliases written out, are no longer than a file may be. A name is repeated by whatever
    speaks of it, in messages and in what is made, so that one text is far shorter than a file.
    """

    size: int = 16 * 1024 * 1024
    depth: int = 64
    text: int = 64 * 1024
    values: int = 1_000_000
    problems: int = 200


@dataclass(slots=True)
class _Node:
    """A finished value and its spot. count: values it holds, itself included; height: how deep they nest; text: the
    characters of their keys and texts."""

    value: object
    spot: Spot
    count: int = 1
    height: int = 0
    text: int = 0


@dataclass(slots=True)
class _Frame:
    """A container still open."""

    line: int
    column: int
    anchor: str | None
    mapping: dict[str, object] | None
    sequence: list[object]
    entries: dict[str, tuple[int, int, Spot]] = field(default_factory=dict[str, tuple[int, int, Spot]])
    items: list[Spot] = field(default_factory=list[Spot])
    key: tuple[str, int, int] | None = None
    count: int = 1
    height: int = 0
    text: int = 0


def too_many(file: str, what: str, line: int = 0, column: int = 0) -> Problem:
    """The note at the end of a list of faults that was cut."""
    return Problem("too-many-problems", Place(file, line, column), "", what, "mend the faults listed and try again")


class TreeBuilder:
    """Collects one document. Positions count from 1. Every fault ends in one `CompileError` (code, place, path)."""

    def __init__(self, file: str, limits: Limits) -> None:
        self.file, self.limits = file, limits
        self.problems: list[Problem] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, _Node | None] = {}
        self._count = self._text = 0
        self._root: _Node | None = None

    @property
    def expects_key(self) -> bool:
        """The next scalar is a key of the innermost mapping."""
        return bool(self._frames) and self._frames[-1].mapping is not None and self._frames[-1].key is None

    def open(self, *, mapping: bool, line: int, column: int, anchor: str | None = None) -> None:
        """A container begins."""
        if self.expects_key:
            raise self.fault("odd-key", "a list or a mapping can't be a key (V001)", line, column, "write a plain word")
        self._count_in(1, 0, len(self._frames) + 1, line, column)
        self._frames.append(_Frame(line, column, anchor, {} if mapping else None, []))
        if anchor is not None:
            self._anchors[anchor] = None

    def close(self) -> None:
        """The innermost container ends."""
        done = self._frames.pop()
        if done.mapping is not None:
            node = _Node(done.mapping, Spot(done.line, done.column, entries=done.entries))
        else:
            node = _Node(done.sequence, Spot(done.line, done.column, items=done.items))
        node.count, node.height, node.text = done.count, done.height + 1, done.text
        self._place(node, done.anchor)

    def key(self, text: str, line: int, column: int) -> None:
        """A key of the innermost mapping; a repeated one is noted and its last value kept."""
        self._check_text(text, line, column)
        self._count_in(0, len(text), 0, line, column)
        frame = self._frames[-1]
        frame.text += len(text)
        if text in frame.entries:
            first = Place(self.file, *frame.entries[text][:2])
            what = f"the key {quoted(text)} stands twice in one mapping, first at {first} (V001)"
            self.note("duplicate-key", what, line, column, "remove one of them", (*self.path(), text))
        frame.key = (text, line, column)

    def scalar(self, value: object, line: int, column: int, anchor: str | None = None) -> None:
        """A value that holds no others."""
        length = len(value) if isinstance(value, str) else 0
        self._count_in(1, length, len(self._frames), line, column)
        if isinstance(value, str):
            self._check_text(value, line, column)
        self._place(_Node(value, Spot(line, column), text=length), anchor)

    def alias(self, name: str, line: int, column: int) -> None:
        """The value anchored as `name` once more: shared, but counted as if written out."""
        node = self._anchors.get(name)
        if node is None:
            known = name in self._anchors
            what = "the alias stands inside its own anchor" if known else f"no anchor {quoted(name)} stands above"
            raise self.fault("bad-alias", what + " (V001)", line, column, "write the value out")
        self._count_in(node.count, node.text, len(self._frames) + node.height, line, column)
        spot = Spot(line, column, node.spot.entries, node.spot.items)
        self._place(_Node(node.value, spot, node.count, node.height, node.text), None)

    def finish(self) -> tuple[object, Places]:
        """The data and its places. Raises every fault noted on the way; the root must be a mapping."""
        root = self._root
        if root is None or root.spot.entries is None:
            what = "the document must be a mapping of fields (V001)"
            line, column = (root.spot.line, root.spot.column) if root else (1, 1)
            self.note("not-a-mapping", what, line, column, path=())
        if self.problems or root is None:
            raise CompileError(self.problems)
        return root.value, Places(self.file, root.spot)

    def path(self) -> DocPath:
        """The path of the innermost open container, and of the key or item being read in it."""
        steps: list[str | int] = []
        for frame in self._frames:
            if frame.mapping is None:
                steps.append(len(frame.sequence))
            elif frame.key is not None:
                steps.append(frame.key[0])
        return tuple(steps)

    def note(self, code: str, what: str, line: int, column: int, help: str = "", path: DocPath | None = None) -> None:
        """Remember a fault and go on."""
        where = self.path() if path is None else path
        self.problems.append(Problem(code, Place(self.file, line, column), format_path(where), what, help))
        if len(self.problems) >= self.limits.problems:
            raise CompileError([*self.problems, too_many(self.file, "reading stopped here", line, column)])

    def fault(self, code: str, what: str, line: int, column: int, help: str = "") -> CompileError:
        """The error to raise when reading can't go on: this fault and all noted before."""
        self.note(code, what, line, column, help)
        return CompileError(self.problems)

    def _count_in(self, count: int, text: int, depth: int, line: int, column: int) -> None:
        self._count += count
        self._text += text
        if depth > self.limits.depth:
            raise self.fault("too-deep", f"values nest deeper than {self.limits.depth} levels", line, column)
        if self._count > self.limits.values:
            what = f"more than {self.limits.values} values, aliases written out"
            raise self.fault("too-many-values", what, line, column)
        if self._text > self.limits.size:
            what = f"more than {self.limits.size} characters of text, aliases written out"
            raise self.fault("too-many-values", what, line, column)

    def _check_text(self, text: str, line: int, column: int) -> None:
        bad = _UNWANTED.search(text)
        if bad:
            what = f"the character U+{ord(bad.group()):04X} can't stand in a text"
            self.note("forbidden-character", what, line, column)
        if len(text) > self.limits.text:
            what = f"a text of {len(text)} characters; the longest has {self.limits.text}"
            raise self.fault("too-long", what, line, column, "shorten it: nothing here is named by so long a text")

    def _place(self, node: _Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._frames:
            self._root = node
            return
        frame = self._frames[-1]
        frame.count += node.count
        frame.text += node.text
        frame.height = max(frame.height, node.height)
        if frame.mapping is None:
            frame.sequence.append(node.value)
            frame.items.append(node.spot)
        elif frame.key is not None:
            text, line, column = frame.key
            frame.mapping[text], frame.entries[text] = node.value, (line, column, node.spot)
            frame.key = None
