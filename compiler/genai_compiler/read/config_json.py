"""JSON text of a configuration file -> plain data that remembers where every value stood.

A lenient superset of what onnxruntime-genai's own parser reads (its json.cpp): a byte order mark and `\\u` escapes are
fine, `null` is kept for the reader to treat as absent, repeated keys merge as they do there (the last scalar wins,
objects merge, arrays append) with a warning. What no reader could mean is an error with its line.
"""

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.places import DocPath, format_path

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_BYTES = 8 << 20
MAX_DEPTH = 64

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|[^\s{}\[\],:\"]+")
_PLAIN = re.compile(r'[^"\\]*')
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class ConfigText:
    """A parsed configuration file: its root value, where each value and key stands, what was odd about the text."""

    file: str
    root: Json
    spots: dict[DocPath, tuple[int, int]]
    problems: tuple[Problem, ...]
    keys: dict[DocPath, tuple[int, int]] = field(default_factory=dict)

    def place(self, path: DocPath) -> Place:
        """Line and column of the value at `path`, or of the nearest enclosing value that the file has."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.spots:
                return Place(self.file, *self.spots[path[:end]])
        return Place(self.file)

    def key_place(self, path: DocPath) -> Place:
        """Line and column of the key that `path` ends in; of a list's item, the item's own."""
        return Place(self.file, *self.keys[path]) if path in self.keys else self.place(path)


def parse_config(data: bytes, file: str) -> ConfigText:
    """`data`, the bytes of `file`, as ConfigText. Raises CompileError `malformed-json` with line and column."""
    if len(data) > MAX_BYTES:
        what = f"{file} has {len(data)} bytes; configuration files are read up to {MAX_BYTES}"
        raise CompileError([Problem("malformed-json", Place(file), "", what)])
    text = data.decode("utf-8", "replace")
    parser = _Parser(file, text.removeprefix("\ufeff"))
    if "\ufffd" in text and b"\xef\xbf\xbd" not in data:
        parser.warn("invalid-utf8", 0, (), "bytes that are no UTF-8 were replaced", "save the file as UTF-8")
    root = parser.document()
    return ConfigText(file, root, parser.spots, tuple(parser.problems), parser.keys)


@dataclass
class _Parser:
    """Recursive descent over `text`; `at` is the next character."""

    file: str
    text: str
    at: int = 0
    spots: dict[DocPath, tuple[int, int]] = field(default_factory=dict)
    keys: dict[DocPath, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    line_starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.line_starts = [0, *(each.end() for each in re.finditer("\n", self.text))]

    def document(self) -> Json:
        root = self.value((), 0)
        self.skip_space()
        if self.at < len(self.text):
            self.warn("text-after-json", self.at, (), "text after the end of the document is ignored", "remove it")
        return root

    def value(self, path: DocPath, depth: int) -> Json:
        self.skip_space()
        if depth > MAX_DEPTH:
            self.fail(f"values are nested deeper than {MAX_DEPTH}")
        start = self.at
        self.spots[path] = self.spot(start)
        match self.text[start : start + 1]:
            case "{":
                return self.object(path, depth)
            case "[":
                return self.array(path, depth)
            case '"':
                return self.string()
            case _:
                return self.scalar()

    def object(self, path: DocPath, depth: int) -> dict[str, Json]:
        members: dict[str, Json] = {}
        self.at += 1
        if self.take("}"):
            return members
        while True:
            self.skip_space()
            key_at = self.at
            if self.text[key_at : key_at + 1] != '"':
                trailing = members and self.text[key_at : key_at + 1] == "}"
                self.fail("a comma before '}' starts no member" if trailing else "a member starts with a quoted name")
            key = self.string()
            self.keys[*path, key] = self.spot(key_at)
            self.expect(":", "':' after the name of a member")
            value = self.value((*path, key), depth + 1)
            if key in members:
                value = self.merge(members[key], value, (*path, key), key_at)
            members[key] = value
            if self.take("}"):
                return members
            self.expect(",", "',' or '}' after a member")

    def array(self, path: DocPath, depth: int) -> list[Json]:
        items: list[Json] = []
        self.at += 1
        if self.take("]"):
            return items
        while True:
            items.append(self.value((*path, len(items)), depth + 1))
            if self.take("]"):
                return items
            self.expect(",", "',' or ']' after an element")

    def string(self) -> str:
        start, parts = self.at, list[str]()
        self.at += 1
        while True:
            plain = _PLAIN.match(self.text, self.at)
            assert plain is not None  # the pattern matches the empty string
            parts.append(plain[0])
            self.at = plain.end()
            if self.at >= len(self.text):
                self.at = start
                self.fail("the string that starts here never ends")
            if self.text[self.at] == '"':
                self.at += 1
                return "".join(parts)
            parts.append(self.escape())

    def escape(self) -> str:
        letter = self.text[self.at + 1 : self.at + 2]
        if letter != "u":
            self.at += 2
            return _ESCAPES.get(letter, letter)
        code = self.code_unit()
        if 0xD800 <= code < 0xDC00 and self.text.startswith("\\u", self.at):
            kept, low = self.at, self.code_unit()
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + low - 0xDC00)
            self.at = kept
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)

    def code_unit(self) -> int:
        digits = self.text[self.at + 2 : self.at + 6]
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            self.fail("\\u needs four hexadecimal digits")
        self.at += 6
        return int(digits, 16)

    def scalar(self) -> Json:
        start = self.at
        if start >= len(self.text):
            self.fail("a value is missing: the text ends here")
        word = _WORD.match(self.text, start)
        token = word[0] if word else self.text[start]
        if token in _WORDS:
            self.at += len(token)
            return _WORDS[token]
        number = _NUMBER.fullmatch(token)
        if number is None:
            self.fail(_no_value(token))
        self.at += len(token)
        if len(token) > 400 or not math.isfinite(float(token)):
            self.at = start
            self.fail(f"{token[:20]} is too large for a number")
        return int(token) if token.lstrip("-").isdigit() else float(token)

    def merge(self, old: Json, new: Json, path: DocPath, key_at: int) -> Json:
        if isinstance(old, dict) and isinstance(new, dict):
            how = "both objects are merged"
        elif isinstance(old, list) and isinstance(new, list):
            how = "the second list is appended"
        else:
            how = "the last value counts"
        self.warn("duplicate-key", key_at, path, f"{path[-1]!r} is written twice; {how}", "write each name once")
        return _joined(old, new)

    def skip_space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def take(self, mark: str) -> bool:
        self.skip_space()
        found = self.text.startswith(mark, self.at)
        self.at += found
        return found

    def expect(self, mark: str, wanted: str) -> None:
        if not self.take(mark):
            seen = self.text[self.at : self.at + 1]
            self.fail(f"expected {wanted}, found {seen!r}" if seen else f"expected {wanted}, but the text ends")

    def spot(self, at: int) -> tuple[int, int]:
        """Line and column of a character, both from 1."""
        line = bisect_right(self.line_starts, at)
        return line, at - self.line_starts[line - 1] + 1

    def warn(self, code: str, at: int, path: DocPath, what: str, help: str) -> None:
        where = Place(self.file, *self.spot(at))
        self.problems.append(Problem(code, where, format_path(path), what, help, Severity.WARNING))

    def fail(self, what: str) -> NoReturn:
        where = Place(self.file, *self.spot(min(self.at, len(self.text))))
        help = ""
        if self.text.startswith(_COMMENTS, self.at):  # wherever it stands
            what, help = "JSON has no comments", "delete it"
        elif what.startswith("a comma before"):
            help = "delete the comma"
        raise CompileError([*self.problems, Problem("malformed-json", where, "", what, help)])


_COMMENTS = ("//", "/*", "#")


def _joined(old: Json, new: Json) -> Json:
    """The value of a key that two merged objects both have."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _joined(old.get(key), value) for key, value in new.items()}}
    return [*old, *new] if isinstance(old, list) and isinstance(new, list) else new


def _no_value(token: str) -> str:
    if token in ("}", "]"):
        return f"a comma before {token!r} starts no value"
    return f"{token[:40]!r} is no JSON value"
