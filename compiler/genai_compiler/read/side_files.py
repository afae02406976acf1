"""The JSON files beside a graph that nobody had to write for this compiler, and values in them by their type.

A damaged file is a problem and reads as empty; a value of another type than its key has is told, once, at its place,
and counts as not stated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.files import read_document
from genai_compiler.read.json_file import json_of
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.wording import shown

MAX_BYTES = 256 << 20  # tokenizers of large vocabularies take tens of MB
_LENGTHS_END = 1 << 31


@dataclass
class SideFile:
    """A file and what it holds, {} where it is absent or damaged. name: package-relative."""

    root: Path
    name: str
    data: Mapping[str, Any]
    problems: list[Problem]

    def place(self, path: DocPath) -> Place:
        """Where a value stands; the file alone where it has no lines that can be told."""
        return self._places.find(path)

    @cached_property
    def _places(self) -> Places:
        try:
            return read_document(self.root / self.name, self.root)[1]
        except CompileError:
            return Places(self.name)

    def _tell_id(self, path: DocPath, why: str) -> None:
        self._tell("bad-token-id", path, f"{format_path(path)} {why}; it counts as not stated")

    def _tell(self, code: str, path: DocPath, what: str) -> None:
        self._add(Problem(code, self.place(path), format_path(path), what, "correct it", Severity.WARNING))

    def _add(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def ids(self, key: str) -> list[int]:
        """The token ids at a key: one, or a list of them."""
        value = self.data.get(key)
        entries = {(key, at): each for at, each in enumerate(value)} if isinstance(value, list) else {(key,): value}
        found: list[int] = []
        for path, each in entries.items():
            if isinstance(each, int) and not isinstance(each, bool):
                found.append(each)
            elif each is not None or len(path) > 1:
                self._tell_id(path, f"is {_spelled(each)}, which is no token id")
        return found

    def first_id(self, key: str) -> int | None:
        """The token id at a key that has one; the first of a list, which is told."""
        found = self.ids(key)
        if len(found) > 1:
            self._tell("several-token-ids", (key,), f"{key} lists {found[:8]}; the first, {found[0]}, is used")
        return found[0] if found else None

    def token(self, key: str) -> str | None:
        """The text of a special token, written as a string or as an object with `content`."""
        value = self.data.get(key)
        text = token_text(value)
        if text is None and value is not None:
            self._tell_id((key,), f"is {_spelled(value)}, which is no text of a token")
        return text

    def length(self, key: str) -> int | None:
        """A number of positions; what stands for no limit is none."""
        value = self.data.get(key)
        if value is None or (is_number(value) and value >= _LENGTHS_END):
            return None
        if not is_whole(value) or value <= 0:
            self._add(odd_number(self.place((key,)), (key,), value))
            return None
        return int(value)


def token_text(token: Any) -> str | None:
    """The text of a special token, written as a string or as an object with `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _spelled(value: object) -> str:
    """A value as the file has it: 2.0 is no 2."""
    return repr(value) if isinstance(value, float) else shown(value)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether JSON has a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether JSON has a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def odd_number(place: Place, path: DocPath, value: object) -> Problem:
    """The warning that a value is no whole number above 0."""
    key = format_path(path)
    what = f"{key} is {_spelled(value)}, which is no whole number above 0; it counts as not stated"
    return Problem("wrong-type", place, key, what, "correct it", Severity.WARNING)


@dataclass
class SideFiles:
    """Optional JSON files of a package. folder: where the tokenizer's lie, "" for the package itself."""

    root: Path
    folder: str
    problems: list[Problem]
    _opened: dict[str, SideFile] = field(default_factory=dict[str, SideFile])

    def name(self, name: str) -> str | None:
        """The package-relative name if the file is there."""
        relative = self.relative(name)
        try:
            return find_artifact(self.root, relative).name
        except ArtifactFault as fault:
            if fault.code != "missing-file":
                self._add(fault.problem(Place(relative), ""))
            elif (self.root / relative).is_symlink():
                self._add(_broken_link(relative, str((self.root / relative).readlink())))
            return None

    def relative(self, name: str) -> str:
        """What a file is called, or would be."""
        return f"{self.folder}/{name}" if self.folder else name

    def open(self, name: str) -> SideFile:
        """A file with what it holds; read once."""
        if name not in self._opened:
            relative = self.name(name) or self.relative(name)
            self._opened[name] = SideFile(self.root, relative, self.load(name), self.problems)
        return self._opened[name]

    def load(self, name: str) -> Mapping[str, Any]:
        """What a file holds."""
        relative = self.name(name)
        if relative is None:
            return {}
        try:
            value = json_of(find_artifact(self.root, relative).file, relative, MAX_BYTES)
        except CompileError as damaged:
            for each in damaged.problems:
                self._add(each)
            return {}
        if not isinstance(value, dict):
            what = f"it holds {shown(value)}, and an object is expected"
            self._add(Problem("malformed-json", Place(relative), "", what, "copy the file of the model again"))
            return {}
        return value

    def _add(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _broken_link(name: str, target: str) -> Problem:
    what = f"{name!r} is a link to {target!r}, where no file is; it counts as absent"
    return Problem("missing-file", Place(name), "", what, "copy the file in place of the link", Severity.WARNING)
